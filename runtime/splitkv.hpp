// SplitKV for C++17: owners over the C API of splitkv.h, header-only. Each method is the C function
// of the same name, where the whole contract stands; here a failure is thrown as splitkv::Failure
// instead of returned.
//
//   splitkv::Runtime runtime;
//   splitkv::Kernel kernel = runtime.prepare("cpu", "attention q=bf16 heads=32/8 dim=128");
//   splitkv_tensors tensors = kernel.dense_strides(capacity);  // or the strides of your cache
//   tensors.k = k, tensors.v = v;
//   splitkv::Binding layer = kernel.bind(tensors);             // one a layer
//   auto args = splitkv::sized<splitkv_args>();                // q, out, kv_len, scratch, state
//   kernel.run(layer, args);                                   // one decode step
//
// Many kernels at once, tuning and background jobs are in splitkv_deploy.hpp.
#ifndef SPLITKV_HPP
#define SPLITKV_HPP

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "splitkv.h"
#include "splitkv_append.h"
#include "splitkv_deploy.h"

namespace splitkv {

// A status other than SPLITKV_OK. what() is the library's message.
class Failure : public std::runtime_error {
 public:
  Failure(splitkv_status status, const std::string& message)
      : std::runtime_error(message), status_(status) {}

  splitkv_status status() const noexcept { return status_; }

 private:
  splitkv_status status_;
};

// What bind() gives: a plain value, one per layer.
using Binding = splitkv_binding;

// A struct of the C API, all zero but its size: what SPLITKV_INIT is in C.
template <class Struct>
Struct sized() {
  Struct zero{};
  zero.size = sizeof(Struct);
  return zero;
}

namespace c_layer {

// Runs call(splitkv_message*) and throws what it reports. Of a longer message (a compiler's log)
// the beginning is kept: cause, options, path of the saved source.
template <class Call>
void check(const Call& call) {
  char text[16384];
  auto message = sized<splitkv_message>();
  message.text = text;
  message.capacity = sizeof(text);
  const splitkv_status status = call(&message);
  if (status != SPLITKV_OK) throw Failure(status, text);
}

struct Release {
  void operator()(splitkv_kernel* kernel) const noexcept { splitkv_release(kernel); }
  void operator()(splitkv_merger* merger) const noexcept { splitkv_release_merger(merger); }
  void operator()(splitkv_appender* appender) const noexcept { splitkv_release_appender(appender); }
};

}  // namespace c_layer

// One problem's compiled kernels on one device. Move-only; may outlive its runtime. const methods
// may be called from any threads at once, each run with scratch and state of its own.
class Kernel {
 public:
  // Bytes of the work buffers for every batch up to max_batch.
  splitkv_buffer_sizes sizes(std::int64_t max_batch) const {
    auto sizes = sized<splitkv_buffer_sizes>();
    c_layer::check(
        [&](splitkv_message* m) { return splitkv_sizes(handle_.get(), max_batch, &sizes, m); });
    return sizes;
  }

  // Zeroes `state` on the stream: once before the first run, and after a failed launch.
  void state_init(void* state, std::size_t state_bytes, void* stream = nullptr) const {
    c_layer::check([&](splitkv_message* m) {
      return splitkv_state_init(handle_.get(), state, state_bytes, stream, m);
    });
  }

  // Strides of dense K and V in the problem's layout, with `capacity` tokens a row (not looked at
  // for pages). k and v are left NULL.
  splitkv_tensors dense_strides(std::int64_t capacity) const {
    auto tensors = sized<splitkv_tensors>();
    c_layer::check([&](splitkv_message* m) {
      return splitkv_dense_strides(handle_.get(), capacity, &tensors, m);
    });
    return tensors;
  }

  // Refuses pointers and strides weaker than the problem's alignment class.
  Binding bind(const splitkv_tensors& tensors) const {
    auto binding = sized<splitkv_binding>();
    c_layer::check(
        [&](splitkv_message* m) { return splitkv_bind(handle_.get(), &tensors, &binding, m); });
    return binding;
  }

