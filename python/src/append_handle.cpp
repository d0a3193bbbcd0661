// splitkv_append with tensors of Python.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>

#include <optional>
#include <string_view>

#include "python/src/errors.hpp"
#include "python/src/fields.hpp"
#include "python/src/handles.hpp"

namespace nb = nanobind;

namespace splitkv::python {
namespace {

constexpr splitkv_dl_dtype kInt32 = {0, 32, 1}, kInt64 = {0, 64, 1};

std::unique_ptr<AppenderHandle> prepare(const KernelHandle& kernel,
                                        const std::optional<std::string>& type,
                                        const std::string& places) {
  auto made = std::make_unique<AppenderHandle>();
  made->log = kernel.log;
  made->device = kernel.device;
  made->facts = kernel.facts;
  const std::string elements = type.value_or(kernel.facts.q_type);
  splitkv_appender* appender = nullptr;
  checked_released(
      [&](splitkv_message* message) {
        return splitkv_prepare_append(kernel.runtime.get(), kernel.device.c_str(),
                                      kernel.problem.c_str(), elements.c_str(), places.c_str(),
                                      &appender, message);
      },
      Message::kLong);
  made->appender = own(appender, splitkv_release_appender);
  made->dtype = elements == "fp32"   ? splitkv_dl_dtype{2, 32, 1}
                : elements == "fp16" ? splitkv_dl_dtype{2, 16, 1}
                                     : splitkv_dl_dtype{4, 16, 1};
  return made;
}

// The tensors of one call, by name; each is looked at when it is asked for.
class AppendTensors {
 public:
  AppendTensors(const AppenderHandle& appender, const nb::dict& given, const Consumer& consumer)
      : device_(appender.device), given_(given), consumer_(consumer) {}

  // NULL where it is not given. The last dimension is dense.
  const Tensor* read(const char* name, const Wanted& wanted) {
    const nb::str key(name);
    if (!given_.contains(key)) return nullptr;
    kept_.push_back(std::make_unique<Tensor>(given_[key], name, false, consumer_));
    const Tensor& tensor = *kept_.back();
    check_tensor(tensor, wanted, device_);
    check_dense_from(tensor, tensor.get()->ndim - 1);
    return &tensor;
  }

  template <class Element>
  const Element* list(const char* name, const Wanted& wanted) {
    const Tensor* tensor = read(name, wanted);
    return tensor == nullptr ? nullptr : static_cast<const Element*>(tensor->data());
  }

