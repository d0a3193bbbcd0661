#include "tools/splitkv/bench_sources.hpp"

namespace splitkv::tool {
namespace {

constexpr const char* kFloor = R"cuda(
using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;

constexpr int plain_threads = 512;

__device__ uint4 load_once(const uint4* from) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from));
  return v;
}

// Keeps the reads alive: what is folded is all but never this.
__device__ void keep(u32 folded, u32* sink) {
  if (folded == 0x9e3779b9u) *sink = folded;
}

template <int Unroll>
__device__ void read_plain(const void* data, u64 bytes, u32* sink) {
  const uint4* vectors = static_cast<const uint4*>(data);
  const u64 count = bytes / 16;
  const u64 tile = u64(plain_threads) * Unroll;
  u32 folded = 0;
  for (u64 first = blockIdx.x * tile + threadIdx.x; first < count; first += gridDim.x * tile) {
    uint4 got[Unroll];
#pragma unroll
    for (int i = 0; i < Unroll; ++i) {
      const u64 at = first + u64(i) * plain_threads;
      got[i] = at < count ? load_once(vectors + at) : uint4{0, 0, 0, 0};
    }
#pragma unroll
    for (int i = 0; i < Unroll; ++i) folded ^= got[i].x ^ got[i].y ^ got[i].z ^ got[i].w;
  }
  keep(folded, sink);
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
constexpr int bulk_stages = 12;

__device__ u32 shared_address(const void* pointer) {
  return u32(__cvta_generic_to_shared(pointer));
}

__device__ void wait_for(u32 barrier, u32 parity) {
  u32 done = 0;
  while (done == 0) {
    asm volatile(
        "{\n"
        ".reg .pred ready;\n"
        "mbarrier.try_wait.parity.shared.b64 ready, [%1], %2;\n"
        "selp.u32 %0, 1, 0, ready;\n"
        "}\n"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
  }
}

// Block b reads a run of chunks; one thread keeps `bulk_stages` copies in flight.
template <int Chunk>
__device__ void read_bulk(const void* data, u64 bytes, u32* sink) {
  extern __shared__ __align__(128) u8 ring[];
  __shared__ __align__(8) u64 arrived[bulk_stages];
  const u64 chunks = (bytes + Chunk - 1) / Chunk;
  const u64 begin = chunks * blockIdx.x / gridDim.x;
  const u64 end = chunks * (blockIdx.x + 1) / gridDim.x;
  const auto size_of = [&](u64 chunk) { return u32(min(u64(Chunk), bytes - chunk * Chunk)); };
  const auto request = [&](u64 chunk) {
    const u32 stage = u32((chunk - begin) % bulk_stages);
    const u32 barrier = shared_address(&arrived[stage]);
    const u32 size = size_of(chunk);
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(barrier), "r"(size)
                 : "memory");
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
            "r"(shared_address(ring + stage * Chunk)),
        "l"(static_cast<const u8*>(data) + chunk * Chunk), "r"(size), "r"(barrier)
        : "memory");
  };
  if (threadIdx.x == 0) {
    for (u64& barrier : arrived) {
      asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(shared_address(&barrier)));
    }
    asm volatile("fence.mbarrier_init.release.cluster;");
    for (u64 chunk = begin; chunk < min(end, begin + bulk_stages); ++chunk) request(chunk);
  }
  __syncthreads();
  u32 folded = 0;
  for (u64 chunk = begin; chunk < end; ++chunk) {
    const u64 turn = chunk - begin;
    const u32 stage = u32(turn % bulk_stages);
    wait_for(shared_address(&arrived[stage]), u32(turn / bulk_stages) & 1);
    const uint4* vectors = reinterpret_cast<const uint4*>(ring + stage * Chunk);
    for (u32 i = threadIdx.x; i < size_of(chunk) / 16; i += blockDim.x) {
      const uint4 v = vectors[i];
      folded ^= v.x ^ v.y ^ v.z ^ v.w;
    }
    __syncthreads();
    if (threadIdx.x == 0 && chunk + bulk_stages < end) request(chunk + bulk_stages);
  }
  keep(folded, sink);
}
#endif

__device__ u32 fp16_bits(float value) {
  u16 bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}

// The highest bits of a word whose `dropped` lowest go, to nearest, ties to even.
__device__ u32 shortened(u32 bits, int dropped) {
  return (bits + (1u << (dropped - 1)) - 1 + ((bits >> dropped) & 1)) >> dropped;
}

__device__ u32 mixed(u64 x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return u32(x >> 32);
}

// The sum of four uniform bytes: mean 510, deviation 147.8.
__device__ float drawn(u64 seed, u64 index) {
  const u32 bits = mixed(seed * 0x9e3779b97f4a7c15ull + index + 1);
  const int sum = int(bits & 255) + int((bits >> 8) & 255) + int((bits >> 16) & 255) + int(bits >> 24);
  return float(sum - 510) * (1.0f / 147.8f);
}

extern "C" {

__global__ void __launch_bounds__(512) read_plain_4(const void* data, u64 bytes, u32* sink) {
  read_plain<4>(data, bytes, sink);
}
__global__ void __launch_bounds__(512) read_plain_8(const void* data, u64 bytes, u32* sink) {
  read_plain<8>(data, bytes, sink);
}
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
__global__ void __launch_bounds__(256) read_bulk_16(const void* data, u64 bytes, u32* sink) {
  read_bulk<16384>(data, bytes, sink);
}
__global__ void __launch_bounds__(256) read_bulk_8(const void* data, u64 bytes, u32* sink) {
  read_bulk<8192>(data, bytes, sink);
}
#endif

// type: fp32, fp16, bf16, e4m3, e5m2, int8 from 0 on. e4m3 is an fp16 of 2^-8 the value without its
// highest exponent bit and its seven lowest bits.
__global__ void __launch_bounds__(256)
    fill(void* data, u64 elements, u64 seed, int type, float factor) {
  const u64 step = u64(gridDim.x) * blockDim.x;
  for (u64 i = u64(blockIdx.x) * blockDim.x + threadIdx.x; i < elements; i += step) {
    const float value = drawn(seed, i) * factor;
    u8* bytes = static_cast<u8*>(data);
    u16* halves = static_cast<u16*>(data);
    const u32 sign = value < 0 ? 0x80 : 0;
    if (type == 0) static_cast<float*>(data)[i] = value;
    if (type == 1) halves[i] = u16(fp16_bits(value));
    if (type == 2) halves[i] = u16(shortened(__float_as_uint(value), 16));
    if (type == 3) bytes[i] = u8(sign | shortened(fp16_bits(fabsf(value) * 0x1p-8f), 7));
    if (type == 4) bytes[i] = u8(shortened(fp16_bits(value), 8));
    if (type == 5) bytes[i] = u8(char(max(-127, min(127, __float2int_rn(value)))));
  }
}

}  // extern "C"
)cuda";

}  // namespace

std::string floor_source() { return kFloor; }

}  // namespace splitkv::tool
