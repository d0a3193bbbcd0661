// A small decode engine around SplitKV; docs/engine.md tells what to copy from it.
//
//   engine generate --model DIR --chat --prompt "What is the capital of France?"
#include <cstdio>
#include <cstring>

#include "thread_pool.hpp"
#include "verbs.hpp"

namespace engine {
namespace {

int run(const Options& options) {
  ThreadPool threads(options.threads);
  const auto open = [&] {
    return options.device == "cpu" ? open_cpu(threads)
                                   : open_cuda(std::stoi(options.device.substr(5)), options.dtype);
  };
  const std::unique_ptr<Device> device = open();
  if (options.verb == "generate") return generate(options, *device);
  if (options.verb == "bench") return bench(options, *device);
  return graph_check(options, *device, *open());
}

int main_of(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--help") != 0) continue;
    std::fputs(kUsage, stdout);
    return 0;
  }
  try {
    return run(parse_options(argc, argv));
  } catch (const BadOption& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  } catch (const std::invalid_argument& error) {  // a request that cannot run
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  } catch (const splitkv::Failure& error) {
    std::fprintf(stderr, "%s: %s\n", splitkv_status_name(error.status()), error.what());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  return 3;
}

}  // namespace
}  // namespace engine

int main(int argc, char** argv) { return engine::main_of(argc, argv); }
