// The mma split kernel: tensor cores, sm_80 and up. K is the 16-row operand and packed query rows
// are panels of 8 columns: S^T = K q^T, then O^T += V^T P^T, so that a group of up to 8 query rows
// costs what one costs.
//
// Every warp is a stream of its own, or row_warps of them are one and divide the block's rows: a
// stream takes steps of 16 keys of the block's tiles through a ring of stages (kv_stage.cuh), its
// warps keep running rows for their panels, and streams meet once, at the end of the piece. With g
// = lane / 4 and t = lane % 4 a lane holds, of every panel, columns 2 t and 2 t + 1: the scores of
// keys g and g + 8 of a step, the rows' maxima (equal in all lanes of a t), its own keys' share of
// their sums, and dims g and g + 8 of every 16 of their accumulators.
#pragma once

#include "block_rows.cuh"
#include "kv_stage.cuh"
#include "query_stage.cuh"
#include "score_math.cuh"

namespace splitkv {

template <const Config& C>
struct Mma {
  using Shape = MmaShape<C>;
  static constexpr int panels = Shape::panels;
  static constexpr int k_steps = Shape::dim_qk / 16;
  static constexpr int v_tiles = Shape::dim_v / 16;

  // The first of the block's rows that this warp holds.
  static __device__ int first_row() {
    return C.row_warps == 1 ? 0 : threadIdx.x / 32 % C.row_warps * (8 * panels);
  }

  // Weights are rounded to 16 bits for the product with V. Over many dims the errors average out;
  // of few, whose sums may nearly cancel, and where V's scales are rounded with the weights, what
  // the rounding left is multiplied too.
  static constexpr int weight_parts = C.dim_v < 64 || has_key_scale(C.v_scale) ? 2 : 1;
  // Query operands stay in registers where they are few.
  static constexpr bool holds_q = panels * k_steps <= 16;

  u32 q[holds_q ? panels : 1][holds_q ? k_steps : 1][2];
  float acc[panels][v_tiles][4];
  float m[panels][2];
  float l[panels][2];

  __device__ void clear() {
#pragma unroll
    for (int p = 0; p < panels; ++p) {
#pragma unroll
      for (auto& tile : acc[p]) {
#pragma unroll
        for (float& a : tile) a = 0.0f;
      }
      m[p][0] = m[p][1] = negative_infinity();
      l[p][0] = l[p][1] = 0.0f;
    }
  }
};

// S^T of one step: scores[panel][e] of key g + 8 (e / 2) and column 2 t + e % 2, not yet scaled.
template <const Config& C, class Rows>
__device__ inline void multiply_keys(const Mma<C>& state, u32 shared_q, u32 rows, int lane,
                                     float (&scores)[Mma<C>::panels][4]) {
  using M = Mma<C>;
#pragma unroll
  for (int p = 0; p < M::panels; ++p) {
#pragma unroll
    for (float& s : scores[p]) s = 0.0f;
  }
  // One panel's products of long rows would wait for each other: two sums take them in turn.
  constexpr bool two_sums = M::panels == 1 && !M::holds_q;
  float odd[4] = {0.0f, 0.0f, 0.0f, 0.0f};
  const Rows row(rows, lane % 16, lane / 16);
#pragma unroll(M::holds_q ? M::k_steps : 4)
  for (int x = 0; x < M::k_steps; ++x) {
    u32 keys[4];
    load_matrices(keys, row(x));
#pragma unroll
    for (int p = 0; p < M::panels; ++p) {
      if constexpr (M::holds_q) {
        multiply_add<M::Shape::type_k>(scores[p], keys, state.q[p][x]);
      } else {
        u32 query[2];
        load_query_operand<C>(query, shared_q, p, x, lane);
        multiply_add<M::Shape::type_k>(two_sums && x % 2 != 0 ? odd : scores[p], keys, query);
      }
    }
  }
  if constexpr (two_sums) {
#pragma unroll
    for (int e = 0; e < 4; ++e) scores[0][e] += odd[e];
  }
}

// O^T += V^T P^T for the step's 16 keys; weights[panel][e] lie as the scores did.
template <const Config& C, class Rows>
__device__ inline void multiply_values(Mma<C>& state, u32 rows, int lane,
                                       const float (&weights)[Mma<C>::panels][4]) {
  using M = Mma<C>;
  constexpr DType T = M::Shape::type_v;
  u32 operand[M::weight_parts][M::panels][2];
#pragma unroll
  for (int p = 0; p < M::panels; ++p) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float low = weights[p][2 * half];
      const float high = weights[p][2 * half + 1];
      const u32 word = pack_two<T>(low, high);
      operand[0][p][half] = transpose(word);
      if constexpr (M::weight_parts == 2) {
        const u32 rest =
            pack_two<T>(low - from_bits<T>(word & 0xffff), high - from_bits<T>(word >> 16));
        operand[1][p][half] = transpose(rest);
      }
    }
  }
  const Rows row(rows, lane % 8 + lane / 16 * 8, lane / 8 % 2);
