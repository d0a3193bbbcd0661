// The part of CUDA C++ that the templates use, for the system's compiler. Emitted source follows
// this text, its asm statements rewritten (translate.hpp).
#pragma once

#include "device_api.hpp"
#include "numbers.hpp"
#include "ptx.hpp"

#define __device__
#define __host__
#define __global__
#define __grid_constant__
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __CUDA_ARCH__ EMULATED_ARCH

#define threadIdx (::emulator::current->thread)
#define blockIdx (::emulator::current->block)
#define blockDim (::emulator::current->block_size)
#define gridDim (::emulator::current->grid_size)

struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};

extern "C" {
float expf(float);
float logf(float);
float tanhf(float);
double exp(double);
double log(double);
double tanh(double);
}
inline float fabsf(float x) { return __builtin_fabsf(x); }
inline float floorf(float x) { return __builtin_floorf(x); }
// Of a NaN and a number the number.
inline float fminf(float x, float y) { return x < y || y != y ? x : y; }
inline float fmaxf(float x, float y) { return x > y || y != y ? x : y; }
inline float fmaf(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
inline double fabs(double x) { return __builtin_fabs(x); }
inline double floor(double x) { return __builtin_floor(x); }
inline double fmin(double x, double y) { return x < y || y != y ? x : y; }
inline double fmax(double x, double y) { return x > y || y != y ? x : y; }
inline double fma(double x, double y, double z) { return __builtin_fma(x, y, z); }

inline float __int_as_float(int bits) { return __builtin_bit_cast(float, bits); }
inline float __uint_as_float(unsigned bits) { return __builtin_bit_cast(float, bits); }
inline unsigned __float_as_uint(float value) { return __builtin_bit_cast(unsigned, value); }
inline float __fdiv_rn(float x, float y) { return x / y; }
inline int __ffs(int bits) { return __builtin_ffs(bits); }

// Saturates, and makes 0 of NaN.
inline int __float2int_rn(float x) {
  if (x != x) return 0;
  if (x >= 0x1p31f) return 0x7fffffff;
  return x < -0x1p31f ? -0x7fffffff - 1 : int(__builtin_rintf(x));
}

inline unsigned __byte_perm(unsigned low, unsigned high, unsigned selector) {
  const unsigned long long bytes = low | static_cast<unsigned long long>(high) << 32;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned choice = selector >> (4 * i);
    unsigned byte = unsigned(bytes >> (8 * (choice & 7))) & 0xff;
    if ((choice & 8) != 0) byte = (byte & 0x80) != 0 ? 0xff : 0;  // its sign, repeated
    result |= byte << (8 * i);
  }
  return result;
}

// One thread runs at a time, and each memory access is seen by all that run after it.
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}

inline int atomicCAS_system(int* at, int expected, int desired) {
  const int before = *at;
  if (before == expected) *at = desired;
  return before;
}

inline unsigned long long __cvta_generic_to_shared(const void* pointer) {
  return ::emulator::to_shared_address(pointer);
}

inline void __syncthreads() { ::emulator::sync_block(0, 0); }
inline void __syncwarp(unsigned mask = 0xffffffffu) { ::emulator::sync_warp(mask); }
inline unsigned __ballot_sync(unsigned mask, int vote) {
  return ::emulator::ballot(mask, vote != 0);
}
inline int __any_sync(unsigned mask, int vote) { return ::emulator::ballot(mask, vote != 0) != 0; }
inline int __all_sync(unsigned mask, int vote) { return ::emulator::ballot(mask, vote == 0) == 0; }

namespace emulator {

inline u32 lane() { return current->thread.x % 32; }

template <class T>
T shuffled(const char* instruction, u32 mask, T value, u32 source) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "a shuffle moves 32 or 64 bits");
  u64 bits = 0;
  __builtin_memcpy(&bits, &value, sizeof(T));
  bits = shuffle(instruction, mask, bits, source);
  __builtin_memcpy(&value, &bits, sizeof(T));
  return value;
}

}  // namespace emulator

template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
  const unsigned first = ::emulator::lane() / unsigned(width) * unsigned(width);
  return ::emulator::shuffled("__shfl_sync", mask, value,
                              first + unsigned(source) % unsigned(width));
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int with) {
  return ::emulator::shuffled("__shfl_xor_sync", mask, value, ::emulator::lane() ^ unsigned(with));
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned distance) {
  const unsigned lane = ::emulator::lane();
  return ::emulator::shuffled("__shfl_up_sync", mask, value,
                              lane < distance ? lane : lane - distance);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned distance) {
  const unsigned lane = ::emulator::lane();
  return ::emulator::shuffled("__shfl_down_sync", mask, value,
                              lane + distance > 31 ? lane : lane + distance);
}

namespace emulator {

template <class... A>
struct Call {
  Call(void (*kernel)(A...), const A&... arguments) { kernel(arguments...); }
};

// Calls a kernel with what a launch brings: braces evaluate in order.
template <class... A>
void call(void (*kernel)(A...), void** parameters) {
  Call<A...>{kernel, *static_cast<const A*>(*parameters++)...};
}

template <class... A>
struct Sizes {
  static constexpr u32 bytes[] = {sizeof(A)...};
  static constexpr u32 count = sizeof...(A);
};
template <class... A>
Sizes<A...> sizes_of(void (*)(A...));

}  // namespace emulator
