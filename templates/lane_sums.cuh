// Many sums over the lanes of a lane group at once: each exchange halves how many values a lane
// still holds, so that N sums over L lanes cost about N shuffles instead of N log2 L, and what
// follows (score, mask) is done once for each value instead of once on every lane.
#pragma once

#include "types.cuh"

namespace splitkv {

// Where value `index` of N lies after scatter(): on `lane` of the lane group, as its value `slot`.
struct Owner {
  int lane;
  int slot;
};

// T is float or double.
template <class T, int N, int Lanes>
struct LaneSums {
  T values[N];

  // Values a lane holds after scatter().
  __host__ __device__ static constexpr int held() {
    int count = N;
    for (int offset = Lanes / 2; offset > 0; offset /= 2) count = ceil_div(count, 2);
    return count;
  }

  __host__ __device__ static constexpr Owner owner(int index) {
    int count = N;
    int lane = 0;
    for (int offset = Lanes / 2; offset > 0; offset /= 2) {
      const int half = ceil_div(count, 2);
      if (count > 1 && index >= half) {
        lane += offset;
        index -= half;
      }
      count = half;
    }
    return {lane, index};
  }

  // Entry: every lane of the group holds its own summand of all N values. Exit: values[0 .. held())
  // are finished sums; returns the index of values[0]. Where a halved count was odd, the last value
  // of the upper half is padding: its index belongs to another lane, or is N or more.
  __device__ int scatter(int lane) { return halve<N, Lanes / 2>(lane, 0); }

  template <int Count, int Offset>
  __device__ int halve(int lane, int first) {
    if constexpr (Offset == 0) {
      return first;
    } else if constexpr (Count == 1) {
      values[0] += __shfl_xor_sync(all_lanes, values[0], Offset);
      return halve<1, Offset / 2>(lane, first);
    } else {
      constexpr int half = ceil_div(Count, 2);
      const bool upper = (lane & Offset) != 0;
#pragma unroll
      for (int i = 0; i < half; ++i) {
        const T low = values[i];
        const T high = i + half < Count ? values[i + half] : T(0);
        const T kept = upper ? high : low;
        values[i] = kept + __shfl_xor_sync(all_lanes, upper ? low : high, Offset);
      }
      return halve<half, Offset / 2>(lane, upper ? first + half : first);
    }
  }

  // All N values on every lane, after scatter(). `group_lane` is the group's first lane in the
  // warp.
  template <int Index = 0>
  __device__ void gather(T (&all)[N], int group_lane) const {
    constexpr Owner from = owner(Index);
    if constexpr (Lanes == 1) {
      all[Index] = values[from.slot];
    } else {
      all[Index] = __shfl_sync(all_lanes, values[from.slot], group_lane + from.lane);
    }
    if constexpr (Index + 1 < N) gather<Index + 1>(all, group_lane);
  }
};

}  // namespace splitkv