  // One decode step: launches on the stream and returns (CUDA), or returns with the result (CPU,
  // where stream must be NULL).
  void run(const Binding& binding, const splitkv_args& args, void* stream = nullptr) const {
    c_layer::check(
        [&](splitkv_message* m) { return splitkv_run(handle_.get(), &binding, &args, stream, m); });
  }

  // CPU, reduce=last_block: part `part` of `parts` of one run, on this thread.
  void run_part(const Binding& binding, const splitkv_args& args, std::int64_t part,
                std::int64_t parts) const {
    c_layer::check([&](splitkv_message* m) {
      return splitkv_run_part(handle_.get(), &binding, &args, part, parts, m);
    });
  }

  // checked=on: throws what the kernel found wrong in device data since the last call, the first
  // fault only, which is then forgotten. Does not wait for a stream.
  void poll_fault() const {
    auto fault = sized<splitkv_fault>();
    c_layer::check(
        [&](splitkv_message* m) { return splitkv_poll_fault(handle_.get(), &fault, m); });
  }

  // Texts in it live as long as the kernel.
  splitkv_kernel_info info() const {
    auto info = sized<splitkv_kernel_info>();
    c_layer::check(
        [&](splitkv_message* m) { return splitkv_get_kernel_info(handle_.get(), &info, m); });
    return info;
  }

  // Files in `folder` with which others repeat what this kernel does; see splitkv_dump_repro.
  void dump_repro(const std::string& folder, const Binding* binding = nullptr,
                  const splitkv_args* args = nullptr) const {
    c_layer::check([&](splitkv_message* m) {
      return splitkv_dump_repro(handle_.get(), binding, args, folder.c_str(), m);
    });
  }

  // How this kernel was decided, for other processes: see Runtime::prepare_decided.
  std::string decision() const {
    std::size_t bytes = 0;
    const auto write = [&](char* data, std::size_t capacity) {
      c_layer::check([&](splitkv_message* m) {
        return splitkv_export_decision(handle_.get(), data, capacity, &bytes, m);
      });
    };
    write(nullptr, 0);
    std::string text(bytes, '\0');
    write(&text[0], text.size());
    return text;
  }

  // Owns a handle of the C API from now on.
  explicit Kernel(splitkv_kernel* handle) : handle_(handle) {}

  // The C handle, still owned by this.
  splitkv_kernel* get() const noexcept { return handle_.get(); }

 private:
  std::unique_ptr<splitkv_kernel, c_layer::Release> handle_;
};

// The loaded merge of partials of one form and base. Move-only; may outlive its runtime.
class Merger {
 public:
  // Launches on the stream and returns (CUDA), or returns with the result (CPU, where stream must
  // be NULL).
  void merge(const splitkv_merge_args& args, void* stream = nullptr) const {
    c_layer::check(
        [&](splitkv_message* m) { return splitkv_merge(handle_.get(), &args, stream, m); });
  }

  // Throws what merges found wrong in the parts since the last call, the first fault only, which is
  // then forgotten. Does not wait for a stream.
  void poll_fault() const {
    auto fault = sized<splitkv_fault>();
    c_layer::check(
        [&](splitkv_message* m) { return splitkv_poll_merge_fault(handle_.get(), &fault, m); });
  }

  // The C handle, still owned by this.
  splitkv_merger* get() const noexcept { return handle_.get(); }

 private:
  friend class Runtime;
  explicit Merger(splitkv_merger* handle) : handle_(handle) {}