 private:
  const std::string& device_;
  const nb::dict& given_;
  const Consumer& consumer_;
  std::vector<std::unique_ptr<Tensor>> kept_;
};

struct Elements {
  const void* data = nullptr;
  int64_t tokens = 0, stride_token = 0, stride_head = 0;
};

// The C API takes two strides of 0 for dense elements; of a broadcast tensor they say that all its
// rows are one, and dense ones would be read past its end.
void check_not_repeated(const Tensor& tensor) {
  if (tensor.stride(0) != 0 || tensor.stride(1) != 0) return;
  if (tensor.size(0) * tensor.size(1) <= 1) return;
  refuse(
      std::string(tensor.field()) + " of the shape " + shape_of(tensor) +
      " has strides of 0 in dimensions 0 and 1 (it is broadcast from one row); a contiguous copy "
      "would fit");
}

// A binding's memory was exported to be read; what an append writes of it must be writable.
void check_writable(const BindingHandle& binding, const Facts& facts) {
  for (const Tensor& tensor : binding.kept) {
    if (!tensor.read_only()) continue;
    const std::string_view field = tensor.field();
    const bool written = field == "k" || field == "v" ||
                         (field == "k_scale" && facts.k_scale_tokens) ||
                         (field == "v_scale" && facts.v_scale_tokens);
    if (!written) continue;
    refuse("binding's " + std::string(field) +
           " is read only, and an append writes it; a binding of a tensor that may be written "
           "would fit");
  }
}

Elements read_new(AppendTensors& tensors, const AppenderHandle& appender, const char* name,
                  int64_t tokens, int64_t dim) {
  const std::string shape =
      "[tokens, " + std::to_string(appender.facts.kv_heads) + ", " + std::to_string(dim) + "]";
  const Tensor* found =
      tensors.read(name, {{appender.dtype}, {tokens, appender.facts.kv_heads, dim}, shape.c_str()});
  if (found == nullptr) return {};
  check_not_repeated(*found);
  return {found->data(), found->size(0), found->stride(0), found->stride(1)};
}

void read_pages(AppendTensors& tensors, splitkv_append_args& args) {
  args.page_offset = tensors.list<int64_t>("page_offset", {{kInt64}, {args.batch}, "[batch]"});
  args.v_page_offset = tensors.list<int64_t>("v_page_offset", {{kInt64}, {args.batch}, "[batch]"});
  const auto table = [&](const char* name, bool flat, int64_t* stride) -> const int32_t* {
    const Wanted ids{{kInt32}, {-1}, "[ids]"}, rows{{kInt32}, {args.batch, -1}, "[batch, pages]"};
    const Tensor* found = tensors.read(name, flat ? ids : rows);
    if (found == nullptr) return nullptr;
    if (!flat) *stride = found->stride(0);
    return static_cast<const int32_t*>(found->data());
  };
  args.page_table = table("page_table", args.page_offset != nullptr, &args.page_table_stride);
  args.v_page_table =
      table("v_page_table", args.v_page_offset != nullptr, &args.v_page_table_stride);
}

void read_rows(AppendTensors& tensors, const nb::dict& numbers, splitkv_append_args& args) {
  args.batch = number(numbers, "batch");
  if (const Tensor* offsets = tensors.read("q_offset", {{kInt32}, {-1}, "[batch + 1]"})) {
    args.q_offset = static_cast<const int32_t*>(offsets->data());
    args.batch = offsets->size(0) - 1;
  }
  const int64_t batch = args.batch > 0 ? args.batch : -1;
  if (const Tensor* lengths = tensors.read("kv_len", {{kInt32, kInt64}, {batch}, "[batch]"})) {
    args.kv_len = lengths->data();
    args.kv_len_is_int64 = lengths->get()->dtype.bits == 64 ? 1 : 0;
    args.batch = lengths->size(0);
  }
  read_pages(tensors, args);
}

void append(const AppenderHandle& appender, const BindingHandle& binding, const nb::dict& given,
            const nb::dict& numbers, uintptr_t stream) {
  check_writable(binding, appender.facts);
  const Consumer consumer{appender.facts.cuda, stream};
  AppendTensors tensors(appender, given, consumer);
  splitkv_append_args args = SPLITKV_INIT(splitkv_append_args);
  const Elements k = read_new(tensors, appender, "k_new", -1, appender.facts.dim_qk);
  const Elements v = read_new(tensors, appender, "v_new", k.tokens, appender.facts.dim_v);
  args.tokens = k.tokens;
  args.k_new = k.data;
  args.k_new_stride_token = k.stride_token;
  args.k_new_stride_head = k.stride_head;
  args.v_new = v.data;
  args.v_new_stride_token = v.stride_token;
  args.v_new_stride_head = v.stride_head;
  const Wanted slots{{kInt64}, {k.tokens}, "[tokens]"};
  args.slots = tensors.list<int64_t>("slots", slots);
  args.v_slots = tensors.list<int64_t>("v_slots", slots);
  args.token_count = tensors.list<int32_t>("token_count", {{kInt32}, {1}, "[1]"});
  args.kv_len_host = small_number(numbers, "kv_len");
  args.slots_a_row = number(numbers, "slots_a_row",
                            args.slots == nullptr || appender.facts.paged ? 0 : binding.tokens);
  args.slot_count = number(numbers, "slot_count");
  args.page_count = number(numbers, "page_count");
  args.kv_capacity = number(numbers, "kv_capacity");
  read_rows(tensors, numbers, args);
  checked_released([&](splitkv_message* message) {
    return splitkv_append(appender.appender.get(), &binding.binding, &args,
                          reinterpret_cast<void*>(stream), message);
  });
}

nb::object poll_fault(const AppenderHandle& appender) {
  splitkv_fault fault = SPLITKV_INIT(splitkv_fault);
  Message message(Message::kShort);
  const splitkv_status status =
      splitkv_poll_append_fault(appender.appender.get(), &fault, message.get());
  if (status == SPLITKV_OK) return nb::none();
  if (fault.code == 0) raise(status, message.text());
  return nb::make_tuple(fault.code, fault.row, fault.slot, fault.value, message.text());
}

}  // namespace

void add_appender(nb::module_& module) {
  module.def("prepare_append", &prepare, nb::arg("kernel"), nb::arg("type").none(),
             nb::arg("places"));
  nb::class_<AppenderHandle>(module, "Appender")
      .def("append", &append, nb::arg("binding"), nb::arg("tensors"), nb::arg("numbers"),
           nb::arg("stream"))
      .def("poll_fault", &poll_fault);
}

}  // namespace splitkv::python
