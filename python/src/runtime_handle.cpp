// splitkv_open, splitkv_supports, splitkv_prepare and statistics.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>

#include <optional>

#include "python/src/errors.hpp"
#include "python/src/handles.hpp"
#include "runtime/splitkv_deploy.h"

namespace nb = nanobind;
using Text = std::optional<std::string>;

namespace splitkv::python {
namespace {

const char* pointer(const Text& text) { return text ? text->c_str() : nullptr; }

RuntimeHandle open_runtime(uint32_t flags, const nb::object& log, int32_t threads,
                           const Text& cache_dir, uint64_t cache_limit_bytes, const Text& pack) {
  RuntimeHandle handle;
  splitkv_options options = SPLITKV_INIT(splitkv_options);
  options.flags = flags;
  options.threads = threads;
  options.cache_dir = pointer(cache_dir);
  options.cache_limit_bytes = cache_limit_bytes;
  options.pack = pointer(pack);
  if (!log.is_none()) {
    handle.log = std::make_shared<Log>(log);
    options.log = Log::write;
    options.log_user = handle.log.get();
  }
  splitkv_runtime* runtime = nullptr;
  checked_released(
      [&](splitkv_message* message) { return splitkv_open(&options, &runtime, message); });
  handle.runtime = own(runtime, splitkv_close);
  return handle;
}

std::unique_ptr<KernelHandle> prepare(const RuntimeHandle& handle, const std::string& device,
                                      const std::string& problem, int64_t batch, int64_t kv_len,
                                      int64_t kv_len_mean, const Text& schedule) {
  auto made = std::make_unique<KernelHandle>();
  made->log = handle.log;
  made->runtime = handle.get();
  splitkv_workload workload = SPLITKV_INIT(splitkv_workload);
  workload.batch = batch;
  workload.kv_len = kv_len;
  workload.kv_len_mean = kv_len_mean;
  splitkv_kernel* kernel = nullptr;
  checked_released(
      [&](splitkv_message* message) {
        return splitkv_prepare(made->runtime.get(), device.c_str(), problem.c_str(), &workload,
                               pointer(schedule), &kernel, message);
      },
      Message::kLong);
  made->kernel = own(kernel, splitkv_release);
  splitkv_kernel_info info = SPLITKV_INIT(splitkv_kernel_info);
  checked(
      [&](splitkv_message* message) { return splitkv_get_kernel_info(kernel, &info, message); });
  made->device = info.device;
  made->problem = info.problem;
  made->facts = facts_of(made->problem, made->device);
  return made;
}

std::unique_ptr<MergerHandle> prepare_merge(const RuntimeHandle& handle, const std::string& device,
                                            const std::string& form, const std::string& base) {
  auto made = std::make_unique<MergerHandle>();
  made->log = handle.log;
  made->device = device;
  made->has_l = form == "mlo";
  const std::shared_ptr<splitkv_runtime> runtime = handle.get();
  splitkv_merger* merger = nullptr;
  checked_released(
      [&](splitkv_message* message) {
        return splitkv_prepare_merge(runtime.get(), device.c_str(), form.c_str(), base.c_str(),
                                     &merger, message);
      },
      Message::kLong);
  made->merger = own(merger, splitkv_release_merger);
  return made;
}

nb::dict statistics(const RuntimeHandle& handle) {
  splitkv_statistics found = SPLITKV_INIT(splitkv_statistics);
  checked([&](splitkv_message* message) {
    return splitkv_get_statistics(handle.get().get(), &found, message);
  });
  nb::dict values;
  values["memory_hits"] = found.memory_hits;
  values["compiles"] = found.compiles;
  values["compile_failures"] = found.compile_failures;
  values["compile_ms_total"] = found.compile_ms_total;
  values["disk_hits"] = found.disk_hits;
  values["disk_ms_total"] = found.disk_ms_total;
  values["pack_hits"] = found.pack_hits;
  values["misses"] = found.misses;
  values["evictions"] = found.evictions;
  return values;
}

// None where the problem can be had, else why not.
nb::object supports(const std::string& problem, const std::string& target) {
  Message message(Message::kShort);
  const splitkv_status status = splitkv_supports(problem.c_str(), target.c_str(), message.get());
  if (status == SPLITKV_OK) return nb::none();
  if (status != SPLITKV_UNSUPPORTED) raise(status, message.text());
  return nb::cast(message.text());
}

}  // namespace

Log::~Log() {
  if (!Py_IsInitialized()) {
    callback_.release();
    return;
  }
  const nb::gil_scoped_acquire acquired;
  callback_.reset();
}

void Log::write(void* user, splitkv_log_level level, const char* line) {
  if (!Py_IsInitialized()) return;
  const nb::gil_scoped_acquire acquired;
  try {
    static_cast<Log*>(user)->callback_(int(level), nb::str(line));
  } catch (nb::python_error& error) {
    error.restore();
    PyErr_WriteUnraisable(static_cast<Log*>(user)->callback_.ptr());
  }
}

std::shared_ptr<splitkv_runtime> RuntimeHandle::get() const {
  if (runtime == nullptr) refuse("the runtime is closed; a new Runtime() would fit");
  return runtime;
}

void add_runtime(nb::module_& module) {
  nb::class_<RuntimeHandle>(module, "Runtime")
      .def("prepare", &prepare, nb::arg("device"), nb::arg("problem"), nb::arg("batch"),
           nb::arg("kv_len"), nb::arg("kv_len_mean"), nb::arg("schedule").none())
      .def("prepare_merge", &prepare_merge, nb::arg("device"), nb::arg("form"), nb::arg("base"))
      .def("open_pack",
           [](const RuntimeHandle& handle, const std::string& path) {
             const std::shared_ptr<splitkv_runtime> runtime = handle.get();
             checked_released([&](splitkv_message* message) {
               return splitkv_open_pack(runtime.get(), path.c_str(), message);
             });
           })
      .def("statistics", &statistics)
      .def("close", [](RuntimeHandle& handle) { handle.runtime.reset(); })
      .def_prop_ro("closed", [](const RuntimeHandle& handle) { return handle.runtime == nullptr; });
  module.def("open", &open_runtime, nb::arg("flags"), nb::arg("log").none(), nb::arg("threads"),
             nb::arg("cache_dir").none(), nb::arg("cache_limit_bytes"), nb::arg("pack").none());
  module.def("supports", &supports, nb::arg("problem"), nb::arg("target"));
  module.def("version", [] { return splitkv_version(); });
}

}  // namespace splitkv::python
