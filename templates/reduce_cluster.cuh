// The blocks of a cluster hold neighbouring pieces of one sequence and join them through each
// other's shared memory, every block a slice of the rows' outputs. Where a sequence has several
// clusters, they exchange one partial each, and the last block to arrive at a slice joins that
// slice of all of them. sm_90 and up.
#pragma once

#include "arrive.cuh"
#include "finish.cuh"
#include "partition.cuh"

namespace splitkv {

// Orders what blocks of a cluster do to each other's shared memory. Also: a block may be written to
// once it runs, and may end once no other writes to it.
__device__ inline void arrive_at_cluster() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ inline void wait_for_cluster() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// What a block gets of the rows of all blocks: its slice of o [cluster][slice vectors], normalised,
// and statistics [cluster][rows], as partials in scratch hold them. It lies where the block's loop
// keeps nothing.
template <const Config& C>
struct ClusterRows {
  using Vector = RowVector<C>;
  static constexpr int slice = ceil_div(Vector::count, C.cluster);  // vectors of a block
  static constexpr int o_floats = C.cluster * slice * Vector::width;
  static constexpr int bytes =
      C.reduce == Reduce::cluster ? 4 * (o_floats + statistics(C.merge) * C.cluster * C.rows) : 0;

  float* o;
  float* sums;  // the statistics

  __device__ explicit ClusterRows(float* shared) : o(shared), sums(shared + o_floats) {}

  // From block `own_rank`: its vector `index` to whom it belongs.
  __device__ void give(u32 own_rank, u32 index, const float4& value) const {
    const u32 to = shared_of(index / slice, o + (own_rank * slice + index % slice) * Vector::width);
    if constexpr (Vector::width == 4) {
      asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to), "f"(value.x),
                   "f"(value.y), "f"(value.z), "f"(value.w)
                   : "memory");
    } else {
      asm volatile("st.shared::cluster.v2.f32 [%0], {%1, %2};" ::"r"(to), "f"(value.x), "f"(value.y)
                   : "memory");
    }
  }

  __device__ void give_statistics(u32 own_rank, u32 to_rank, int row, const Statistics& s) const {
    const u32 to = shared_of(to_rank, sums + (own_rank * C.rows + row) * statistics(C.merge));
    if constexpr (C.merge == Merge::mlo) {
      asm volatile("st.shared::cluster.v2.f32 [%0], {%1, %2};" ::"r"(to), "f"(s.m), "f"(s.l)
                   : "memory");
    } else {
      asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(to), "f"(log2_sum(s)) : "memory");
    }
  }

 private:
  __device__ static u32 shared_of(u32 rank, const void* own) {
    u32 at;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
                 : "=r"(at)
                 : "r"(u32(__cvta_generic_to_shared(own))), "r"(rank));
    return at;
  }
};

// One slice of several partials, in shared or global memory: element e of part i lies at
// o[i * o_stride + e], statistics of a row likewise.
template <const Config& C>
struct Parts {
  const float* o;
  const float* sums;
  i64 o_stride;     // elements
  i64 sums_stride;  // floats
  i32 count;
  static constexpr i32 at_once = 8;
  bool is_shared;  // o is fp32 then, else of partial_dtype
};

template <const Config& C>
__device__ inline Statistics statistics_of_part(const Parts<C>& parts, i32 part, int row) {
  if (part >= parts.count) return empty_statistics();
  const float* from = parts.sums + part * parts.sums_stride + row * statistics(C.merge);
  const float m = load_generic(from);
  if constexpr (C.merge == Merge::mlo) return {m, load_generic(from + 1)};
  return {m, m == negative_infinity() ? 0.0f : 1.0f};
}

template <const Config& C>
__device__ inline Statistics join_statistics(const Parts<C>& parts, int row) {
  Statistics all = empty_statistics();
#pragma unroll 1
  for (i32 first = 0; first < parts.count; first += Parts<C>::at_once) {
    Statistics own[Parts<C>::at_once];
    float top = all.m;
#pragma unroll
    for (i32 i = 0; i < Parts<C>::at_once; ++i) own[i] = statistics_of_part(parts, first + i, row);
#pragma unroll
    for (const Statistics& s : own) top = fmaxf(top, s.m);
    all.l *= weight_of(all.m, top);
    all.m = top;
#pragma unroll
    for (const Statistics& s : own) all.l = fmaf(weight_of(s.m, top), s.l, all.l);
  }
  return all;
}

