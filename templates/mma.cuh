// Instructions of the mma family: warp matrix products and their operand loads. All exist from
// sm_80 on.
#pragma once

#include "config.cuh"
#include "copy_async.cuh"

namespace splitkv {

// d += a b: a is 16 x 16, b 16 x 8, both of fp16 or bf16; d is 16 x 8 in fp32. Lane l with g = l /
// 4 and t = l % 4 holds d at rows g, g, g + 8, g + 8 and columns 2 t, 2 t + 1, 2 t, 2 t + 1.
template <DType T>
__device__ inline void multiply_add(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
  static_assert(T == DType::fp16 || T == DType::bf16, "operands are fp16 or bf16");
  if constexpr (T == DType::bf16) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
}

// Two or four 8 x 8 matrices of 16-bit elements; lane i gives the address of row i % 8 of matrix
// i / 8 and gets of each matrix row l / 4, columns 2 (l % 4) and the next.
__device__ inline void load_matrices(u32 (&words)[4], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(address)
               : "memory");
}

__device__ inline void load_matrices(u32 (&words)[2], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(words[0]), "=r"(words[1])
               : "r"(address)
               : "memory");
}

// The same of the matrices' transposes.
__device__ inline void load_transposed(u32 (&words)[4], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(address)
               : "memory");
}

// Transposes an 8 x 8 matrix of 16-bit elements that lies across the warp.
__device__ inline u32 transpose(u32 word) {
  u32 result;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(word));
  return result;
}

}  // namespace splitkv
