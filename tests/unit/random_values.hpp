// Random legal problems, schedules and targets for property tests. Everything comes from one
// engine, so that a seed names a case.
#pragma once

#include <cmath>
#include <random>
#include <vector>

#include "compiler/problem.hpp"
#include "compiler/schedule.hpp"
#include "compiler/target.hpp"
#include "compiler/verifier.hpp"

namespace splitkv::testing_support {

using Engine = std::mt19937_64;

inline int between(Engine& engine, int low, int high) {
  return std::uniform_int_distribution<int>(low, high)(engine);
}

inline bool coin(Engine& engine) { return between(engine, 0, 1) == 1; }

template <class T>
T one_of(Engine& engine, const std::vector<T>& choices) {
  return choices[size_t(between(engine, 0, int(choices.size()) - 1))];
}

inline KvLayout random_layout(Engine& engine) {
  KvLayout layout;
  layout.kind =
      one_of<KvLayoutKind>(engine, {KvLayoutKind::bhtd, KvLayoutKind::bthd, KvLayoutKind::paged});
  if (layout.kind != KvLayoutKind::paged) return layout;
  layout.page_size = one_of<int>(engine, {1, 2, 3, 16, 19, 64, 256, 1056});
  layout.page_order = coin(engine) ? PageOrder::nhd : PageOrder::hnd;
  return layout;
}

// Passes every problem rule on every known target.
inline Problem random_problem(Engine& engine) {
  const std::vector<DType> types = {DType::fp32, DType::fp16, DType::bf16};
  Problem problem;
  problem.q_dtype = one_of(engine, types);
  problem.k_dtype = one_of(engine, types);
  problem.v_dtype = coin(engine) ? problem.k_dtype : one_of(engine, types);
  problem.out_dtype = coin(engine) ? problem.q_dtype : one_of(engine, types);
  problem.kv_heads = between(engine, 1, 40);
  problem.q_heads = problem.kv_heads * one_of<int>(engine, {1, 2, 3, 4, 5, 7, 8, 12, 16, 71});
  problem.dim_qk = 8 * between(engine, 1, 32);
  problem.dim_v = coin(engine) ? problem.dim_qk : 8 * between(engine, 1, 32);
  problem.kv_layout = random_layout(engine);
  if (coin(engine)) problem.scale = std::normal_distribution<double>()(engine);
  if (coin(engine)) problem.softcap = std::exp(std::normal_distribution<double>(3, 2)(engine));
  if (coin(engine)) problem.window = between(engine, 1, 5000);
  problem.lse = one_of<LseOutput>(engine, {LseOutput::none, LseOutput::natural, LseOutput::base2});
  problem.merge = one_of<Merge>(engine, {Merge::automatic, Merge::mlo, Merge::lse});
  problem.deterministic = between(engine, 0, 3) == 0;
  problem.align = one_of<int>(engine, {4, 8, 16});
  return problem;
}

inline Target random_target(Engine& engine) {
  if (coin(engine)) return one_of(engine, known_cuda_targets());
  Target cpu;
  cpu.kind = TargetKind::cpu;
  cpu.arch = "x86-64-v3";
  cpu.vector_bits = one_of<int>(engine, {128, 256, 512});
  cpu.threads = between(engine, 1, 64);
  return cpu;
}

// Any values of the right kind, not necessarily legal.
inline Schedule any_schedule(Engine& engine) {
  Schedule schedule;
  schedule.family = coin(engine) ? Family::simt : Family::vector;
  schedule.tile_kv = between(engine, 1, 300);
  schedule.rows = between(engine, 1, 10);
  schedule.warps = between(engine, 1, 17);
  schedule.unroll = between(engine, 1, 9);
  schedule.partition =
      one_of<Partition>(engine, {Partition::fixed, Partition::flat, Partition::strided});
  schedule.splits = between(engine, 0, 70);
  schedule.blocks = between(engine, 0, 300);
  schedule.reduce = coin(engine) ? Reduce::kernel : Reduce::last_block;
  schedule.merge = one_of<Merge>(engine, {Merge::automatic, Merge::mlo, Merge::lse});
  return schedule;
}

// Passes every schedule rule of the pair.
inline Schedule random_schedule(Engine& engine, const Problem& problem, const Target& target) {
  while (true) {
    Schedule schedule = any_schedule(engine);
    schedule.family = target.kind == TargetKind::cuda ? Family::simt : Family::vector;
    schedule.tile_kv = 8 * between(engine, 1, 16);
    schedule.unroll = one_of<int>(engine, {1, 2, 4, 8});
    if (schedule.family == Family::vector) schedule.warps = 1;
    if (schedule.partition == Partition::flat) {
      schedule.splits = 1;
    } else {
      schedule.blocks = 0;
    }
    if (!verify(problem, schedule, target)) return schedule;
  }
}

}  // namespace splitkv::testing_support
