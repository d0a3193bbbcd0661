// The library's handles as classes of the module splitkv._core. Handles are shared: a call that has
// let other threads of Python go on keeps what it works with, whatever these close meanwhile.
#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "python/src/tensors.hpp"
#include "runtime/splitkv.h"
#include "runtime/splitkv_append.h"

namespace splitkv::python {

// Calls `log(level, line)` of Python from whichever thread has something to say.
class Log {
 public:
  explicit Log(nanobind::object callback) : callback_(std::move(callback)) {}
  ~Log();
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  static void write(void* user, splitkv_log_level level, const char* line);

 private:
  nanobind::object callback_;
};

struct RuntimeHandle {
  std::shared_ptr<Log> log;  // outlives the runtime
  std::shared_ptr<splitkv_runtime> runtime;

  std::shared_ptr<splitkv_runtime> get() const;  // throws where it was closed
};

// The work buffers of runs: memory of the CPU, or tensors that the caller made.
class Work {
 public:
  // Memory of its own, zeroed; for the CPU.
  Work(const splitkv_buffer_sizes& sizes, int64_t max_batch);
  // uint8 tensors, or None where a size is 0.
  Work(nanobind::handle scratch, nanobind::handle state, const std::string& device,
       const Consumer& consumer);

  void* scratch = nullptr;
  size_t scratch_bytes = 0;
  void* state = nullptr;
  size_t state_bytes = 0;
  int64_t max_batch = 0;
  std::atomic<bool> busy = false;  // of a run on the CPU

 private:
  std::vector<Tensor> kept_;
  std::unique_ptr<char[]> memory_;
};

// What the module itself must know of a problem, from its canonical text.
struct Facts {
  bool cuda = false;
  bool paged = false;
  bool ragged = false;
  bool tokens_first = false;
  int64_t page_size = 0;
  int64_t kv_heads = 0, dim_qk = 0, dim_v = 0;
  bool k_scale_tokens = false, v_scale_tokens = false;  // a scale a token, which appends write
  std::string q_type;
};
Facts facts_of(const std::string& problem, const std::string& device);

struct KernelHandle {
  std::shared_ptr<Log> log;
  std::shared_ptr<splitkv_runtime> runtime;
  std::shared_ptr<splitkv_kernel> kernel;
  std::string device, problem;
  Facts facts;
  // CPU: work buffers that no run has just now.
  std::mutex mutex;
  std::vector<std::unique_ptr<Work>> idle;

  std::unique_ptr<Work> take_work(int64_t batch);
  void give_back(std::unique_ptr<Work> work);
};

// One layer, with what keeps its tensors.
struct BindingHandle {
  splitkv_binding binding = SPLITKV_INIT(splitkv_binding);
  std::vector<Tensor> kept;
  int64_t blocks = 0, tokens = 0;  // of k: batch rows or pages, tokens a block
};

struct MergerHandle {
  std::shared_ptr<Log> log;
  std::shared_ptr<splitkv_merger> merger;
  std::string device;
  bool has_l = false;
};

struct AppenderHandle {
  std::shared_ptr<Log> log;
  std::shared_ptr<splitkv_appender> appender;
  std::string device;
  splitkv_dl_dtype dtype = {};  // of new elements
  Facts facts;
};

// Ends a handle without the GIL: what it waits for may want to log.
template <class Handle, class End>
std::shared_ptr<Handle> own(Handle* handle, End end) {
  return std::shared_ptr<Handle>(handle, [end](Handle* ended) {
    const nanobind::gil_scoped_release released;
    end(ended);
  });
}

void add_runtime(nanobind::module_& module);
void add_kernel(nanobind::module_& module);
void add_run(nanobind::class_<KernelHandle>& kernel);
void add_merger(nanobind::module_& module);
void add_appender(nanobind::module_& module);

}  // namespace splitkv::python
