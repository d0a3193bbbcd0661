// Everything a run points at, placed on a device, and the API's structs that point there.
#pragma once

#include "compiler/problem.hpp"
#include "compiler/result.hpp"
#include "runtime/splitkv.hpp"
#include "tools/splitkv/device_memory.hpp"
#include "tools/splitkv/inputs.hpp"
#include "tools/splitkv/kv_image.hpp"

namespace splitkv::tool {

// Of a [token rows, q_heads, row] tensor, in elements: a gap behind each row where the step's form
// says padded_rows.
struct RowPlaces {
  int64_t token_rows = 0, heads = 0, row = 0;
  int64_t stride_token = 0, stride_head = 0;

  int64_t elements() const { return token_rows * stride_token; }
  int64_t at(int64_t token_row, int64_t head) const {
    return token_row * stride_token + head * stride_head;
  }
};

RowPlaces row_places(const Problem& problem, const Inputs& inputs, int64_t row);

// Must not outlive its DeviceMemory.
class StepMemory {
 public:
  static Result<StepMemory> place(DeviceMemory& memory, const Problem& problem,
                                  const Inputs& inputs, const KvImage& image,
                                  const splitkv_buffer_sizes& sizes);

  splitkv_args args() const { return args_; }
  splitkv_tensors tensors() const { return tensors_; }
  const Buffer& out() const { return out_; }
  const Buffer& lse() const { return lse_; }
  const Buffer& partial_l() const { return partial_l_; }
  const Buffer& scratch() const { return scratch_; }

 private:
  splitkv_args args_ = sized<splitkv_args>();
  splitkv_tensors tensors_ = sized<splitkv_tensors>();
  std::vector<Buffer> read_;
  Buffer out_, lse_, partial_l_, scratch_, state_;

  friend class Placer;
};

}  // namespace splitkv::tool