#pragma unroll
  for (int x = 0; x < M::v_tiles; ++x) {
    u32 values[4];
    load_transposed(values, row(x));
#pragma unroll
    for (int p = 0; p < M::panels; ++p) {
#pragma unroll
      for (int part = 0; part < M::weight_parts; ++part) {
        multiply_add<T>(state.acc[p][x], values, operand[part][p]);
      }
    }
  }
}

// Log2 scores from products, -inf where a key is masked. `k_scale` holds those of keys g and g + 8.
template <const Config& C, class Score>
__device__ inline void score_step(const LaunchArgs& args, const Piece& piece,
                                  const KvStages<C>& stages, i32 step_key,
                                  const float (&k_scale)[2], float (&scores)[Mma<C>::panels][4]) {
  const int g = stages.lane / 4;
  const int t = stages.lane % 4;
#pragma unroll
  for (int p = 0; p < Mma<C>::panels; ++p) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const i32 key = step_key + g + e / 2 * 8;
      Coordinates at = {};
      if constexpr (Score::asks_place) {
        const int r = smaller(Mma<C>::first_row() + p * 8 + 2 * t + e % 2, C.rows - 1);
        const QueryRow row = query_row<C>(piece.row, piece.kv_head, piece.row_block, r);
        at = coordinates_of<C>(args, piece.row, piece.batch_row, row, key);
      }
      bool counts = key >= stages.first_key && key < stages.end_key;
      if constexpr (C.checked && C.page_size > 0) {
        counts = counts && stages.walk.place(args, key).readable;
      }
      scores[p][e] = counts && Score::visible(at, args)
                         ? Score::log2_score(scores[p][e] * k_scale[e / 2], at, args)
                         : negative_infinity();
    }
  }
}

// Moves every row to the maximum the step brings. One branch for all rows: once the maxima have
// settled, most steps leave all of them as they are.
template <const Config& C>
__device__ inline void raise_maxima(Mma<C>& state, const float (&scores)[Mma<C>::panels][4]) {
  using M = Mma<C>;
  float top[M::panels][2];
  bool raised = false;
#pragma unroll
  for (int p = 0; p < M::panels; ++p) {
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      float most = fmaxf(scores[p][c], scores[p][c + 2]);
#pragma unroll
      for (int offset = 4; offset < 32; offset *= 2) {
        most = fmaxf(most, __shfl_xor_sync(all_lanes, most, offset));
      }
      top[p][c] = fmaxf(most, state.m[p][c]);
      raised = raised || top[p][c] != state.m[p][c];
    }
  }
  if (!__any_sync(all_lanes, raised)) return;
#pragma unroll
  for (int p = 0; p < M::panels; ++p) {
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const float factor = weight_of(state.m[p][c], top[p][c]);
      state.m[p][c] = top[p][c];
      state.l[p][c] *= factor;
#pragma unroll
      for (auto& tile : state.acc[p]) {
        tile[c] *= factor;
        tile[c + 2] *= factor;
      }
    }
  }
}

// Scores become weights; a row without keys so far weighs with 0, never with NaN.
template <const Config& C>
__device__ inline void weigh(Mma<C>& state, float (&scores)[Mma<C>::panels][4]) {
#pragma unroll
  for (int p = 0; p < Mma<C>::panels; ++p) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      scores[p][e] = exp2(scores[p][e] - finite_top(state.m[p][e % 2]));
      state.l[p][e % 2] += scores[p][e];
    }
  }
}

