// Config: every constant that specialises a kernel, as one aggregate that the generator prints and
// the templates take as a template argument.
#pragma once

namespace splitkv {

enum class DType { fp32, fp16, bf16 };
enum class Partition { fixed, flat, strided };
enum class Reduce { kernel, last_block };
enum class Merge { mlo, lse };  // form of exchanged partials
enum class LseOutput { none, natural, base2 };

struct Config {
  DType q_dtype;
  DType k_dtype;
  DType v_dtype;
  DType out_dtype;
  int kv_heads;
  int group_size;  // query heads of one kv head
  int query_len;
  int dim_qk;
  int dim_v;
  int page_size;  // tokens a page; 0: contiguous
  LseOutput lse;
  Merge merge;
  int tile_kv;
  int rows;        // query rows a block holds
  int row_blocks;  // blocks of rows that make a group
  int warps;
  int unroll;    // keys a lane group has in flight
  int lanes;     // lanes of a lane group; together they hold one key
  int vector_k;  // elements one load of K brings
  int vector_v;
  int slice_qk;  // elements of dim_qk that a lane holds, in vectors of vector_k
  int slice_v;
  Partition partition;
  Reduce reduce;
};

__host__ __device__ constexpr int size_bytes(DType type) { return type == DType::fp32 ? 4 : 2; }

// Statistics of one partial row: m and l, or S.
__host__ __device__ constexpr int statistics(Merge merge) { return merge == Merge::mlo ? 2 : 1; }

// Query rows of one kv head.
__host__ __device__ constexpr int head_rows(const Config& c) { return c.group_size * c.query_len; }

__host__ __device__ constexpr int sequences_per_row(const Config& c) {
  return c.kv_heads * c.row_blocks;
}

}  // namespace splitkv
