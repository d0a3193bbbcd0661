// The mma family's way of K and V into shared memory: each stream, a warp or the warps that divide
// a block's rows, keeps a ring of stages, a stage holding one step of 16 keys. Two load paths fill
// it: asynchronous copies of up to 16 bytes, for any layout, and copies by tensor map
// (tensor_copy.cuh), which bring a step at once. How rows lie in a stage is in stage_rows.cuh.
#pragma once

#include "convert.cuh"
#include "kv_walk.cuh"
#include "mma.cuh"
#include "partition.cuh"
#include "stage_rows.cuh"
#include "tensor_copy.cuh"

namespace splitkv {

// Where things lie in a block's shared memory: query rows [row_warps * panels * 8][pitch_q], then
// each stream's stages and its work area, in which 8-bit rows are widened.
template <const Config& C>
struct MmaShape {
  static constexpr int panels = ceil_div(C.rows, 8 * C.row_warps);  // of a warp
  static constexpr int block_rows = C.row_warps * panels * 8;
  static constexpr int lanes = 32 * C.row_warps;  // of a stream
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
  static constexpr bool by_tensor = C.loads == Loads::tensor;
  using WorkRows = StageRows<pitch_work, pitch_work>;
  using KRows = StageRows<pitch_k, by_tensor ? column_of(pitch_k) : pitch_k>;
  using VRows = typename Either<C.v_in_k, KRows,
                                StageRows<pitch_v, by_tensor ? column_of(pitch_v) : pitch_v>>::Type;
  // Swizzles count from multiples of 1024 bytes.
  static constexpr int query_bytes =
      by_tensor ? ceil_div(block_rows * pitch_q, 1024) * 1024 : block_rows * pitch_q;
  static constexpr int stream_bytes = C.stages * step_bytes + step_keys * pitch_work;
  static constexpr int staging_bytes = query_bytes + streams(C) * stream_bytes;
  static constexpr int barrier_bytes = by_tensor ? streams(C) * C.stages * 8 : 0;
  static_assert(!by_tensor || (step_keys * pitch_k % 1024 == 0 && stream_bytes % 1024 == 0),
                "stages lie at multiples of 1024 bytes");
};

// Where the lanes of a stream meet.
template <const Config& C>
__device__ inline void sync_stream() {
  if constexpr (C.row_warps == 1) {
    __syncwarp();
  } else {
    asm volatile("bar.sync %0, %1;" ::"r"(1 + threadIdx.x / MmaShape<C>::lanes),
                 "n"(MmaShape<C>::lanes)
                 : "memory");
  }
}

// One stream's share of a piece: steps of 16 keys, tile after tile. Streams divide every tile.
template <const Config& C>
struct StreamSteps {
  static constexpr int a_tile = C.tile_kv / (step_keys * streams(C));
  static_assert(a_tile * step_keys * streams(C) == C.tile_kv,
                "streams divide a tile into whole steps");

  i32 first_tile;
  i32 tile_step;
  i32 count;
  i32 stream;

  __device__ StreamSteps(const Piece& piece, i32 stream_index)
      : first_tile(piece.row.first_tile + piece.tile_begin),
        tile_step(piece.tile_step),
        count(ceil_div(larger(piece.tile_end - piece.tile_begin, 0), piece.tile_step) * a_tile),
        stream(stream_index) {}