// The step's keys, which lie in their stage.
template <const Config& C, class Score>
__device__ inline void add_step(Mma<C>& state, const LaunchArgs& args, const Piece& piece,
                                const KvStages<C>& stages, u32 stage, i32 step_key, u32 shared_q,
                                float shared_k_scale) {
  using Shape = MmaShape<C>;
  const int g = stages.lane / 4;
  u32 rows = stage;
  if constexpr (!Shape::wide_k) {
    stages.template widen<C.k_dtype, Shape::type_k, C.dim_qk, typename Shape::KRows>(rows);
    rows = stages.work();
  }
  float scores[Mma<C>::panels][4];
  using KRows =
      typename Either<Shape::wide_k, typename Shape::KRows, typename Shape::WorkRows>::Type;
  multiply_keys<C, KRows>(state, shared_q, rows, stages.lane, scores);
  float k_scale[2] = {shared_k_scale, shared_k_scale};
  if constexpr (has_key_scale(C.k_scale)) {
    k_scale[0] = load_shared_float(stages.scales(stage) + 4 * g);
    k_scale[1] = load_shared_float(stages.scales(stage) + 4 * (g + 8));
  }
  score_step<C, Score>(args, piece, stages, step_key, k_scale, scores);
  raise_maxima<C>(state, scores);
  weigh<C>(state, scores);
  if constexpr (has_key_scale(C.v_scale)) {
    const u32 at = stages.scales(stage) + (C.v_in_k ? 0 : 4 * step_keys) + 4 * g;
    const float v_scale[2] = {load_shared_float(at), load_shared_float(at + 32)};
#pragma unroll
    for (int p = 0; p < Mma<C>::panels; ++p) {
#pragma unroll
      for (int e = 0; e < 4; ++e) scores[p][e] *= v_scale[e / 2];
    }
  }
  rows = stages.v_rows(stage);
  if constexpr (Shape::v_is_widened_k) {
    rows = stages.work();
  } else if constexpr (!Shape::wide_v) {
    sync_stream<C>();  // the work area's keys have been read
    stages.template widen<C.v_dtype, Shape::type_v, C.dim_v, typename Shape::VRows>(rows);
    rows = stages.work();
  }
  using VRows =
      typename Either<Shape::wide_v, typename Shape::VRows, typename Shape::WorkRows>::Type;
  multiply_values<C, VRows>(state, rows, stages.lane, scores);
}

// Query operands that stay in registers: those of two steps at once.
template <const Config& C>
__device__ inline void load_queries(Mma<C>& state, u32 shared_q, int lane) {
  using M = Mma<C>;
  if constexpr (M::holds_q) {
#pragma unroll
    for (int p = 0; p < M::panels; ++p) {
      const TurnedRow<M::Shape::pitch_q> row(shared_q, p * 8 + lane % 8, lane / 8);
#pragma unroll
      for (int x = 0; x + 1 < M::k_steps; x += 2) {
        u32 words[4];
        load_matrices(words, row(x));
        state.q[p][x][0] = words[0];
        state.q[p][x][1] = words[1];
        state.q[p][x + 1][0] = words[2];
        state.q[p][x + 1][1] = words[3];
      }
      if constexpr (M::k_steps % 2 != 0) {
        constexpr int last = M::k_steps - 1;
        load_query_operand<C>(state.q[p][last], shared_q, p, last, lane);
      }
    }
  }
}

