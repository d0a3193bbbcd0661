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
// and statistics [cluster][rows]. It lies where the block's loop keeps nothing.
template <Config C>
struct ClusterRows {
  using Vector = RowVector<C>;
  static constexpr int slice = ceil_div(Vector::count, C.cluster);  // vectors of a block
  static constexpr int o_floats = C.cluster * slice * Vector::width;
  static constexpr int bytes =
      C.reduce == Reduce::cluster ? 4 * o_floats + 8 * C.cluster * C.rows : 0;

  float* o;
  Statistics* statistics;

  __device__ explicit ClusterRows(float* shared)
      : o(shared), statistics(reinterpret_cast<Statistics*>(shared + o_floats)) {}

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
    const u32 to = shared_of(to_rank, statistics + own_rank * C.rows + row);
    asm volatile("st.shared::cluster.v2.f32 [%0], {%1, %2};" ::"r"(to), "f"(s.m), "f"(s.l)
                 : "memory");
  }

  // What block `rank` gave.
  __device__ Statistics statistics_of(u32 rank, int row) const {
    return statistics[rank * C.rows + row];
  }
  __device__ float4 vector_of(u32 rank, u32 index_in_slice) const {
    return load_vector<C>(o + (rank * slice + index_in_slice) * Vector::width);
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

// The union of `count` partials' statistics, and one vector of it: what holds for a row's partials
// wherever they lie. `statistics(i)` and `vector(i)` bring partial i; they are joined in order.
template <Config C, int AtOnce, class StatisticsOf>
__device__ inline Statistics join_all(i32 count, const StatisticsOf& statistics) {
  Statistics all = empty_statistics();
#pragma unroll 1
  for (i32 first = 0; first < count; first += AtOnce) {
    Statistics own[AtOnce];
#pragma unroll
    for (i32 i = 0; i < AtOnce; ++i) {
      own[i] = first + i < count ? statistics(first + i) : empty_statistics();
    }
    float top = all.m;
#pragma unroll
    for (const Statistics& s : own) top = fmaxf(top, s.m);
    all.l *= weight_of(all.m, top);
    all.m = top;
#pragma unroll
    for (const Statistics& s : own) all.l = fmaf(weight_of(s.m, top), s.l, all.l);
  }
  return all;
}

template <Config C, int AtOnce, class StatisticsOf, class VectorOf>
__device__ inline float4 join_vectors(i32 count, const Statistics& all,
                                      const StatisticsOf& statistics, const VectorOf& vector) {
  // -0 is neutral in addition: with one partial that is not empty, o keeps its bits.
  const float start = all.l == 0.0f ? 0.0f : -0.0f;
  const float unit = reciprocal(all.l);
  float4 sum = {start, start, start, start};
#pragma unroll 1
  for (i32 first = 0; first < count; first += AtOnce) {
    float4 values[AtOnce];
    Statistics own[AtOnce];
#pragma unroll
    for (i32 i = 0; i < AtOnce; ++i) {
      const i32 part = smaller(first + i, count - 1);
      values[i] = vector(part);
      own[i] = first + i < count ? statistics(part) : empty_statistics();
    }
#pragma unroll
    for (i32 i = 0; i < AtOnce; ++i) {
      const float weight = own[i].l == 0.0f ? 0.0f : weight_of(own[i].m, all.m) * own[i].l / all.l;
      const Passing passing(weight);
      passing.add_vector<C>(sum, values[i]);
    }
  }
  return sum;
}

// By all blocks of a cluster, after each got its slice of all.
template <Config C, class Score>
__device__ inline void reduce_cluster(const LaunchArgs& args, const Piece& piece,
                                      const ClusterRows<C>& joined, u32* flag) {
  using Rows = ClusterRows<C>;
  const i32 rank = blockIdx.x % C.cluster;
  const i32 clusters = ceil_div(piece.pieces, C.cluster);
  const i32 number = u32(blockIdx.x) % u32(args.splits) / C.cluster;  // of the cluster
  const i64 first_slot = i64(piece.sequence) * (args.splits / C.cluster);
  const int end = smaller((rank + 1) * Rows::slice, RowVector<C>::count);
  // Statistics [slot][block][rows]: each slice has its own, so that blocks of one number need no
  // word of others.
  const auto statistics_at = [&](i32 cluster, int row) {
    return ((first_slot + cluster) * C.cluster + rank) * C.rows + row;
  };
  const auto output_at = [&](i32 cluster, const RowVector<C>& at) {
    return ((first_slot + cluster) * C.rows + at.row) * C.dim_v + at.dim;
  };
  // `o` and `all` are of all the row's keys and its sink.
  const auto finish = [&](const QueryRow& row, const RowVector<C>& at, const Statistics& all,
                          const float4& o) {
    if (!row.exists) return;
    store_finished<C>(args, finished_row<C>(args, piece.row, piece.batch_row, row), at.dim, o, all);
  };
  const auto row_of = [&](const RowVector<C>& at) {
    return query_row<C>(piece.row, piece.kv_head, piece.row_block, at.row);
  };

#pragma unroll 1
  for (int i = rank * Rows::slice + threadIdx.x; i < end; i += 32 * C.warps) {
    const RowVector<C> at(i);
    const auto statistics = [&](i32 block) { return joined.statistics_of(block, at.row); };
    const auto vector = [&](i32 block) { return joined.vector_of(block, i - rank * Rows::slice); };
    const QueryRow row = row_of(at);
    Statistics all = join_all<C, 8>(C.cluster, statistics);
    if (clusters == 1) all = with_sink<C>(args, all, row.q_head);
    const float4 o = join_vectors<C, 8>(C.cluster, all, statistics, vector);
    if (clusters == 1) {
      finish(row, at, all, o);
    } else {
      store_partial<C>(args, output_at(number, at), o);
      if (at.dim == 0 || i == rank * Rows::slice) {
        store_statistics<C.merge>(args.partials, statistics_at(number, at.row), all);
      }
    }
  }
  if (clusters > 1 &&
      arrive_last(args.arrivals + piece.sequence * C.cluster + rank, clusters, flag)) {
#pragma unroll 1
    for (int i = rank * Rows::slice + threadIdx.x; i < end; i += 32 * C.warps) {
      const RowVector<C> at(i);
      const auto statistics = [&](i32 cluster) {
        return load_statistics<C>(args, statistics_at(cluster, at.row));
      };
      const auto vector = [&](i32 cluster) {
        return load_partial<C>(args, output_at(cluster, at));
      };
      const QueryRow row = row_of(at);
      const Statistics all = with_sink<C>(args, join_all<C, 8>(clusters, statistics), row.q_head);
      finish(row, at, all, join_vectors<C, 8>(clusters, all, statistics, vector));
    }
  }
}

}  // namespace splitkv
