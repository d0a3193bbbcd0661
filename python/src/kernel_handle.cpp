// A prepared kernel: its layers, its work buffers and what can be read from it.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>

#include <charconv>
#include <sstream>

#include "python/src/errors.hpp"
#include "python/src/fields.hpp"
#include "python/src/handles.hpp"

namespace nb = nanobind;

namespace splitkv::python {
namespace {

constexpr size_t kAlignment = 64;

size_t aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

int64_t whole(const std::string& text) {
  int64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

splitkv_buffer_sizes sizes_of(const KernelHandle& kernel, int64_t max_batch) {
  splitkv_buffer_sizes sizes = SPLITKV_INIT(splitkv_buffer_sizes);
  checked([&](splitkv_message* message) {
    return splitkv_sizes(kernel.kernel.get(), max_batch, &sizes, message);
  });
  return sizes;
}

const TensorField<splitkv_dl_cache> kCacheFields[] = {
    {"k", &splitkv_dl_cache::k},
    {"v", &splitkv_dl_cache::v},
    {"k_scale", &splitkv_dl_cache::k_scale},
    {"v_scale", &splitkv_dl_cache::v_scale},
    {"alibi_slopes", &splitkv_dl_cache::alibi_slopes},
    {"sink", &splitkv_dl_cache::sink}};

std::unique_ptr<BindingHandle> bind(const KernelHandle& kernel, const nb::dict& tensors,
                                    const nb::list& params, uintptr_t stream) {
  auto made = std::make_unique<BindingHandle>();
  const Consumer consumer{kernel.facts.cuda, stream};
  splitkv_dl_cache cache = SPLITKV_INIT(splitkv_dl_cache);
  made->kept = read_tensors(tensors, kCacheFields, consumer, cache);
  std::vector<Tensor> values;
  values.reserve(params.size());
  if (params.size() > std::size(cache.params)) {
    refuse("params holds " + std::to_string(params.size()) + " tensors; at most " +
           std::to_string(std::size(cache.params)) + " would fit");
  }
  for (size_t i = 0; i < params.size(); ++i) {
    values.emplace_back(params[i], "params", false, consumer);
    cache.params[i] = values.back().get();
  }
  splitkv_tensors found = SPLITKV_INIT(splitkv_tensors);
  checked([&](splitkv_message* message) {
    return splitkv_tensors_from_dlpack(kernel.kernel.get(), &cache, &found, message);
  });
  checked([&](splitkv_message* message) {
    return splitkv_bind(kernel.kernel.get(), &found, &made->binding, message);
  });
  made->blocks = cache.k->shape[0];
  made->tokens = cache.k->shape[kernel.facts.tokens_first ? 1 : 2];
  for (Tensor& value : values) made->kept.push_back(std::move(value));
  return made;
}

nb::dict info(const KernelHandle& kernel) {
  splitkv_kernel_info found = SPLITKV_INIT(splitkv_kernel_info);
  checked([&](splitkv_message* message) {
    return splitkv_get_kernel_info(kernel.kernel.get(), &found, message);
  });
  nb::dict values;
  values["problem"] = found.problem;
  values["schedule"] = found.schedule;
  values["target"] = found.target;
  values["device"] = found.device;
  values["why"] = found.why;
  values["decided_by"] = found.decided_by;
  values["source"] = found.source;
  values["key"] = found.key;
  values["origin"] = found.origin;
  values["from_memory"] = found.from_memory != 0;
  values["compile_ms"] = found.compile_ms;
  values["disk_ms"] = found.disk_ms;
  values["module_bytes"] = found.module_bytes;
  values["registers_split"] = found.registers_split;
  values["registers_reduce"] = found.registers_reduce;
  values["local_bytes_split"] = found.local_bytes_split;
  values["local_bytes_reduce"] = found.local_bytes_reduce;
  values["smem_bytes"] = found.smem_bytes;
  values["kernels_per_run"] = found.kernels_per_run;
  values["split_name"] = found.split_name;
  values["reduce_name"] = found.reduce_name;
  return values;
}

std::unique_ptr<Work> make_work(const KernelHandle& kernel, int64_t max_batch,
                                const nb::object& scratch, const nb::object& state,
                                uintptr_t stream) {
  const splitkv_buffer_sizes sizes = sizes_of(kernel, max_batch);
  std::unique_ptr<Work> work;
  if (kernel.facts.cuda || !scratch.is_none() || !state.is_none()) {
    work =
        std::make_unique<Work>(scratch, state, kernel.device, Consumer{kernel.facts.cuda, stream});
    work->max_batch = max_batch;
    if (work->scratch_bytes < sizes.scratch_bytes || work->state_bytes < sizes.state_bytes) {
      refuse("scratch has " + std::to_string(work->scratch_bytes) + " bytes and state " +
             std::to_string(work->state_bytes) + "; " + std::to_string(sizes.scratch_bytes) +
             " and " + std::to_string(sizes.state_bytes) + " would fit a batch of " +
             std::to_string(max_batch));
    }
    work->state_bytes = sizes.state_bytes;
  } else {
    work = std::make_unique<Work>(sizes, max_batch);
  }
  checked_released([&](splitkv_message* message) {
    return splitkv_state_init(kernel.kernel.get(), work->state, work->state_bytes,
                              reinterpret_cast<void*>(stream), message);
  });
  return work;
}

// None, or the fault with the message that tells it.
nb::object poll_fault(const KernelHandle& kernel) {
  splitkv_fault fault = SPLITKV_INIT(splitkv_fault);
  Message message(Message::kShort);
  const splitkv_status status = splitkv_poll_fault(kernel.kernel.get(), &fault, message.get());
  if (status == SPLITKV_OK) return nb::none();
  if (fault.code == 0) raise(status, message.text());
  return nb::make_tuple(fault.code, fault.row, fault.slot, fault.value, message.text());
}

void dump_repro(const KernelHandle& kernel, const std::string& folder,
                const BindingHandle* binding) {
  checked([&](splitkv_message* message) {
    return splitkv_dump_repro(kernel.kernel.get(), binding == nullptr ? nullptr : &binding->binding,
                              nullptr, folder.c_str(), message);
  });
}

}  // namespace

Facts facts_of(const std::string& problem, const std::string& device) {
  Facts facts;
  facts.cuda = device.rfind("cuda", 0) == 0;
  std::istringstream words(problem);
  for (std::string word; words >> word;) {
    const size_t equals = word.find('=');
    if (equals == std::string::npos) continue;
    const std::string key = word.substr(0, equals), value = word.substr(equals + 1);
    const size_t slash = value.find('/');
    const int64_t first = whole(value);
    const int64_t second = slash == std::string::npos ? first : whole(value.substr(slash + 1));
    if (key == "q") facts.q_type = value;
    if (key == "heads") facts.kv_heads = second;
    if (key == "dim") facts.dim_qk = first, facts.dim_v = second;
    const bool both_scales = key == "kv_scale";
    if (both_scales || key == "k_scale") facts.k_scale_tokens = value == "token";
    if (both_scales || key == "v_scale") facts.v_scale_tokens = value == "token";
    if (key == "ragged") facts.ragged = value == "on";
    if (key != "kv_layout") continue;
    facts.paged = value.rfind("paged:", 0) == 0;
    facts.page_size = facts.paged ? whole(value.substr(6)) : 0;
    facts.tokens_first = value == "bthd" || value.find(":nhd") != std::string::npos;
  }
  return facts;
}

Work::Work(const splitkv_buffer_sizes& sizes, int64_t batch)
    : scratch_bytes(sizes.scratch_bytes), state_bytes(sizes.state_bytes), max_batch(batch) {
  const size_t room = aligned(scratch_bytes) + aligned(state_bytes) + kAlignment;
  memory_.reset(new char[room]);
  char* begin = memory_.get();
  begin += (kAlignment - reinterpret_cast<uintptr_t>(begin) % kAlignment) % kAlignment;
  if (scratch_bytes > 0) scratch = begin;
  if (state_bytes > 0) state = begin + aligned(scratch_bytes);
}

Work::Work(nb::handle scratch_tensor, nb::handle state_tensor, const std::string& device,
           const Consumer& consumer) {
  const auto take = [&](nb::handle source, const char* field, void** data, size_t* bytes) {
    if (source.is_none()) return;
    Tensor tensor(source, field, true, consumer);
    check_tensor(tensor, {{{1, 8, 1}}, {-1}, "[bytes]"}, device);
    check_dense_from(tensor, 0);
    *data = tensor.data();
    *bytes = size_t(tensor.size(0));
    kept_.push_back(std::move(tensor));
  };
  take(scratch_tensor, "scratch", &scratch, &scratch_bytes);
  take(state_tensor, "state", &state, &state_bytes);
}

std::unique_ptr<Work> KernelHandle::take_work(int64_t batch) {
  {
    const std::lock_guard lock(mutex);
    for (auto& work : idle) {
      if (work->max_batch < batch) continue;
      std::swap(work, idle.back());
      std::unique_ptr<Work> taken = std::move(idle.back());
      idle.pop_back();
      return taken;
    }
    idle.clear();  // all are too small
  }
  return make_work(*this, batch, nb::none(), nb::none(), 0);
}

void KernelHandle::give_back(std::unique_ptr<Work> work) {
  const std::lock_guard lock(mutex);
  idle.push_back(std::move(work));
}

void add_kernel(nb::module_& module) {
  nb::class_<Work>(module, "Work").def_ro("max_batch", &Work::max_batch);
  nb::class_<BindingHandle>(module, "Binding")
      .def_ro("blocks", &BindingHandle::blocks)
      .def_ro("tokens", &BindingHandle::tokens);
  nb::class_<KernelHandle> kernel(module, "Kernel");
  kernel.def("bind", &bind, nb::arg("tensors"), nb::arg("params"), nb::arg("stream"))
      .def("info", &info)
      .def("sizes",
           [](const KernelHandle& handle, int64_t max_batch) {
             const splitkv_buffer_sizes sizes = sizes_of(handle, max_batch);
             return nb::make_tuple(sizes.scratch_bytes, sizes.state_bytes, sizes.module_bytes);
           })
      .def("work", &make_work, nb::arg("max_batch"), nb::arg("scratch").none(),
           nb::arg("state").none(), nb::arg("stream"))
      .def("poll_fault", &poll_fault)
      .def("dump_repro", &dump_repro, nb::arg("folder"), nb::arg("binding").none());
  add_run(kernel);
}

}  // namespace splitkv::python
