// What emulated kernels call: the machine's side of it is in the stand-in for libcuda. It includes
// nothing, since every kernel that is compiled includes it.
#pragma once

#pragma GCC visibility push(default)  // kernels find them in the stand-in for libcuda
namespace emulator {

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;

struct Index {
  u32 x = 1;
  u32 y = 1;
  u32 z = 1;

  u32 count() const { return x * y * z; }
};

// What a thread of a kernel may ask about itself.
struct Thread {
  Index thread{0, 0, 0};
  Index block{0, 0, 0};
  Index block_size;
  Index grid_size;
};

// The one that runs.
extern Thread* current;

// A __global__ function, as a module exports it under the name "emulated_" + name.
struct Entry {
  void (*run)(void** parameters);
  const u32* parameter_bytes;
  u32 parameter_count;
  u32 max_threads;
  u32 cluster;           // blocks, all in x
  u32 shared_alignment;  // of dynamic shared memory
};

enum class FaultKind : int { address = 700, misaligned = 716, launch = 719 };

// Ends the launch with a report of who did what.
[[noreturn]] void fault(FaultKind kind, const char* format, ...)
    __attribute__((format(printf, 2, 3)));

// ---- shared memory: addresses of 32 bits name a block of the cluster and a byte
u8* dynamic_shared();
u32 to_shared_address(const void* pointer);
// Where `bytes` lie that the block may touch itself; faults name the instruction.
u8* shared_at(const char* instruction, u32 address, u32 bytes);
// The same of any block of the cluster.
u8* cluster_shared_at(const char* instruction, u32 address, u32 bytes);
u32 shared_address_of_rank(u32 address, u32 rank);
void check_aligned(const char* instruction, u64 address, u32 bytes);

// ---- meetings of lanes and of threads
void sync_warp(u32 mask);
u64 shuffle(const char* instruction, u32 mask, u64 value, u32 source_lane);
u32 ballot(u32 mask, bool vote);
// `threads` 0: all of the block.
void sync_block(u32 barrier, u32 threads);
void arrive_at_block(u32 barrier, u32 threads);
void arrive_at_cluster();
void wait_for_cluster();

// ---- warp matrices; words as PTX names them
void multiply_16x8x16(bool bf16, float* const (&d)[4], const u32 (&a)[4], const u32 (&b)[2],
                      const float (&c)[4]);
void load_matrices(u32 count, bool transposed, u32* const* words, u32 address);
u32 transpose_matrix(u32 word);

// ---- products of warp groups, which run beside the arithmetic; a and b as descriptors
void begin_group_products();
void multiply_64_rows(bool bf16, u32 columns, bool turned_b, float* const* d, u64 a, u64 b);
void commit_group_products();
void wait_group_products(u32 pending);

// ---- copies that run beside the arithmetic
void copy_async(u32 to, u64 from, u32 bytes, u32 bytes_read);
void commit_copies();
void wait_copies(u32 pending);

void start_mbarrier(u32 address, u32 arrivals);
void end_mbarrier(u32 address);
void arrive_at_mbarrier(u32 address, u32 expected_bytes);
// Whether the phase of this parity has ended; waits until it has.
bool wait_mbarrier(u32 address, u32 parity);
void copy_tensor(u32 to, u64 map, const int* at, u32 dimensions, u32 barrier);

}  // namespace emulator
#pragma GCC visibility pop
