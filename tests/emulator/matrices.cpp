// Products and moves of matrices that lie across a warp. With g = lane / 4 and t = lane % 4 a lane
// holds, of 8 x 8 elements of 16 bits, row g, columns 2 t and 2 t + 1, in one word.
#include <cstring>

#include "tests/emulator/meetings.hpp"
#include "tests/emulator/numbers.hpp"

namespace emulator {
namespace {

constexpr u32 kAllLanes = 0xffffffff;

struct Product {
  bool bf16;
  const u32 (&a)[4];
  const u32 (&b)[2];
  const float (&c)[4];
  float* const (&d)[4];
};

void take_two(bool bf16, u32 word, float& low, float& high) {
  low = bf16 ? from_bf16(word & 0xffff) : from_fp16(word & 0xffff);
  high = bf16 ? from_bf16(word >> 16) : from_fp16(word >> 16);
}

// Products of 16-bit numbers are exact in fp32, in which they are added up in the order of k.
void multiply(Warp& warp, u32) {
  float a[16][16], b[16][8], sum[16][8];
  for (u32 lane = 0; lane < 32; ++lane) {
    const auto& own = brought_by<Product>(warp, lane);
    const u32 g = lane / 4, t = lane % 4;
    for (u32 i = 0; i < 4; ++i) {
      const u32 row = g + i % 2 * 8, k = 2 * t + i / 2 * 8;
      take_two(own.bf16, own.a[i], a[row][k], a[row][k + 1]);
      sum[g + i / 2 * 8][2 * t + i % 2] = own.c[i];
    }
    for (u32 i = 0; i < 2; ++i)
      take_two(own.bf16, own.b[i], b[2 * t + i * 8][g], b[2 * t + i * 8 + 1][g]);
  }
  for (u32 row = 0; row < 16; ++row) {
    for (u32 k = 0; k < 16; ++k) {
      for (u32 column = 0; column < 8; ++column) sum[row][column] += a[row][k] * b[k][column];
    }
  }
  for (u32 lane = 0; lane < 32; ++lane) {
    const auto& own = brought_by<Product>(warp, lane);
    for (u32 i = 0; i < 4; ++i) *own.d[i] = sum[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2];
  }
}

struct MatrixLoad {
  u32 count;
  bool transposed;
  const u8* row;  // of the lane's address; null where the instruction does not take it
  u32* const* words;
};

void load(Warp& warp, u32) {
  for (u32 lane = 0; lane < 32; ++lane) {
    const auto& own = brought_by<MatrixLoad>(warp, lane);
    const u32 g = lane / 4, t = lane % 4;
    for (u32 matrix = 0; matrix < own.count; ++matrix) {
      u16 two[2];
      for (u32 i = 0; i < 2; ++i) {
        const u32 row = own.transposed ? 2 * t + i : g;
        const u32 column = own.transposed ? g : 2 * t + i;
        std::memcpy(&two[i], brought_by<MatrixLoad>(warp, matrix * 8 + row).row + 2 * column, 2);
      }
      *own.words[matrix] = two[0] | u32(two[1]) << 16;
    }
  }
}

struct Transposed {
  u32 word;
  u32 result;
};

void transpose(Warp& warp, u32) {
  for (u32 lane = 0; lane < 32; ++lane) {
    u32 result = 0;
    for (u32 i = 0; i < 2; ++i) {  // element [g][2 t + i] is [2 t + i][g] of what is brought
      const u32 row = lane % 4 * 2 + i, column = lane / 4;
      const u32 word = brought_by<Transposed>(warp, row * 4 + column / 2).word;
      result |= (word >> (16 * (column % 2)) & 0xffff) << (16 * i);
    }
    brought_by<Transposed>(warp, lane).result = result;
  }
}

}  // namespace

void multiply_16x8x16(bool bf16, float* const (&d)[4], const u32 (&a)[4], const u32 (&b)[2],
                      const float (&c)[4]) {
  Product own{bf16, a, b, c, d};
  meet("mma.sync", kAllLanes, &own, &multiply);
}

void load_matrices(u32 count, bool transposed, u32* const* words, u32 address) {
  const bool takes_row = self().number < 8 * count;
  MatrixLoad own{count, transposed, takes_row ? shared_at("ldmatrix", address, 16) : nullptr,
                 words};
  meet("ldmatrix", kAllLanes, &own, &load);
}

u32 transpose_matrix(u32 word) {
  Transposed own{word, 0};
  meet("movmatrix", kAllLanes, &own, &transpose);
  return own.result;
}

}  // namespace emulator