  __device__ i32 first_key(i32 step) const {
    const i32 tile = first_tile + step / a_tile * tile_step;
    return tile * C.tile_kv + (stream * a_tile + step % a_tile) * step_keys;
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

// One of a stream's ring of stages: `rows` is where its K rows begin, then come V's and the keys'
// scales. By tensor map it has a barrier, and the rounds of the ring are its phases.
struct Stage {
  u32 rows;
  u32 barrier;
  u32 parity;  // of the phase that a step added now waits for
};

template <const Config& C>
struct KvStages {
  using Shape = MmaShape<C>;

  const LaunchArgs& args;
  const KvWalk<C> walk;
  const i32 first_key;
  const i32 end_key;
  const u32 base;  // of this stream, in shared memory
  const u32 barriers;
  const i32 kv_head;
  const i32 lane;         // of the warp
  const i32 stream_lane;  // of all warps of the stream

  // `shared_barriers`: those of all streams.
  __device__ KvStages(const LaunchArgs& launch, const Piece& piece, u32 shared, u32 shared_barriers,
                      i32 lane_index)
      : args(launch),
        walk(launch, piece.batch_row, piece.kv_head),
        first_key(piece.row.first_key),
        end_key(piece.row.end_key),
        base(shared + Shape::query_bytes + threadIdx.x / Shape::lanes * Shape::stream_bytes),
        barriers(shared_barriers + threadIdx.x / Shape::lanes * (C.stages * 8)),
        kv_head(piece.kv_head),
        lane(lane_index),
        stream_lane(threadIdx.x % Shape::lanes) {}

  // The ring begins with the stage before its first.
  __device__ Stage last_stage() const {
    return {base + (C.stages - 1) * Shape::step_bytes, barriers + (C.stages - 1) * 8, 0};
  }
  __device__ Stage next_stage(const Stage& stage) const {
    const Stage last = last_stage();
    if (stage.rows == last.rows) return {base, barriers, stage.parity ^ 1};
    return {stage.rows + Shape::step_bytes, stage.barrier + 8, stage.parity};
  }

  __device__ void start_barriers() const {
    if constexpr (Shape::by_tensor) {
      if (stream_lane < C.stages) start_barrier(barriers + 8 * stream_lane);
      publish_barriers();
      sync_stream<C>();
    }
  }

  // Once every stage has been waited for.
  __device__ void end_barriers() const {
    if constexpr (Shape::by_tensor && C.partition == Partition::flat) {
      sync_stream<C>();
      if (stream_lane < C.stages) end_barrier(barriers + 8 * stream_lane);
    }
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

  // What `start` will ask for: by tensor map only the pages.
  __device__ StepRows look_up(i32 step_key, const typename KvWalk<C>::Pages& pages) const {
    if constexpr (Shape::by_tensor) return {nullptr, nullptr, nullptr, false};
    return rows_of(step_key, pages);
  }

  // `pages`: those of the step, where its keys lie in one; else they are looked up here.
  __device__ StepRows rows_of(i32 step_key, const typename KvWalk<C>::Pages& pages) const {
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

  // Whether all keys of a step count.
  __device__ bool is_whole(i32 key) const { return key >= first_key && key + step_keys <= end_key; }

  // Starts the copies of a step.
  __device__ void start(const Stage& stage, i32 step_key, const StepRows& rows,
                        const typename KvWalk<C>::Pages& pages) const {
    if constexpr (Shape::by_tensor) {
      if (is_whole(step_key) && (!C.checked || walk.place_in(args, pages, step_key).readable)) {
        if (stream_lane == 0) copy_step(stage, step_key, pages);
      } else {
        if (stream_lane == 0) arrive(stage.barrier);
        copy_keys(stage.rows, step_key, rows_of(step_key, pages));
      }
    } else {
      copy_keys(stage.rows, step_key, rows);
    }
  }

  // Where a step's place in the ring has no step left to start.
  __device__ void start_nothing() const {
    if constexpr (!Shape::by_tensor) commit_copies();
  }

  // What `start` of this stage, a round ago, has asked for is there.
  __device__ void wait(const Stage& stage, i32 step_key) const {
    if constexpr (Shape::by_tensor) {
      wait_phase(stage.barrier, stage.parity);
      if (!C.checked && is_whole(step_key)) return;
      wait_copies<0>();
      order_before_copies();
    } else {
      wait_copies<C.stages - 1>();
    }
    sync_stream<C>();
  }

  __device__ void copy_step(const Stage& stage, i32 step_key,
                            const typename KvWalk<C>::Pages& pages) const {
    const auto at = walk.place_in(args, pages, step_key);
    const i32 k_block = C.page_size == 0 ? walk.batch_row : i32(at.k_block);
    const i32 v_block = C.page_size == 0 ? walk.batch_row : i32(at.v_block);
    arrive_expecting(stage.barrier, step_keys * (Shape::pitch_k + Shape::pitch_v));
    copy_tensor(stage.rows, args.k_map, i32(at.token), kv_head, k_block, stage.barrier);
    if constexpr (!C.v_in_k) {
      copy_tensor(v_rows(stage.rows), args.v_map, i32(at.token), kv_head, v_block, stage.barrier);
    }
  }

  // Every call is one group of copies, empty where no key takes part.
  __device__ void copy_keys(u32 stage, i32 step_key, const StepRows& rows) const {
    if (!is_outside(step_key)) {
      constexpr int k_bytes = C.dim_qk * size_bytes(C.k_dtype);
      constexpr int v_bytes = C.dim_v * size_bytes(C.v_dtype);
      const i64 k_stride = args.k_stride_token * size_bytes(C.k_dtype);
      const i64 v_stride = args.v_stride_token * size_bytes(C.v_dtype);
      const RowCopy k = {stage, rows.k, k_stride};
      const RowCopy v = {v_rows(stage), rows.v, v_stride};
      if constexpr (!C.v_in_k && k_bytes == v_bytes && C.copy_k == C.copy_v) {
        copy_rows<k_bytes, C.copy_k, typename Shape::KRows>({k, v}, step_key, rows.readable);
      } else {
        copy_rows<k_bytes, C.copy_k, typename Shape::KRows>({k}, step_key, rows.readable);
        if constexpr (!C.v_in_k) {
          copy_rows<v_bytes, C.copy_v, typename Shape::VRows>({v}, step_key, rows.readable);
        }
      }
      if constexpr (Shape::key_scales) {
        if (C.row_warps == 1 || stream_lane < 32) {
          copy_async<4>(scales(stage) + 4 * lane, rows.scale,
                        rows.readable && counts(step_key + lane % step_keys));
        }
      }
    }
    commit_copies();
  }

  // Where 16 rows come from, and where they go.
  struct RowCopy {
    u32 to;
    const char* from;
    i64 stride_bytes;
  };

  // Whether a lane can take the same chunk of every row that it copies.
  template <int RowBytes, int Bytes>
  static constexpr bool has_columns = even_rows&& RowBytes / Bytes > 1 &&
                                      Shape::lanes % (RowBytes / Bytes) == 0 &&
                                      step_keys % (Shape::lanes / (RowBytes / Bytes)) == 0;

  // Rows of one shape together. Four copies a turn of the loop: further unrolling takes much longer
  // to compile, less unrolling longer to run.
  template <int RowBytes, int Bytes, class Rows, int Count>
  __device__ void copy_rows(const RowCopy (&rows)[Count], i32 step_key, bool readable) const {
    static_assert(RowBytes % Bytes == 0, "no copy crosses a row's end");
    if constexpr (has_columns<RowBytes, Bytes>) {
      copy_columns<RowBytes, Bytes, Rows>(rows, step_key, readable);
    } else {
      copy_any_rows<RowBytes, Bytes, Rows>(rows, step_key, readable);
    }
  }

  template <int RowBytes, int Bytes, class Rows, int Count>
  __device__ void copy_columns(const RowCopy (&rows)[Count], i32 step_key, bool readable) const {
    constexpr int copies = RowBytes / Bytes;
    constexpr int apart = Shape::lanes / copies;
    const int byte = stream_lane % copies * Bytes;
    int row = stream_lane / copies;
    const char* from[Count];
#pragma unroll
    for (int i = 0; i < Count; ++i) from[i] = rows[i].from + row * rows[i].stride_bytes + byte;
#pragma unroll 4 / Count
    for (int round = 0; round < step_keys / apart; ++round) {
      const bool is_read = counts(step_key + row) && (!C.checked || readable);
      const u32 offset = Rows::at(row, byte);
#pragma unroll
      for (int i = 0; i < Count; ++i) {
        copy_async<Bytes>(rows[i].to + offset, from[i], is_read);
        from[i] += apart * rows[i].stride_bytes;
      }
      row += apart;
    }
  }

  template <int RowBytes, int Bytes, class Rows, int Count>
  __device__ void copy_any_rows(const RowCopy (&rows)[Count], i32 step_key, bool readable) const {
    constexpr int copies = RowBytes / Bytes;
#pragma unroll 4 / Count
    for (int round = 0; round < ceil_div(step_keys * copies, Shape::lanes); ++round) {
      const int index = round * Shape::lanes + stream_lane;
      const int row = smaller(index / copies, step_keys - 1);
      const int byte = index % copies * Bytes;
      bool is_read = counts(step_key + row);
      if constexpr (C.checked) {
        const bool row_readable =
            even_rows ? readable : __shfl_sync(all_lanes, int(readable), row) != 0;
        is_read = is_read && row_readable;
      }
      const bool takes_part = step_keys * copies % Shape::lanes == 0 || index < step_keys * copies;
#pragma unroll
      for (int i = 0; i < Count; ++i) {
        const char* from =
            even_rows ? rows[i].from + row * rows[i].stride_bytes : of_lane(rows[i].from, row);
        if (takes_part) copy_async<Bytes>(rows[i].to + Rows::at(row, byte), from + byte, is_read);
      }
    }
  }

  static __device__ const char* of_lane(const char* own, int other) {
    return reinterpret_cast<const char*>(__shfl_sync(all_lanes, reinterpret_cast<i64>(own), other));
  }

  // Elements between dim and the next multiple of 16 take part in the product and are never copied.
  __device__ void clear_padding() const {
    constexpr int words = (Shape::dim_qk - C.dim_qk) / 2;
    if constexpr (Shape::wide_k && words > 0) clear_words<words>();
  }

  template <int words>
  __device__ void clear_words() const {
#pragma unroll 1
    for (int index = stream_lane; index < C.stages * step_keys * words; index += Shape::lanes) {
      const int row = index / words;
      const u32 to = base + row / step_keys * Shape::step_bytes +
                     Shape::KRows::at(row % step_keys, 2 * C.dim_qk + index % words * 4);
      asm volatile("st.shared.u32 [%0], %1;" ::"r"(to), "r"(0) : "memory");
    }
  }

  // 16 rows of 8-bit elements become rows of To in the work area, zeros beyond Dim.
  template <DType From, DType To, int Dim, class Rows>
  __device__ void widen(u32 rows) const {
    constexpr int fours = whole_sixteens(Dim) / 4;
#pragma unroll 4
    for (int index = stream_lane; index < step_keys * fours; index += Shape::lanes) {
      const int row = index / fours;
      const int dim = index % fours * 4;
      u32 four = 0;
      if (Dim % 16 == 0 || dim < Dim) {
        asm volatile("ld.shared.u32 %0, [%1];"
                     : "=r"(four)
                     : "r"(rows + Rows::at(row, dim))
                     : "memory");
      }
      const u32 low = widen_two<From, To>(four & 0xffff);
      const u32 high = widen_two<From, To>(four >> 16);
      asm volatile(
          "st.shared.v2.u32 [%0], {%1, %2};" ::"r"(work() + Shape::WorkRows::at(row, dim * 2)),
          "r"(low), "r"(high)
          : "memory");
    }
    sync_stream<C>();
  }
};

// Page ids of steps to come, where a step lies in one page: lane l holds those of step l of 32, so
// that ids are on their way long before their keys are asked for. Steps are asked for in order.
template <const Config& C>
struct PagesAhead {
  using Pages = typename KvWalk<C>::Pages;
  static constexpr bool used = C.page_size > 0 && KvStages<C>::even_rows;

  const KvStages<C>& stages;
  const StreamSteps<C>& steps;
  Pages now;
  Pages next;

  __device__ PagesAhead(const KvStages<C>& of, const StreamSteps<C>& at)
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

}  // namespace splitkv