  std::unique_ptr<splitkv_merger, c_layer::Release> handle_;
};

// The loaded writer of new keys and values into the cache of one problem (splitkv_append.h).
// Move-only; may outlive its runtime.
class Appender {
 public:
  // Launches on the stream and returns (CUDA), or returns when all is written (CPU, where stream
  // must be NULL). binding: of a kernel of the same problem and device.
  void append(const Binding& binding, const splitkv_append_args& args,
              void* stream = nullptr) const {
    c_layer::check([&](splitkv_message* m) {
      return splitkv_append(handle_.get(), &binding, &args, stream, m);
    });
  }

  // checked=on: throws what appends found wrong in device data since the last call, the first fault
  // only, which is then forgotten. Does not wait for a stream.
  void poll_fault() const {
    auto fault = sized<splitkv_fault>();
    c_layer::check(
        [&](splitkv_message* m) { return splitkv_poll_append_fault(handle_.get(), &fault, m); });
  }

  // The C handle, still owned by this.
  splitkv_appender* get() const noexcept { return handle_.get(); }

 private:
  friend class Runtime;
  explicit Appender(splitkv_appender* handle) : handle_(handle) {}

  std::unique_ptr<splitkv_appender, c_layer::Release> handle_;
};

// What a kernel will mostly be run on: hints that choose its schedule, never limits.
struct Hints {
  std::int64_t batch = 0;        // 0: 1
  std::int64_t kv_len = 0;       // tokens of the longest row; 0: 4096
  std::int64_t kv_len_mean = 0;  // of a row, where it is roughly known; 0: not known

  splitkv_workload workload() const {
    auto workload = sized<splitkv_workload>();
    workload.batch = batch;
    workload.kv_len = kv_len;
    workload.kv_len_mean = kv_len_mean;
    return workload;
  }
};

// How a runtime is opened. Callbacks are called from any thread and must not throw.
struct Options {
  std::function<void(splitkv_log_level level, const char* line)> log;  // empty: silent
  bool no_jit = false;       // prepare() fails where it would have to compile
  bool no_disk = false;      // neither read nor keep compiled kernels on disk
  bool no_tuning = false;    // leave the user's file of tuning records unread
  std::int32_t threads = 0;  // of the CPU target; 0: as many as the process may use
  // CPU target: instead of threads of the library's own; see splitkv_options. With its user
  // pointer.
  void (*parallel_for)(void* user, std::int64_t n, void (*body)(void* context, std::int64_t i),
                       void* context) = nullptr;
  void* parallel_for_user = nullptr;
  // Where compiled kernels are kept, and how many bytes of them; see splitkv_options.
  std::string cache_dir;                // empty: the default
  std::uint64_t cache_limit_bytes = 0;  // 0: the default
  std::string pack;  // a file of `splitkv pack` to open; empty: what SPLITKV_PACK names, if any
};

// Options, the CPU thread pool, and kernels in memory. Move-only; any threads may use it at once.
// A parallel_for user pointer must outlive the kernels, everything else only the runtime.
class Runtime {
 public:
  Runtime() : Runtime(Options()) {}

  explicit Runtime(Options options) : log_(std::make_unique<Log>(std::move(options.log))) {
    auto given = sized<splitkv_options>();
    given.flags = (options.no_jit ? std::uint32_t(SPLITKV_NO_JIT) : 0u) |
                  (options.no_disk ? std::uint32_t(SPLITKV_NO_DISK) : 0u) |
                  (options.no_tuning ? std::uint32_t(SPLITKV_NO_TUNING) : 0u);
    if (!options.pack.empty()) given.pack = options.pack.c_str();
    if (!options.cache_dir.empty()) given.cache_dir = options.cache_dir.c_str();
    given.cache_limit_bytes = options.cache_limit_bytes;
    if (*log_) {
      given.log = [](void* user, splitkv_log_level level, const char* line) {
        (*static_cast<Log*>(user))(level, line);
      };
      given.log_user = log_.get();
    }
    given.parallel_for = options.parallel_for;
    given.parallel_for_user = options.parallel_for_user;
    given.threads = options.threads;
    splitkv_runtime* handle = nullptr;
    c_layer::check([&](splitkv_message* m) { return splitkv_open(&given, &handle, m); });
    handle_.reset(handle);
  }

