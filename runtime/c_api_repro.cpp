// C API: a kernel and a call of it, written down for others.
#include "runtime/binding_io.hpp"
#include "runtime/c_api_support.hpp"
#include "runtime/repro.hpp"

using splitkv::answer;
using splitkv::not_null;
using splitkv::Outcome;

extern "C" {

splitkv_status splitkv_dump_repro(const splitkv_kernel* kernel, const splitkv_binding* binding,
                                  const splitkv_args* args, const char* folder,
                                  splitkv_message* message) {
  return answer(message, [&]() -> Outcome {
    if (Outcome given = not_null(kernel, "kernel"); !given) return given;
    if (Outcome given = not_null(folder, "folder"); !given) return given;
    splitkv::ReproCall call;
    splitkv_binding bound = SPLITKV_INIT(splitkv_binding);
    splitkv_args ran = SPLITKV_INIT(splitkv_args);
    if (binding != nullptr) {
      const auto read = splitkv::read_binding(binding);
      if (!read) return read.error();
      bound = *read;
      call.tensors = &bound.tensors;
    }
    if (args != nullptr) {
      const auto read = splitkv::read_struct(args, "args");
      if (!read) return read.error();
      ran = *read;
      call.args = &ran;
    }
    return dump_repro(*kernel->prepared, call, folder);
  });
}

splitkv_status splitkv_dump_problem(splitkv_runtime* runtime, const char* device,
                                    const char* problem, const splitkv_workload* workload,
                                    const char* schedule, const char* folder,
                                    splitkv_message* message) {
  return answer(message, [&]() -> Outcome {
    if (Outcome given = not_null(runtime, "runtime"); !given) return given;
    if (Outcome given = not_null(device, "device"); !given) return given;
    if (Outcome given = not_null(problem, "problem"); !given) return given;
    if (Outcome given = not_null(folder, "folder"); !given) return given;
    const auto hints = splitkv::read_workload(workload);
    if (!hints) return hints.error();
    const auto described = runtime->kernels.describe(
        {.device = device, .problem = problem, .workload = *hints, .schedule = schedule});
    if (!described) return described.error();
    return dump_repro(**described, {.workload = &*hints}, folder);
  });
}

}  // extern "C"
