// Config: every constant that specialises a kernel, as one aggregate that the generator prints and
// the templates take as a template argument.
#pragma once

namespace splitkv {

enum class DType { fp32, fp16, bf16, e4m3, e5m2, int8 };
enum class Partition { fixed, flat, strided };
enum class Reduce { kernel, last_block, cluster };
enum class Merge { mlo, lse };      // form of exchanged partials
enum class Loads { copy, tensor };  // mma: the way of K and V into shared memory
enum class LseOutput { none, natural, base2 };
enum class KvScale { none, tensor, head, token, inl };

struct Config {
  DType q_dtype;
  DType k_dtype;
  DType v_dtype;
  DType out_dtype;
  int kv_heads;
  int group_size;  // query heads of one kv head
  int query_len;   // most query tokens of a batch row
  bool ragged;     // rows have their own numbers of query tokens
  int dim_qk;
  int dim_v;
  int dim_rope;   // last elements of q that lie in a tensor of their own
  bool v_in_k;    // V is the first dim_v elements of K's rows
  int page_size;  // tokens a page; 0: contiguous
  bool separate_tables;
  bool strided_positions;
  KvScale k_scale;
  KvScale v_scale;
  bool sink;
  LseOutput lse;     // of the output; of out_partial its base
  bool out_partial;  // the output is one partial a query row, in the form out_form
  Merge out_form;
  bool checked;
  Merge merge;
  int tile_kv;
  int rows;        // query rows a block holds
  int row_blocks;  // blocks of rows that make a group
  int warps;
  int row_warps;  // warps that take the same keys: of mma those that divide the rows, of wgmma all
  int unroll;     // simt: keys a lane group has in flight
  int lanes;      // simt: lanes of a lane group; together they hold one key
  int vector_k;   // simt: elements one load of K brings
  int vector_v;
  int slice_qk;  // simt: elements of dim_qk that a lane holds, in vectors of vector_k
  int slice_v;
  int stages;  // mma: steps of 16 keys that a warp has in flight; wgmma: tiles
  Loads loads;
  int copy_k;  // mma: bytes one copy of K brings
  int copy_v;
  Partition partition;
  Reduce reduce;
  int cluster;          // blocks of a cluster; 1 unless reduce is cluster
  bool pdl;             // launched before what precedes in the stream has ended
  DType partial_dtype;  // of the outputs in exchanged partials
};

__host__ __device__ constexpr int size_bytes(DType type) {
  if (type == DType::fp32) return 4;
  return type == DType::fp16 || type == DType::bf16 ? 2 : 1;
}

// Scores whose values the keys themselves carry.
__host__ __device__ constexpr bool has_key_scale(KvScale scale) {
  return scale == KvScale::token || scale == KvScale::inl;
}

// Statistics of one partial row: m and l, or S.
__host__ __device__ constexpr int statistics(Merge merge) { return merge == Merge::mlo ? 2 : 1; }

// Warps, or groups of row_warps of them, that take keys of their own.
__host__ __device__ constexpr int streams(const Config& c) { return c.warps / c.row_warps; }

// Query rows of one kv head.
__host__ __device__ constexpr int head_rows(const Config& c) { return c.group_size * c.query_len; }

__host__ __device__ constexpr int sequences_per_row(const Config& c) {
  return c.kv_heads * c.row_blocks;
}

}  // namespace splitkv
