// Integer types and infinities. NVRTC has no <cstdint>, and global typedefs of these names would
// clash with the host headers that nvcc brings, so they live in the namespace.
#pragma once

namespace splitkv {

using i32 = int;
using i64 = long long;
using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;

static_assert(sizeof(i64) == 8 && sizeof(i32) == 4 && sizeof(u16) == 2);

constexpr u32 all_lanes = 0xffffffffu;

constexpr float largest_float = 3.40282346638528859812e38f;

__device__ inline float negative_infinity() { return __int_as_float(0xff800000); }

template <bool First, class A, class B>
struct Either {
  using Type = A;
};
template <class A, class B>
struct Either<false, A, B> {
  using Type = B;
};

template <class T>
__host__ __device__ constexpr T smaller(T a, T b) {
  return a < b ? a : b;
}

template <class T>
__host__ __device__ constexpr T larger(T a, T b) {
  return a < b ? b : a;
}

__host__ __device__ constexpr i32 ceil_div(i32 a, i32 b) { return (a + b - 1) / b; }

// The least power of two that is not below `count`.
__host__ __device__ constexpr i32 power_of_two(i32 count) {
  return count <= 1 ? 1 : 2 * power_of_two(ceil_div(count, 2));
}

// floor(a / b) and what remains, for b above 0 and any a.
template <class T>
__host__ __device__ constexpr T floor_div(T a, T b) {
  return a / b - (a % b < 0 ? 1 : 0);
}

template <class T>
__host__ __device__ constexpr T floor_rest(T a, T b) {
  return a - floor_div(a, b) * b;
}

}  // namespace splitkv