// Parts are added in their order.
template <const Config& C>
__device__ inline float4 join_vectors(const Parts<C>& parts, int row, i64 element,
                                      const Statistics& all) {
  const float start = initial_sum(all);
  const float unit = row_unit(all);
  float4 sum = {start, start, start, start};
#pragma unroll 1
  for (i32 first = 0; first < parts.count; first += Parts<C>::at_once) {
    float4 values[Parts<C>::at_once];
    float shares[Parts<C>::at_once];
#pragma unroll
    for (i32 i = 0; i < Parts<C>::at_once; ++i) {
      // Beyond the last part its own again, with share 0.
      const i64 at = smaller(first + i, parts.count - 1) * parts.o_stride + element;
      values[i] = C.partial_dtype == DType::fp32 || parts.is_shared
                      ? load_generic_vector<C>(parts.o + at)
                      : load_partial_at<C>(parts.o, at);
      shares[i] = share_of(statistics_of_part(parts, first + i, row), all, unit);
    }
#pragma unroll
    for (i32 i = 0; i < Parts<C>::at_once; ++i) add_vector<C>(sum, shares[i], values[i]);
  }
  return sum;
}

// By all blocks of a cluster, after each got its slice of all.
template <const Config& C, class Score>
__device__ inline void reduce_cluster(const LaunchArgs& args, const Piece& piece,
                                      const ClusterRows<C>& joined, u32* flag) {
  constexpr int slice = ClusterRows<C>::slice;
  constexpr int width = RowVector<C>::width;
  const i32 rank = blockIdx.x % C.cluster;
  const i32 clusters = ceil_div(piece.pieces, C.cluster);
  const i64 first_slot = i64(piece.sequence) * (args.splits / C.cluster);
  const i64 own_slot = first_slot + u32(blockIdx.x) % u32(args.splits) / C.cluster;
  const int begin = rank * slice;
  const int end = smaller(begin + slice, RowVector<C>::count);
  // Statistics [slot][block][rows]: each slice has its own, so that blocks of one number need no
  // word of others.
  const auto sums_row = [&](i64 slot) { return (slot * C.cluster + rank) * C.rows; };

  Parts<C> parts = {joined.o,  joined.sums, slice * width, C.rows * statistics(C.merge),
                    C.cluster, true};
  bool is_last = clusters == 1;
  for (;;) {
#pragma unroll 1
    for (int i = begin + threadIdx.x; i < end; i += 32 * C.warps) {
      const RowVector<C> at(i);
      const QueryRow row = query_row<C>(piece.row, piece.kv_head, piece.row_block, at.row);
      const i64 element = parts.is_shared ? (i - begin) * width : at.row * C.dim_v + at.dim;
      Statistics all = join_statistics(parts, at.row);
      if (is_last) all = with_sink<C>(args, all, row.q_head);
      const float4 o = join_vectors(parts, at.row, element, all);
      if (!is_last) {
        store_partial<C>(args, own_slot * C.rows * C.dim_v + at.row * C.dim_v + at.dim, o);
        if (at.dim == 0 || i == begin) {
          store_statistics<C.merge>(args.partials, sums_row(own_slot) + at.row, all);
        }
      } else if (row.exists) {
        store_finished<C>(args, finished_row<C>(args, piece.row, piece.batch_row, row), at.dim, o,
                          all);
      }
    }
    if (is_last ||
        !arrive_last(args.arrivals + piece.sequence * C.cluster + rank, clusters, flag)) {
      return;
    }
    is_last = true;
    const float* outputs = args.partials + args.partial_o_offset;
    parts = {outputs + first_slot * C.rows * C.dim_v / (C.partial_dtype == DType::fp32 ? 1 : 2),
             args.partials + sums_row(first_slot) * statistics(C.merge),
             C.rows * C.dim_v,
             C.cluster * C.rows * statistics(C.merge),
             clusters,
             false};
  }
}

}  // namespace splitkv
