// splitkv_merge with tensors of Python.
#include <nanobind/stl/string.h>

#include "python/src/errors.hpp"
#include "python/src/handles.hpp"

namespace nb = nanobind;

namespace splitkv::python {
namespace {

constexpr splitkv_dl_dtype kFp32 = {2, 32, 1};

// A merge's tensors: partials [parts, ..., dim], statistics without dim; results without parts.
class MergeTensors {
 public:
  MergeTensors(const MergerHandle& merger, const Consumer& consumer)
      : device_(merger.device), consumer_(consumer) {}

  const Tensor& read_o(nb::handle source) {
    const Tensor& o = add(source, "o", false);
    check_device(o, device_);
    if (o.get()->ndim < 2) {
      refuse("o has the shape " + shape_of(o) + "; [parts, ..., dim] would fit");
    }
    for (int32_t i = 0; i < o.get()->ndim; ++i) sizes_.push_back(o.size(i));
    check_tensor(o, {{kFp32}, sizes_, ""}, device_);
    return o;
  }

  // begin, end: which of o's dimensions it has.
  const Tensor& read(nb::handle source, const char* field, bool written, size_t begin, size_t end,
                     const char* shape) {
    const Tensor& tensor = add(source, field, written);
    const std::vector<int64_t> sizes(sizes_.begin() + begin, sizes_.begin() + end);
    std::string wanted = std::string(shape) + " = [";
    for (size_t i = 0; i < sizes.size(); ++i) {
      wanted += (i == 0 ? "" : ", ") + std::to_string(sizes[i]);
    }
    wanted += "]";
    check_tensor(tensor, {{kFp32}, sizes, wanted.c_str()}, device_);
    return tensor;
  }

  size_t dims() const { return sizes_.size(); }
  int64_t size(size_t i) const { return sizes_[i]; }

 private:
  const Tensor& add(nb::handle source, const char* field, bool written) {
    tensors_.push_back(std::make_unique<Tensor>(source, field, written, consumer_));
    return *tensors_.back();
  }

  const std::string& device_;
  const Consumer& consumer_;
  std::vector<int64_t> sizes_;
  std::vector<std::unique_ptr<Tensor>> tensors_;
};

float* floats(const Tensor& tensor) { return static_cast<float*>(tensor.data()); }

// Statistics' strides stand for both: l lies like s.
void check_alike(const Rows& a, int64_t part_a, const Rows& b, int64_t part_b, const char* field,
                 const char* other) {
  if ((a.stride == b.stride || a.count <= 1) && part_a == part_b) return;
  refuse(std::string(field) + " has other strides than " + other + "; the same would fit");
}

void merge(const MergerHandle& merger, nb::handle o, nb::handle s, nb::handle l, nb::handle out,
           nb::handle out_s, nb::handle out_l, uintptr_t stream) {
  const Consumer consumer{merger.device.rfind("cuda", 0) == 0, stream};
  MergeTensors tensors(merger, consumer);
  splitkv_merge_args args = SPLITKV_INIT(splitkv_merge_args);
  const Tensor& o_in = tensors.read_o(o);
  const size_t dims = tensors.dims();
  const int32_t last = int32_t(dims) - 1;
  check_dense_from(o_in, last);
  const Rows rows = collapse(o_in, 1, last);
  args.parts = tensors.size(0);
  args.rows = rows.count;
  args.dim = tensors.size(size_t(last));
  args.o = floats(o_in);
  args.o_stride_part = o_in.stride(0);
  args.o_stride_row = rows.count > 1 ? rows.stride : args.dim;

  const Tensor& s_in = tensors.read(s, "s", false, 0, dims - 1, "[parts, ...]");
  const Rows s_rows = collapse(s_in, 1, last);
  args.s_or_m = floats(s_in);
  args.statistics_stride_part = s_in.stride(0);
  args.statistics_stride_row = rows.count > 1 ? s_rows.stride : 1;
  const Tensor& o_out = tensors.read(out, "out", true, 1, dims, "[..., dim]");
  check_dense_from(o_out, last - 1);
  const Rows out_rows = collapse(o_out, 0, last - 1);
  args.out = floats(o_out);
  args.out_stride_row = rows.count > 1 ? out_rows.stride : args.dim;
  const Tensor& s_out = tensors.read(out_s, "out_s", true, 1, dims - 1, "[...]");
  const Rows s_out_rows = collapse(s_out, 0, last - 1);
  args.out_s_or_m = floats(s_out);
  args.out_statistics_stride_row = rows.count > 1 ? s_out_rows.stride : 1;
  if (merger.has_l) {
    const Tensor& l_in = tensors.read(l, "l", false, 0, dims - 1, "[parts, ...]");
    check_alike(collapse(l_in, 1, last), l_in.stride(0), s_rows, s_in.stride(0), "l", "s");
    args.l = floats(l_in);
    const Tensor& l_out = tensors.read(out_l, "out_l", true, 1, dims - 1, "[...]");
    check_alike(collapse(l_out, 0, last - 1), 0, s_out_rows, 0, "out_l", "out_s");
    args.out_l = floats(l_out);
  }
  checked_released([&](splitkv_message* message) {
    return splitkv_merge(merger.merger.get(), &args, reinterpret_cast<void*>(stream), message);
  });
}

nb::object poll_fault(const MergerHandle& merger) {
  splitkv_fault fault = SPLITKV_INIT(splitkv_fault);
  Message message(Message::kShort);
  const splitkv_status status =
      splitkv_poll_merge_fault(merger.merger.get(), &fault, message.get());
  if (status == SPLITKV_OK) return nb::none();
  if (fault.code == 0) raise(status, message.text());
  return nb::make_tuple(fault.code, fault.row, fault.slot, fault.value, message.text());
}

}  // namespace

void add_merger(nb::module_& module) {
  nb::class_<MergerHandle>(module, "Merger")
      .def("merge", &merge, nb::arg("o"), nb::arg("s"), nb::arg("l").none(), nb::arg("out"),
           nb::arg("out_s"), nb::arg("out_l").none(), nb::arg("stream"))
      .def("poll_fault", &poll_fault);
}

}  // namespace splitkv::python
