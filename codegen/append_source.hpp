// The KV writer: source of a kernel that writes a step's new keys and values into the cache, in the
// form that compiler/append.hpp says, for any number of tokens and any strides.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codegen/kernel_source.hpp"
#include "codegen/launch_args.hpp"
#include "compiler/append.hpp"
#include "compiler/target.hpp"

namespace splitkv {

// The one argument of the kernel: by value on CUDA, by pointer on the CPU. Strides in elements of
// their tensor. What a call does not use is null or 0. templates/append.cuh declares the same
// struct.
struct AppendArgs {
  const void* k_new = nullptr;  // [tokens, kv_heads, dim]
  const void* v_new = nullptr;
  void* k = nullptr;  // the cache
  void* v = nullptr;
  float* k_scale = nullptr;  // tensor, head: read; token: written
  float* v_scale = nullptr;
  const int64_t* slots = nullptr;  // places=slots: [tokens], of K, and of V unless v_slots is given
  const int64_t* v_slots = nullptr;  // separate tables
  // places=rows, as in LaunchArgs: lengths after the append, the rows' tokens, their pages.
  const void* kv_len = nullptr;
  const int32_t* q_offset = nullptr;
  const int32_t* page_table = nullptr;
  const int64_t* page_offset = nullptr;
  const int32_t* v_page_table = nullptr;
  const int64_t* v_page_offset = nullptr;
  const int32_t* token_count = nullptr;  // [1]: tokens from it on are not looked at; null: all
  ErrorRecord* errors = nullptr;         // checked

  int64_t k_new_stride_token = 0;
  int64_t k_new_stride_head = 0;
  int64_t v_new_stride_token = 0;
  int64_t v_new_stride_head = 0;
  int64_t k_stride_block = 0;  // block: a batch row, or a page when paged
  int64_t k_stride_head = 0;
  int64_t k_stride_token = 0;
  int64_t v_stride_block = 0;
  int64_t v_stride_head = 0;
  int64_t v_stride_token = 0;
  int64_t k_scale_stride_block = 0;
  int64_t k_scale_stride_head = 0;
  int64_t k_scale_stride_token = 0;
  int64_t v_scale_stride_block = 0;
  int64_t v_scale_stride_head = 0;
  int64_t v_scale_stride_token = 0;
  int64_t page_table_stride = 0;
  int64_t v_page_table_stride = 0;
  int64_t tokens = 0;        // rows of k_new and v_new
  int64_t slots_a_row = 0;   // places=slots, contiguous: slots of a batch row
  int64_t slot_count = 0;    // checked: slots there are
  int64_t batch = 0;         // places=rows
  int64_t tokens_a_row = 0;  // places=rows without q_offset
  int64_t page_count = 0;    // checked: pages there are
  int64_t kv_capacity = 0;   // checked: keys a row can hold

  int32_t kv_len_bytes = 0;  // 4 or 8
  int32_t kv_len_host = 0;   // every row's length where kv_len is null
};

static_assert(sizeof(AppendArgs) == 42 * 8);

// Beside those of FaultCode: slot `value` of token `row` is outside [0, slot_count). `slot` of the
// record is 0 for K's, 1 for V's own.
inline constexpr FaultCode kBadSlot = FaultCode(5);

// The kernel's name is source.split_name; reduce_name is empty. CUDA: one warp a row of the cache
// (token, kv head, K or V), kAppendWarps warps a block, grid.x = append_blocks. CPU: void(const
// AppendArgs*, int64_t first_token, int64_t end_token).
inline constexpr int kAppendWarps = 4;
KernelSource emit_append(const Append& append, const Target& target);

// Of the CUDA grid.
int64_t append_blocks(const Append& append, int64_t tokens);

}  // namespace splitkv
