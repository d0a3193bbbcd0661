// The mma family's way of K and V into shared memory: each warp keeps a ring of stages of its own,
// a stage holding one step of 16 keys, and fills it with asynchronous copies. Rows are whole
// sectors of 32 bytes, and the 16-byte chunks of a row change places by its number (turn_of), so
// that eight neighbouring rows lie in different banks for every dim. Chunks of one sector stay in
// one sector: a copy whose chunks lie otherwise in shared memory than in global asks L2 for the
// sector twice.
#pragma once

#include "convert.cuh"
#include "kv_walk.cuh"
#include "mma.cuh"
#include "partition.cuh"

namespace splitkv {

constexpr int step_keys = 16;

__host__ __device__ constexpr int whole_sixteens(int dim) { return ceil_div(dim, 16) * 16; }

// Bytes from one row in shared memory to the next.
__host__ __device__ constexpr int pitch_of(int row_bytes) { return ceil_div(row_bytes, 32) * 32; }

// Byte b of row r lies at r * Pitch + (b ^ turn_of<Pitch>(r)). Eight rows at Pitch begin in 1, 2 or
// 4 places among the 8 chunks of all banks; the turn spreads those that begin in one.
template <int Pitch>
__device__ constexpr u32 turn_of(u32 row) {
  static_assert(Pitch % 32 == 0, "rows are whole sectors");
  if constexpr (Pitch % 128 == 0) return row % 8 * 16;
  if constexpr (Pitch % 64 == 0) return row / 2 % 4 * 16;
  return row / 4 % 2 * 16;
}

template <int Pitch>
__device__ constexpr u32 turned(u32 row, u32 byte) {
  return row * Pitch + (byte ^ turn_of<Pitch>(row));
}

// Addresses of chunk `2 step + half` of one row.
template <int Pitch>
struct TurnedRow {
  u32 row;
  u32 turn;

  __device__ TurnedRow(u32 rows, u32 number, u32 half)
      : row(rows + number * Pitch), turn(turn_of<Pitch>(number) ^ half * 16) {}
  __device__ u32 operator()(u32 step) const { return row + (step * 32 ^ turn); }
};

// Where things lie in a block's shared memory: query rows [panels * 8][pitch_q], then each warp's
// stages and its work area, in which 8-bit rows are widened.
template <Config C>
struct MmaShape {
  static constexpr int panels = ceil_div(C.rows, 8);
  static constexpr int dim_qk = whole_sixteens(C.dim_qk);
  static constexpr int dim_v = whole_sixteens(C.dim_v);
  static constexpr bool wide_k = size_bytes(C.k_dtype) == 2;
  static constexpr bool wide_v = size_bytes(C.v_dtype) == 2;
  // Values of a scale per key reach P, which fp16's range would not hold.
  static constexpr DType type_k = C.q_dtype;
  static constexpr DType type_v = wide_v                     ? C.v_dtype
                                  : has_key_scale(C.v_scale) ? DType::bf16
                                                             : C.q_dtype;
  static constexpr bool v_is_widened_k = C.v_in_k && !wide_k && type_v == type_k;
  static constexpr int pitch_q = pitch_of(2 * dim_qk);
  static constexpr int pitch_k = pitch_of(wide_k ? 2 * dim_qk : C.dim_qk);
  static constexpr int pitch_v = C.v_in_k ? 0 : pitch_of(wide_v ? 2 * dim_v : C.dim_v);
  static constexpr int pitch_work =
      larger(wide_k ? 0 : pitch_of(2 * dim_qk), wide_v ? 0 : pitch_of(2 * dim_v));
  static constexpr bool key_scales = has_key_scale(C.k_scale) || has_key_scale(C.v_scale);
  static constexpr int step_bytes =
      step_keys * (pitch_k + pitch_v) + (key_scales ? 2 * 4 * step_keys : 0);
  static constexpr int query_bytes = panels * 8 * pitch_q;
  static constexpr int warp_bytes = C.stages * step_bytes + step_keys * pitch_work;
  static constexpr int staging_bytes = query_bytes + C.warps * warp_bytes;
};

// One warp's share of a piece: steps of 16 keys, tile after tile. Warps divide every tile.
template <Config C>
struct WarpSteps {
  static constexpr int a_tile = C.tile_kv / (step_keys * C.warps);
  static_assert(a_tile * step_keys * C.warps == C.tile_kv, "warps divide a tile into whole steps");

  i32 first_tile;
  i32 tile_step;
  i32 count;
  i32 warp;

