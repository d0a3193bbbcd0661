// The blocks of a cluster hold neighbouring pieces of one sequence and join them through each
// other's shared memory, every block a slice of the rows' outputs. Where a sequence has several
// clusters, they exchange one partial each, and the last block to arrive at a slice joins that
// slice of all of them. sm_90 and up.
#pragma once

#include "arrive.cuh"
#include "finish.cuh"
#include "partition.cuh"
#include "sum_partials.cuh"

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

  // Those of a row, to all.
  __device__ void give_statistics(u32 own_rank, int row, const Statistics& s) const {
    const float* own = sums + (own_rank * C.rows + row) * statistics(C.merge);
    const float sum = C.merge == Merge::mlo ? 0.0f : log2_sum(s);
#pragma unroll 1
    for (u32 rank = 0; rank < C.cluster; ++rank) {
      const u32 to = shared_of(rank, own);
      if constexpr (C.merge == Merge::mlo) {
        asm volatile("st.shared::cluster.v2.f32 [%0], {%1, %2};" ::"r"(to), "f"(s.m), "f"(s.l)
                     : "memory");
      } else {
        asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(to), "f"(sum) : "memory");
      }
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

// Slices of several partials, in shared or global memory: element e of part i lies at
// o[i * o_stride + e], statistics of a row likewise.
struct Parts {
  const float* o;
  const float* sums;
  i64 o_stride;     // elements
  i64 sums_stride;  // floats
  i32 count;
  bool is_shared;  // o is fp32 then, else of partial_dtype
};

// What a warp knows of one row of them, a lane one vector (sum_partials).
template <const Config& C>
struct PartsRow {
  static constexpr int vectors = 1;
  static constexpr bool fits_a_warp = true;

  const Parts& parts;
  int row;
  i64 element;

  __device__ i32 count() const { return parts.count; }

  __device__ Statistics statistics_of(i32 part) const {
    if (part >= parts.count) return empty_statistics();
    const float* from = parts.sums + part * parts.sums_stride + row * statistics(C.merge);
    const float m = load_generic(from);
    if constexpr (C.merge == Merge::mlo) return {m, load_generic(from + 1)};
    return {m, m == negative_infinity() ? 0.0f : 1.0f};
  }

  __device__ float4 vector_of(i32 part, int) const {
    const i64 at = part * parts.o_stride + element;
    return C.partial_dtype == DType::fp32 || parts.is_shared ? load_generic_vector<C>(parts.o + at)
                                                             : load_partial_at<C>(parts.o, at);
  }
};

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

  Parts parts = {joined.o,  joined.sums, slice * width, C.rows * statistics(C.merge),
                 C.cluster, true};
  bool is_last = clusters == 1;
  for (;;) {
    for_each_vector<C, 32>(begin, end, [&](const LaneVector& at) {
      const QueryRow row = query_row<C>(piece.row, piece.kv_head, piece.row_block, at.row);
      const i64 in_block = at.row * C.dim_v + at.dim;
      const int own_index = at.is_used ? at.index - begin : 0;
      const PartsRow<C> source = {parts, at.row, parts.is_shared ? own_index * width : in_block};
      float4 o[1];
      const Statistics all = sum_partials<C>(source, o, [&](const Statistics& keys) {
        return is_last ? with_sink<C>(args, keys, row.q_head) : keys;
      });
      if (!at.is_used) return;
      if (!is_last) {
        store_partial<C>(args, own_slot * C.rows * C.dim_v + in_block, o[0]);
        if (at.dim == 0 || at.index == begin) {
          store_statistics<C.merge>(args.partials, sums_row(own_slot) + at.row, all);
        }
      } else if (row.exists) {
        store_finished<C>(args, finished_row<C>(args, piece.row, piece.batch_row, row), at.dim,
                          o[0], all);
      }
    });
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