// A stream: while one step is added, those after it are on their way, and the rows of the
// one beyond them are looked up. It begins by starting all its stages.
template <const Config& C, class Score>
__device__ inline void add_steps(Mma<C>& state, const LaunchArgs& args, const Piece& piece,
                                 u32 shared_q, u32 shared_barriers) {
  using Pages = typename KvWalk<C>::Pages;
  const QueryStage<C> queries(args, piece, shared_q);
  const StreamSteps<C> steps(piece, threadIdx.x / MmaShape<C>::lanes);
  const u32 warp_q = shared_q + Mma<C>::first_row() * MmaShape<C>::pitch_q;
  const KvStages<C> stages(args, piece, shared_q, shared_barriers, threadIdx.x % 32);
  const float k_scale = head_scale<C.k_scale>(args.k_scale, piece.kv_head);
  stages.start_barriers();
  stages.clear_padding();
  PagesAhead<C> pages_ahead(stages, steps);
  Pages pages = {0, 0};  // of the step that is started next
  StepRows rows = {};
  Stage stage =
      stages.last_stage();  // of `step` and, once that is added, of the one `stages` ahead
#pragma unroll 1
  for (i32 step = -C.stages - 1; step < steps.count; ++step) {
    const i32 ahead = step + C.stages;
    const i32 step_key = steps.first_key(step);
    if (!MmaShape<C>::by_tensor || step >= 0) stages.wait(stage, step_key);
    if (step >= 0 && !stages.is_outside(step_key)) {
      add_step<C, Score>(state, args, piece, stages, stage.rows, step_key, warp_q, k_scale);
    }
    sync_stream<C>();  // all have read the stage that is filled next
    if (ahead >= 0 && ahead < steps.count) {
      stages.start(stage, steps.first_key(ahead), rows, pages);
    } else {
      stages.start_nothing();
    }
    pages = pages_ahead.of(ahead + 1);
    rows = stages.look_up(steps.first_key(ahead + 1), pages);
    stage = stages.next_stage(stage);
    if (step == -1) {
      queries.store(shared_q);
      load_queries<C>(state, warp_q, stages.lane);
    }
  }
  wait_copies<0>();
  stages.end_barriers();
}

template <const Config& C>
__device__ inline void store_warp_rows(const Mma<C>& state, const BlockRows<C>& rows, int stream,
                                       int lane) {
  using M = Mma<C>;
  const int g = lane / 4;
  const int t = lane % 4;
#pragma unroll
  for (int p = 0; p < M::panels; ++p) {
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      float sum = state.l[p][c];
#pragma unroll
      for (int offset = 4; offset < 32; offset *= 2) {
        sum += __shfl_xor_sync(all_lanes, sum, offset);
      }
      const int r = M::first_row() + p * 8 + 2 * t + c;
      if (C.rows != M::Shape::block_rows && r >= C.rows) continue;
      if (g == 0) rows.statistics[stream * C.rows + r] = {state.m[p][c], sum};
      float* acc = rows.row(stream, r);
#pragma unroll
      for (int x = 0; x < M::v_tiles; ++x) {
        const int dim = x * 16 + g;
        if (C.dim_v % 16 == 0 || dim < C.dim_v) acc[dim] = state.acc[p][x][c];
        if (C.dim_v % 16 == 0 || dim + 8 < C.dim_v) {
          acc[dim + 8] = state.acc[p][x][c + 2];
        }
      }
    }
  }
}

// Shared memory of a block: queries and stages, then, in the same place, the warps' rows; what the
// blocks of a cluster give each other; the barriers of the stages.
template <const Config& C>
struct MmaMemory {
  static constexpr int own_bytes = larger(MmaShape<C>::staging_bytes, BlockRows<C>::bytes);
  static constexpr int barriers = own_bytes + ceil_div(ClusterRows<C>::bytes, 8) * 8;
  static constexpr int bytes = barriers + MmaShape<C>::barrier_bytes;
};

// Entry: grid and shared memory as codegen/launch_shape.hpp says.
template <const Config& C, class Score>
__device__ inline void split_mma(const LaunchArgs& args, float* shared) {
  constexpr bool by_tensor = MmaShape<C>::by_tensor;
  if constexpr (by_tensor) {
    if (threadIdx.x == 0) prefetch(args.k_map);
    if (threadIdx.x == 32 && !C.v_in_k) prefetch(args.v_map);
  }
  for_each_piece<C, Score>(args, [&](const Piece& piece) {
    using M = Mma<C>;
    const int lane = threadIdx.x % 32;
    const u32 shared_q = shared_address(shared);
    const BlockRows<C> rows(shared, MmaMemory<C>::own_bytes,
                            shared_v_scale<C>(args, piece.kv_head));
    if constexpr (by_tensor && C.partition == Partition::flat) {
      order_before_copies();  // the rows of the piece before
      __syncthreads();
    }
    {
      M state;
      state.clear();
      add_steps<C, Score>(state, args, piece, shared_q, shared_q + MmaMemory<C>::barriers);
      __syncthreads();  // queries and stages make room for the warps' rows
      store_warp_rows(state, rows, threadIdx.x / M::Shape::lanes, lane);
    }
    finish_piece<C, Score>(args, piece, rows);
  });
}

}  // namespace splitkv