  __device__ WarpSteps(const Piece& piece, i32 warp_index)
      : first_tile(piece.row.first_tile + piece.tile_begin),
        tile_step(piece.tile_step),
        count(ceil_div(larger(piece.tile_end - piece.tile_begin, 0), piece.tile_step) * a_tile),
        warp(warp_index) {}

  __device__ i32 first_key(i32 step) const {
    const i32 tile = first_tile + step / a_tile * tile_step;
    return tile * C.tile_kv + (warp * a_tile + step % a_tile) * step_keys;
  }
};

// Where the rows of a step lie. Steps that cannot cross a page's end have them at even strides from
// the first; of others every lane l knows the row of key l % 16.
struct StepRows {
  const char* k;
  const char* v;
  const float* scale;  // lanes below 16: of K's row l % 16, the others: of V's
  bool readable;       // what was looked up may be read
};

template <Config C>
struct KvStages {
  using Shape = MmaShape<C>;

  const LaunchArgs& args;
  const KvWalk<C> walk;
  const i32 first_key;
  const i32 end_key;
  const u32 base;  // of this warp, in shared memory
  const i32 lane;

  __device__ KvStages(const LaunchArgs& launch, const Piece& piece, u32 shared, i32 lane_index)
      : args(launch),
        walk(launch, piece.batch_row, piece.kv_head),
        first_key(piece.row.first_key),
        end_key(piece.row.end_key),
        base(shared + Shape::query_bytes + threadIdx.x / 32 * Shape::warp_bytes),
        lane(lane_index) {}

  // `stage` is where one of the ring's steps lies: K's rows, V's, and the keys' scales.
  __device__ u32 last_stage() const { return base + (C.stages - 1) * Shape::step_bytes; }
  __device__ u32 next_stage(u32 stage) const {
    return stage == last_stage() ? base : stage + Shape::step_bytes;
  }
  static __device__ u32 v_rows(u32 stage) {
    return C.v_in_k ? stage : stage + step_keys * Shape::pitch_k;
  }
  static __device__ u32 scales(u32 stage) {
    return stage + step_keys * (Shape::pitch_k + Shape::pitch_v);
  }
  __device__ u32 work() const { return base + C.stages * Shape::step_bytes; }

  __device__ bool is_outside(i32 key) const {
    return key >= end_key || key + step_keys <= first_key;
  }

  static constexpr bool even_rows = C.page_size % step_keys == 0;

  __device__ bool counts(i32 key) const { return u32(key - first_key) < u32(end_key - first_key); }

  // `pages`: those of the step, where its keys lie in one; else they are looked up here.
  __device__ StepRows look_up(i32 step_key, const typename KvWalk<C>::Pages& pages) const {
    StepRows rows = {static_cast<const char*>(args.k), static_cast<const char*>(args.v),
                     args.k_scale, false};
    if (is_outside(step_key)) return rows;
    // A key outside the interval takes an inner one's place, and is not read.
    const i32 own = smaller(larger(step_key + lane % step_keys, first_key), end_key - 1);
    const auto at = even_rows ? walk.place_in(args, pages, step_key) : walk.place(args, own);
    rows.readable = at.readable;
    if (C.checked && !at.readable) return rows;
    rows.k = walk.k_row(args, at);
    if constexpr (!C.v_in_k) rows.v = walk.v_row(args, at);
    if constexpr (Shape::key_scales) {
      const auto key_at = even_rows ? walk.place_in(args, pages, own) : at;
      const bool of_v = lane >= step_keys ? has_key_scale(C.v_scale) : !has_key_scale(C.k_scale);
      rows.scale = of_v ? walk.v_scale(args, key_at) : walk.k_scale(args, key_at);
    }
    return rows;
  }

  // Starts the copies of a step; every call is one group, empty where no key takes part.
  __device__ void start(u32 stage, i32 step_key, const StepRows& rows) const {
    if (!is_outside(step_key)) {
      copy_rows<C.dim_qk * size_bytes(C.k_dtype), C.copy_k, Shape::pitch_k>(
          stage, step_key, rows.k, args.k_stride_token * size_bytes(C.k_dtype), rows.readable);
      if constexpr (!C.v_in_k) {
        copy_rows<C.dim_v * size_bytes(C.v_dtype), C.copy_v, Shape::pitch_v>(
            v_rows(stage), step_key, rows.v, args.v_stride_token * size_bytes(C.v_dtype),
            rows.readable);
      }
      if constexpr (Shape::key_scales) {
        copy_async<4>(scales(stage) + 4 * lane, rows.scale,
                      rows.readable && counts(step_key + lane % step_keys));
      }
    }
    commit_copies();
  }

