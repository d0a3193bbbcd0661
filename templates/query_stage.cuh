// The mma family's way of query rows into shared memory, and from there into operands.
#pragma once

#include "kv_stage.cuh"
#include "queries.cuh"

namespace splitkv {

// By the whole block: query rows as 16-bit rows in shared memory, zeros beyond their dim. They are
// asked for before the keys, behind which they would wait, and stored once keys are on their
// way; many of them, more than registers should hold, are stored at once.
template <const Config& C>
struct QueryStage {
  using Shape = MmaShape<C>;
  static constexpr int pairs = Shape::dim_qk / 2;
  static constexpr int rows_a_warp = ceil_div(Shape::block_rows, C.warps);
  static constexpr int pairs_a_lane = ceil_div(pairs, 32);
  static constexpr bool holds = rows_a_warp * pairs_a_lane <= 8;

  u32 held[holds ? rows_a_warp : 1][holds ? pairs_a_lane : 1];

  __device__ QueryStage(const LaunchArgs& args, const Piece& piece, u32 shared) {
    if constexpr (holds) {
#pragma unroll
      for (int i = 0; i < rows_a_warp; ++i) {
        const QueryPairs<C> row = row_at(args, piece, row_of(i));
#pragma unroll
        for (int j = 0; j < pairs_a_lane; ++j) held[i][j] = word(row, pair_of(j));
      }
    } else {
#pragma unroll 1
      for (int i = 0; i < rows_a_warp; ++i) {
        const QueryPairs<C> row = row_at(args, piece, row_of(i));
#pragma unroll smaller(pairs_a_lane, 4)
        for (int j = 0; j < pairs_a_lane; ++j) {
          put(shared, row_of(i), pair_of(j), word(row, pair_of(j)));
        }
      }
    }
  }

  __device__ void store(u32 shared) const {
    if constexpr (holds) {
#pragma unroll
      for (int i = 0; i < rows_a_warp; ++i) {
#pragma unroll
        for (int j = 0; j < pairs_a_lane; ++j) put(shared, row_of(i), pair_of(j), held[i][j]);
      }
    }
    __syncthreads();
  }

 private:
  __device__ static int row_of(int i) { return threadIdx.x / 32 + i * C.warps; }
  __device__ static int pair_of(int j) { return threadIdx.x % 32 + j * 32; }

  // Rows beyond the last of the block repeat it: their scores are no one's.
  __device__ static QueryPairs<C> row_at(const LaunchArgs& args, const Piece& piece, int r) {
    const QueryRow row =
        query_row<C>(piece.row, piece.kv_head, piece.row_block, smaller(r, C.rows - 1));
    return QueryPairs<C>(args, piece.row, piece.batch_row, row);
  }

  __device__ static u32 word(const QueryPairs<C>& row, int pair) {
    return C.dim_qk % 64 == 0 || pair * 2 < C.dim_qk ? row(pair) : 0;
  }

  __device__ static void put(u32 shared, int r, int pair, u32 word) {
    if (r >= Shape::block_rows || pair >= pairs) return;
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(shared + turned<Shape::pitch_q>(r, pair * 4)),
                 "r"(word)
                 : "memory");
  }
};

template <const Config& C>
__device__ inline void load_query_operand(u32 (&words)[2], u32 shared, int panel, int k_step,
                                          int lane) {
  using Shape = MmaShape<C>;
  load_matrices(words,
                TurnedRow<Shape::pitch_q>(shared, panel * 8 + lane % 8, lane / 8 % 2)(k_step));
}

}  // namespace splitkv