  // Compiles (or finds in memory or on disk) and loads. device: "cuda:0", "cpu", "cpu:x86-64-v3".
  // schedule: all or some words of a schedule; empty: SPLITKV_SCHEDULE, else the library's choice.
  Kernel prepare(const std::string& device, const std::string& problem, Hints hints = Hints(),
                 const std::string& schedule = std::string()) {
    const splitkv_workload workload = hints.workload();
    splitkv_kernel* kernel = nullptr;
    c_layer::check([&](splitkv_message* m) {
      return splitkv_prepare(handle_.get(), device.c_str(), problem.c_str(), &workload,
                             schedule.empty() ? nullptr : schedule.c_str(), &kernel, m);
    });
    return Kernel(kernel);
  }

  // As prepare, with the schedule that Kernel::decision of another process holds.
  Kernel prepare_decided(const std::string& device, const std::string& problem,
                         const std::string& decision) {
    splitkv_kernel* kernel = nullptr;
    c_layer::check([&](splitkv_message* m) {
      return splitkv_prepare_decided(handle_.get(), device.c_str(), problem.c_str(),
                                     decision.data(), decision.size(), &kernel, m);
    });
    return Kernel(kernel);
  }

  // Kernels and records that are taken from there from now on. Files of `splitkv pack`.
  void open_pack(const std::string& path) {
    c_layer::check(
        [&](splitkv_message* m) { return splitkv_open_pack(handle_.get(), path.c_str(), m); });
  }
  void open_pack(const void* data, std::size_t bytes) {
    c_layer::check([&](splitkv_message* m) {
      return splitkv_open_pack_memory(handle_.get(), data, bytes, m);
    });
  }

  // form: "mlo" or "lse"; base: "natural" or "base2".
  Merger prepare_merge(const std::string& device, const std::string& form,
                       const std::string& base) {
    splitkv_merger* merger = nullptr;
    c_layer::check([&](splitkv_message* m) {
      return splitkv_prepare_merge(handle_.get(), device.c_str(), form.c_str(), base.c_str(),
                                   &merger, m);
    });
    return Merger(merger);
  }

  // places: "slots" or "rows"; type of new elements: "fp32", "fp16", "bf16"; empty: the problem's q
  // type.
  Appender prepare_append(const std::string& device, const std::string& problem,
                          const std::string& places, const std::string& type = std::string()) {
    splitkv_appender* appender = nullptr;
    c_layer::check([&](splitkv_message* m) {
      return splitkv_prepare_append(handle_.get(), device.c_str(), problem.c_str(),
                                    type.empty() ? nullptr : type.c_str(), places.c_str(),
                                    &appender, m);
    });
    return Appender(appender);
  }

  splitkv_statistics statistics() const {
    auto statistics = sized<splitkv_statistics>();
    c_layer::check(
        [&](splitkv_message* m) { return splitkv_get_statistics(handle_.get(), &statistics, m); });
    return statistics;
  }

  // The C handle, still owned by this.
  splitkv_runtime* get() const noexcept { return handle_.get(); }

 private:
  using Log = std::function<void(splitkv_log_level, const char*)>;
  struct Close {
    void operator()(splitkv_runtime* runtime) const noexcept { splitkv_close(runtime); }
  };

  std::unique_ptr<Log> log_;  // outlives the handle, which calls it
  std::unique_ptr<splitkv_runtime, Close> handle_;
};

// Returns when the problem can be prepared on the target ("cuda:sm_90a", "cpu"); else the Failure
// names rule, field, value, limit and what would fit.
inline void supports(const std::string& problem, const std::string& target) {
  c_layer::check(
      [&](splitkv_message* m) { return splitkv_supports(problem.c_str(), target.c_str(), m); });
}

}  // namespace splitkv

#endif  // SPLITKV_HPP