  template <int RowBytes, int Bytes, int Pitch>
  __device__ void copy_rows(u32 to, i32 step_key, const char* rows, i64 stride_bytes,
                            bool readable) const {
    constexpr int copies = RowBytes / Bytes;
    constexpr int rounds = ceil_div(step_keys * copies, 32);
    static_assert(RowBytes % Bytes == 0, "no copy crosses a row's end");
#pragma unroll smaller(rounds, 8)
    for (int round = 0; round < rounds; ++round) {
      const int index = round * 32 + lane;
      const int row = smaller(index / copies, step_keys - 1);
      const char* from;
      bool is_read = counts(step_key + row);
      if constexpr (even_rows) {
        from = rows + row * stride_bytes;
        if constexpr (C.checked) is_read = is_read && readable;
      } else {
        from =
            reinterpret_cast<const char*>(__shfl_sync(all_lanes, reinterpret_cast<i64>(rows), row));
        if constexpr (C.checked) {
          const bool row_readable = __shfl_sync(all_lanes, int(readable), row) != 0;
          is_read = is_read && row_readable;
        }
      }
      if (step_keys * copies % 32 != 0 && index >= step_keys * copies) continue;
      const int byte = index % copies * Bytes;
      copy_async<Bytes>(to + turned<Pitch>(row, byte), from + byte, is_read);
    }
  }

  // Elements between dim and the next multiple of 16 take part in the product and are never copied.
  __device__ void clear_padding() const {
    constexpr int words = (Shape::dim_qk - C.dim_qk) / 2;
    if constexpr (Shape::wide_k && words > 0) clear_words<words>();
  }

  template <int words>
  __device__ void clear_words() const {
#pragma unroll 1
    for (int index = lane; index < C.stages * step_keys * words; index += 32) {
      const int row = index / words;
      const u32 to = base + row / step_keys * Shape::step_bytes +
                     turned<Shape::pitch_k>(row % step_keys, 2 * C.dim_qk + index % words * 4);
      asm volatile("st.shared.u32 [%0], %1;" ::"r"(to), "r"(0) : "memory");
    }
  }

  // 16 rows of 8-bit elements become rows of To in the work area, zeros beyond Dim.
  template <DType From, DType To, int Dim, int Pitch>
  __device__ void widen(u32 rows) const {
    constexpr int fours = whole_sixteens(Dim) / 4;
#pragma unroll 4
    for (int index = lane; index < step_keys * fours; index += 32) {
      const int row = index / fours;
      const int dim = index % fours * 4;
      Raw<4> raw = zero_raw<4>();
      if (Dim % 16 == 0 || dim < Dim) {
        asm volatile("ld.shared.u32 %0, [%1];"
                     : "=r"(raw.words[0])
                     : "r"(rows + turned<Pitch>(row, dim))
                     : "memory");
      }
      const u32 low = pack_two<To>(element<From>(raw, 0), element<From>(raw, 1));
      const u32 high = pack_two<To>(element<From>(raw, 2), element<From>(raw, 3));
      asm volatile("st.shared.v2.u32 [%0], {%1, %2};" ::"r"(
                       work() + turned<Shape::pitch_work>(row, dim * 2)),
                   "r"(low), "r"(high)
                   : "memory");
    }
    __syncwarp();
  }
};

// Page ids of steps to come, where a step lies in one page: lane l holds those of step l of 32, so
// that ids are on their way long before their keys are asked for. Steps are asked for in order.
template <Config C>
struct PagesAhead {
  using Pages = typename KvWalk<C>::Pages;
  static constexpr bool used = C.page_size > 0 && KvStages<C>::even_rows;

  const KvStages<C>& stages;
  const WarpSteps<C>& steps;
  Pages now;
  Pages next;

  __device__ PagesAhead(const KvStages<C>& of, const WarpSteps<C>& at)
      : stages(of), steps(at), now{0, 0}, next{0, 0} {
    if constexpr (used) {
      now = load(0);
      next = load(32);
    }
  }

  __device__ Pages of(i32 step) {
    if constexpr (!used) return {0, 0};
    if (step > 0 && step % 32 == 0) {
      now = next;
      next = load(step + 32);
    }
    const i32 k = __shfl_sync(all_lanes, now.k, step % 32);
    return {k, C.separate_tables ? __shfl_sync(all_lanes, now.v, step % 32) : k};
  }

 private:
  __device__ Pages load(i32 first) const {
    const i32 key = steps.first_key(first + stages.lane);
    return stages.is_outside(key) ? Pages{0, 0} : stages.walk.pages_of(key);
  }
};

__device__ inline float load_shared_float(u32 address) {
  float value;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"(address) : "memory");
  return value;
}

}  // namespace splitkv
