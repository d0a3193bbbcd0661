// splitkv_run with tensors of Python.
#include <nanobind/stl/string.h>

#include <algorithm>

#include "python/src/errors.hpp"
#include "python/src/fields.hpp"
#include "python/src/handles.hpp"

namespace nb = nanobind;

namespace splitkv::python {
namespace {

const TensorField<splitkv_dl_step> kStepFields[] = {
    {"q", &splitkv_dl_step::q},
    {"q_rope", &splitkv_dl_step::q_rope},
    {"out", &splitkv_dl_step::out, true},
    {"lse", &splitkv_dl_step::lse, true},
    {"partial_l", &splitkv_dl_step::partial_l, true},
    {"kv_len", &splitkv_dl_step::kv_len},
    {"page_table", &splitkv_dl_step::page_table},
    {"page_offset", &splitkv_dl_step::page_offset},
    {"v_page_table", &splitkv_dl_step::v_page_table},
    {"v_page_offset", &splitkv_dl_step::v_page_offset},
    {"q_offset", &splitkv_dl_step::q_offset},
    {"kv_begin", &splitkv_dl_step::kv_begin},
    {"total_len", &splitkv_dl_step::total_len},
    {"bias", &splitkv_dl_step::bias},
    {"tree", &splitkv_dl_step::tree}};

// Keys that a row can hold, where the tensors say so; -1 where they do not.
int64_t capacity_of(const KernelHandle& kernel, const BindingHandle& binding,
                    const splitkv_dl_step& step) {
  if (!kernel.facts.paged) return binding.tokens;
  if (step.page_table == nullptr || step.page_table->ndim != 2) return -1;
  return step.page_table->shape[1] * kernel.facts.page_size;
}

void check_length(int64_t length, int64_t capacity, const std::string& field) {
  if (length <= capacity) return;
  refuse(field + "=" + std::to_string(length) + ", but the cache holds " +
         std::to_string(capacity) + " keys of a row; at most these would fit");
}

// Lengths that lie on the host are looked at before anything is read by them.
void check_lengths(const KernelHandle& kernel, const splitkv_args& args, int64_t capacity) {
  if (capacity < 0) return;
  if (args.kv_len == nullptr) return check_length(args.kv_len_host, capacity, "kv_len");
  if (kernel.facts.cuda) return;
  for (int64_t row = 0; row < args.batch; ++row) {
    const int64_t length = args.kv_len_is_int64 != 0
                               ? static_cast<const int64_t*>(args.kv_len)[row]
                               : static_cast<const int32_t*>(args.kv_len)[row];
    check_length(length, capacity, "kv_len[" + std::to_string(row) + "]");
  }
}

splitkv_args read_args(const KernelHandle& kernel, const BindingHandle& binding,
                       const splitkv_dl_step& step, const nb::dict& numbers) {
  splitkv_args args = SPLITKV_INIT(splitkv_args);
  args.kv_len_host = small_number(numbers, "kv_len");
  args.pos0 = number(numbers, "pos0");
  args.pos_step = number(numbers, "pos_step");
  checked([&](splitkv_message* message) {
    return splitkv_args_from_dlpack(kernel.kernel.get(), &step, &args, message);
  });
  if (!kernel.facts.paged && args.batch > binding.blocks) {
    refuse("q has a batch of " + std::to_string(args.batch) + ", but k holds " +
           std::to_string(binding.blocks) + " rows; at most these would fit");
  }
  const int64_t capacity = capacity_of(kernel, binding, step);
  args.page_count = number(numbers, "page_count", kernel.facts.paged ? binding.blocks : 0);
  args.kv_capacity = number(numbers, "kv_capacity", std::max<int64_t>(capacity, 0));
  check_lengths(kernel, args, capacity);
  return args;
}

void launch(const KernelHandle& kernel, const BindingHandle& binding, splitkv_args& args,
            const Work* work, uintptr_t stream) {
  if (work != nullptr) {
    args.scratch = work->scratch;
    args.scratch_bytes = work->scratch_bytes;
    args.state = work->state;
    args.state_bytes = work->state_bytes;
  }
  checked_released([&](splitkv_message* message) {
    return splitkv_run(kernel.kernel.get(), &binding.binding, &args,
                       reinterpret_cast<void*>(stream), message);
  });
}

// A work buffer of the caller's serves one run at a time.
class Claim {
 public:
  explicit Claim(Work& work) : work_(work) {
    if (work_.busy.exchange(true)) {
      refuse("work is in use by another run; one for each thread would fit");
    }
  }
  ~Claim() { work_.busy = false; }
  Claim(const Claim&) = delete;
  Claim& operator=(const Claim&) = delete;

 private:
  Work& work_;
};

void run(KernelHandle& kernel, const BindingHandle& binding, const nb::dict& tensors,
         const nb::dict& numbers, Work* work, uintptr_t stream) {
  splitkv_dl_step step = SPLITKV_INIT(splitkv_dl_step);
  const std::vector<Tensor> kept =
      read_tensors(tensors, kStepFields, Consumer{kernel.facts.cuda, stream}, step);
  splitkv_args args = read_args(kernel, binding, step, numbers);
  if (work != nullptr) {
    const Claim claim(*work);
    launch(kernel, binding, args, work, stream);
  } else if (kernel.facts.cuda) {
    launch(kernel, binding, args, nullptr, stream);
  } else {
    // After a failed run the state is no longer zero: then the buffer is not given back.
    std::unique_ptr<Work> own_work = kernel.take_work(args.batch);
    launch(kernel, binding, args, own_work.get(), stream);
    kernel.give_back(std::move(own_work));
  }
}

}  // namespace

void add_run(nb::class_<KernelHandle>& kernel) {
  kernel.def("run", &run, nb::arg("binding"), nb::arg("tensors"), nb::arg("numbers"),
             nb::arg("work").none(), nb::arg("stream"));
}

}  // namespace splitkv::python
