#include <cstdio>
#include <exception>
#include <new>

#include "runtime/splitkv.h"
#include "tools/splitkv/verb.hpp"

int main(int argc, char** argv) {
  using namespace splitkv::tool;
  CLI::App app("Compiles flash-decoding attention to order, runs it and checks it.");
  app.set_version_flag("--version", splitkv_version());
  app.require_subcommand(0, 1);  // none is told below: so that an unknown verb is named
  app.footer("Exit status: 0 well, 1 a check failed, 2 bad input, 3 this machine cannot.");
  int status = kExitOk;
  add_run(app, status);
  add_show(app, status);
  add_emit(app, status);
  add_compile(app, status);
  add_doctor(app, status);
  add_bench(app, status);
  add_bench_host(app, status);
  add_explain(app, status);
  add_cache(app, status);
  add_pack(app, status);
  add_tune(app, status);
  try {
    app.parse(argc, argv);
    if (app.get_subcommands().empty()) {
      std::fprintf(stderr, "splitkv: a verb is missing\n%s", app.help().c_str());
      return kExitBadInput;
    }
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitOk : kExitBadInput;
  } catch (const std::bad_alloc&) {
    std::fputs("splitkv: out of host memory; a smaller --batch or --kv-len would fit\n", stderr);
    return kExitMachine;
  } catch (const std::exception& error) {  // what the standard library throws: threads, sizes
    std::fprintf(stderr, "splitkv: %s\n", error.what());
    return kExitMachine;
  }
  return status;
}
