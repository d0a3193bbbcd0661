// Instructions of PTX as functions: what they are called by stands in instruction_table.cpp, which
// gives each its operands in PTX's order. Results are references; registers in braces are a Group.
#pragma once

#include "device_api.hpp"
#include "numbers.hpp"

namespace emulator::ptx {

template <class T, u32 N>
struct Group {
  T* items[N];

  T& operator[](u32 i) const { return *items[i]; }
};

template <class T, class... Rest>
Group<T, 1 + sizeof...(Rest)> group(T& first, Rest&... rest) {
  return {{&first, &rest...}};
}

// A result that nobody wants: "_".
struct Nothing {};

// ---- memory; an address of 64 bits is the host's, also of shared memory (generic addressing)

inline void load_words(const char* name, u64 from, void* to, u32 bytes) {
  check_aligned(name, from, bytes);
  __builtin_memcpy(to, reinterpret_cast<const void*>(from), bytes);
}

template <class T>
void load(const char* name, T& to, u64 from) {
  load_words(name, from, &to, sizeof(T));
}
template <class T, u32 N>
void load(const char* name, const Group<T, N>& to, u64 from) {
  T words[N];
  load_words(name, from, words, sizeof(words));
  for (u32 i = 0; i < N; ++i) to[i] = words[i];
}

template <class T>
void load_shared(const char* name, T& to, u32 from) {
  __builtin_memcpy(&to, shared_at(name, from, sizeof(T)), sizeof(T));
}

template <class T>
void store_shared(const char* name, u32 to, const T& value) {
  __builtin_memcpy(shared_at(name, to, sizeof(T)), &value, sizeof(T));
}
template <class T, u32 N>
void store_shared(const char* name, u32 to, const Group<T, N>& values) {
  u8* at = shared_at(name, to, N * sizeof(T));
  for (u32 i = 0; i < N; ++i) __builtin_memcpy(at + i * sizeof(T), &values[i], sizeof(T));
}

template <class T>
void store_cluster(const char* name, u32 to, const T& value) {
  __builtin_memcpy(cluster_shared_at(name, to, sizeof(T)), &value, sizeof(T));
}
template <class T, u32 N>
void store_cluster(const char* name, u32 to, const Group<T, N>& values) {
  u8* at = cluster_shared_at(name, to, N * sizeof(T));
  for (u32 i = 0; i < N; ++i) __builtin_memcpy(at + i * sizeof(T), &values[i], sizeof(T));
}

inline void map_shared(const char*, u32& to, u32 address, u32 rank) {
  to = shared_address_of_rank(address, rank);
}

template <class T>
void atomic_add(const char* name, T& before, u64 at, T value) {
  load(name, before, at);
  *reinterpret_cast<T*>(at) = before + value;
}

// ---- arithmetic: the approximations are rounded to nearest here

inline void exp2(const char*, float& to, float x) {
  to = flushed(float(__builtin_exp2(double(flushed(x)))));
}
inline void reciprocal(const char*, float& to, float x) { to = flushed(1.0f / flushed(x)); }
inline void log2(const char*, float& to, float x) {
  to = flushed(float(__builtin_log2(double(flushed(x)))));
}

inline void float_from_fp16(const char*, float& to, u16 bits) { to = from_fp16(bits); }
inline void fp16_from_float(const char*, u16& to, float x) { to = u16(to_fp16(x)); }
inline void bf16_from_float(const char*, u16& to, float x) { to = u16(to_bf16(x)); }
// The first operand becomes the upper half.
inline void two_bf16(const char*, u32& to, float high, float low) {
  to = to_bf16(high) << 16 | to_bf16(low);
}
inline void two_fp16(const char*, u32& to, float high, float low) {
  to = to_fp16(high) << 16 | to_fp16(low);
}
inline void two_e4m3(const char*, u16& to, float high, float low) {
  to = u16(to_e4m3(high) << 8 | to_e4m3(low));
}
inline void two_e5m2(const char*, u16& to, float high, float low) {
  to = u16(to_e5m2(high) << 8 | to_e5m2(low));
}
inline void two_fp16_of_e4m3(const char*, u32& to, u16 bits) {
  to = to_fp16(from_e4m3(bits >> 8)) << 16 | to_fp16(from_e4m3(bits & 0xff));
}

inline void select(const char*, u32& to, u32 yes, u32 no, bool condition) {
  to = condition ? yes : no;
}

// ---- warp matrices

template <bool Bf16>
void multiply(const char*, const Group<float, 4>& d, const Group<const u32, 4>& a,
              const Group<const u32, 2>& b, const Group<float, 4>& c) {
  multiply_16x8x16(Bf16, d.items, {a[0], a[1], a[2], a[3]}, {b[0], b[1]}, {c[0], c[1], c[2], c[3]});
}

template <bool Transposed, u32 N>
void load_matrices(const char*, const Group<u32, N>& to, u32 address) {
  emulator::load_matrices(N, Transposed, to.items, address);
}

inline void transpose(const char*, u32& to, u32 word) { to = transpose_matrix(word); }

inline void equals(const char*, bool& yes, u32 a, u32 b) { yes = a == b; }

// d += a b; b lies turned where the last operand says so.
template <bool Bf16, u32 Columns>
void multiply_in_group(const char* name, const Group<float, Columns / 2>& d, u64 a, u64 b,
                       bool adds, int sign_a, int sign_b, int turned_a, int turned_b) {
  if (!adds || sign_a != 1 || sign_b != 1 || turned_a != 0)
    fault(FaultKind::launch, "%s in a form that is not emulated", name);
  multiply_64_rows(Bf16, Columns, turned_b != 0, d.items, a, b);
}
inline void begin_group_products(const char*) { emulator::begin_group_products(); }
inline void commit_group_products(const char*) { emulator::commit_group_products(); }
inline void wait_group_products(const char*, u32 pending) {
  emulator::wait_group_products(pending);
}

// ---- barriers and order

inline void meet_at_barrier(const char*, u32 barrier, u32 threads) { sync_block(barrier, threads); }
inline void meet_at_barrier(const char*, u32 barrier) { sync_block(barrier, 0); }
inline void arrive_at_barrier(const char*, u32 barrier, u32 threads) {
  arrive_at_block(barrier, threads);
}
inline void cluster_arrive(const char*) { arrive_at_cluster(); }
inline void cluster_wait(const char*) { wait_for_cluster(); }

// Launches and memory accesses are in order here.
template <class... Operands>
void nothing(const char*, const Operands&...) {}

// ---- copies

inline void copy(const char*, u32 to, u64 from, u32 bytes, u32 bytes_read) {
  copy_async(to, from, bytes, bytes_read);
}
inline void copy(const char*, u32 to, u64 from, u32 bytes) { copy_async(to, from, bytes, bytes); }
inline void commit(const char*) { commit_copies(); }
inline void wait_group(const char*, u32 pending) { wait_copies(pending); }
inline void wait_all(const char*) {
  commit_copies();
  wait_copies(0);
}

inline void init_mbarrier(const char*, u32 address, u32 arrivals) {
  start_mbarrier(address, arrivals);
}
inline void inval_mbarrier(const char*, u32 address) { end_mbarrier(address); }
inline void arrive(const char*, Nothing, u32 address) { arrive_at_mbarrier(address, 0); }
inline void arrive_expecting(const char*, Nothing, u32 address, u32 bytes) {
  arrive_at_mbarrier(address, bytes);
}
inline void try_wait(const char*, bool& ended, u32 address, u32 parity) {
  ended = wait_mbarrier(address, parity);
}

template <u32 N>
void copy_by_map(const char*, u32 to, u64 map, const Group<const u32, N>& at, u32 barrier) {
  int coordinates[N];
  for (u32 i = 0; i < N; ++i) coordinates[i] = int(at[i]);
  copy_tensor(to, map, coordinates, N, barrier);
}

}  // namespace emulator::ptx
