// Random legal problems, schedules and targets for property tests. Everything comes from one
// engine, so that a seed names a case.
#pragma once

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "compiler/problem.hpp"
#include "compiler/resources.hpp"
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

// A tree of whole numbers of positions, lengths and indices.
inline int random_whole(Engine& engine, ScoreExpr& expr, int depth) {
  const int kind = depth == 0 ? between(engine, 0, 1) : between(engine, 0, 4);
  if (kind == 0) return constant(expr, between(engine, -20, 5000));
  if (kind == 1)
    return leaf(expr, one_of<ScoreOp>(engine, {ScoreOp::query_pos, ScoreOp::key_pos,
                                               ScoreOp::kv_len, ScoreOp::q_head, ScoreOp::batch}));
  const int a = random_whole(engine, expr, depth - 1);
  if (kind == 2) {
    const int divisor = constant(expr, between(engine, 1, 300));
    return apply(expr, coin(engine) ? ScoreOp::quotient : ScoreOp::remainder, a, divisor);
  }
  const int b = random_whole(engine, expr, depth - 1);
  return apply(expr,
               one_of<ScoreOp>(
                   engine, {ScoreOp::add, ScoreOp::sub, ScoreOp::min, ScoreOp::max, ScoreOp::mul}),
               a, b);
}

// A tree of any operations that users may write, in the order of a text.
inline int random_tree(Engine& engine, ScoreExpr& expr, int params, bool with_score, int depth) {
  const auto operand = [&] { return random_tree(engine, expr, params, with_score, depth - 1); };
  const int kind = depth == 0 ? between(engine, 0, 3) : between(engine, 0, 9);
  if (kind == 0) return constant(expr, std::normal_distribution<double>(0, 10)(engine));
  if (kind == 1) return random_whole(engine, expr, depth);
  if (kind == 2 && with_score) return leaf(expr, ScoreOp::score);
  if (kind == 3 && params > 0) return param(expr, between(engine, 0, params - 1));
  if (kind <= 3) return leaf(expr, ScoreOp::key_pos);
  if (kind == 4) {
    const int a = operand();
    const ScoreOp op =
        one_of<ScoreOp>(engine, {ScoreOp::neg, ScoreOp::abs, ScoreOp::tanh, ScoreOp::exp,
                                 ScoreOp::log, ScoreOp::sigmoid, ScoreOp::invert});
    const bool number = expr.nodes[size_t(a)].op == ScoreOp::constant;
    return apply(expr, op == ScoreOp::neg && number ? ScoreOp::abs : op, a);
  }
  const int a = operand(), b = operand();
  if (kind == 5) return apply(expr, ScoreOp::select, a, b, operand());
  return apply(
      expr,
      one_of<ScoreOp>(engine, {ScoreOp::add, ScoreOp::sub, ScoreOp::mul, ScoreOp::div, ScoreOp::min,
                               ScoreOp::max, ScoreOp::less, ScoreOp::less_equal, ScoreOp::equal,
                               ScoreOp::both, ScoreOp::either}),
      a, b);
}

inline ScoreExpr random_user_expr(Engine& engine, const std::vector<Param>& params,
                                  bool with_score) {
  ScoreExpr expr;
  random_tree(engine, expr, int(params.size()), with_score, between(engine, 0, 4));
  return expr;
}

inline std::vector<Param> random_params(Engine& engine) {
  std::vector<Param> params;
  const int count = coin(engine) ? 0 : between(engine, 1, kMaxParams);
  for (int i = 0; i < count; ++i)
    params.push_back(
        {"p_" + std::to_string(i * 3),
         one_of<ParamScope>(engine, {ParamScope::scalar, ParamScope::head, ParamScope::row})});
  return params;
}

inline DType random_kv_type(Engine& engine) {
  return one_of<DType>(
      engine, {DType::fp32, DType::fp16, DType::bf16, DType::e4m3, DType::e5m2, DType::int8});
}

inline KvScale random_scale(Engine& engine) {
  return one_of<KvScale>(
      engine, {KvScale::none, KvScale::tensor, KvScale::head, KvScale::token, KvScale::inl});
}

inline int random_dim(Engine& engine, DType type) {
  const int unit = size_bytes(type) == 1 ? 4 : coin(engine) ? 8 : 2;
  const int most = between(engine, 0, 3) == 0 ? 576 : 256;
  return unit * between(engine, 8 / unit, most / unit);
}

inline void randomise_tensors(Engine& engine, Problem& problem) {
  const std::vector<DType> floating = {DType::fp32, DType::fp16, DType::bf16};
  problem.q_dtype = one_of(engine, floating);
  problem.k_dtype = coin(engine) ? problem.q_dtype : random_kv_type(engine);
  problem.v_dtype = coin(engine) ? problem.k_dtype : random_kv_type(engine);
  problem.out_dtype = coin(engine) ? problem.q_dtype : one_of(engine, floating);
  problem.kv_heads = between(engine, 1, 40);
  problem.q_heads = problem.kv_heads * one_of<int>(engine, {1, 2, 3, 4, 5, 7, 8, 12, 16, 71});
  problem.query_len = coin(engine) ? 1 : between(engine, 1, 64);
  problem.ragged = coin(engine);
  problem.dim_qk = random_dim(engine, problem.k_dtype);
  problem.dim_v = random_dim(engine, problem.v_dtype);
  if (problem.v_dtype == problem.k_dtype && coin(engine)) problem.dim_v = problem.dim_qk;
  if (between(engine, 0, 3) == 0) problem.dim_rope = 2 * between(engine, 0, problem.dim_qk / 2 - 1);
  problem.kv_layout = random_layout(engine);
  problem.separate_tables = is_paged(problem) && between(engine, 0, 3) == 0;
  if (coin(engine)) problem.k_scale = random_scale(engine);
  problem.v_scale = coin(engine) ? problem.k_scale : random_scale(engine);
  problem.v_in_k = problem.v_dtype == problem.k_dtype && problem.dim_v <= problem.dim_qk &&
                   problem.v_scale == problem.k_scale && !problem.separate_tables && coin(engine);
  problem.align = one_of<int>(engine, {4, 8, 16});
}

inline void randomise_scores(Engine& engine, Problem& problem) {
  if (coin(engine)) problem.scale = std::normal_distribution<double>()(engine);
  if (coin(engine)) problem.softcap = std::exp(std::normal_distribution<double>(3, 2)(engine));
  problem.alibi = coin(engine);
  if (coin(engine)) problem.bias = coin(engine) ? DType::fp32 : DType::fp16;
  problem.params = random_params(engine);
  if (coin(engine)) problem.score_mod = random_user_expr(engine, problem.params, true);
  problem.mask = one_of<Mask>(engine, {Mask::causal, Mask::causal, Mask::none, Mask::tree});
  if (coin(engine)) problem.window = between(engine, 1, 5000);
  if (between(engine, 0, 3) == 0) problem.chunk = between(engine, 1, 5000);
  if (coin(engine)) problem.predicate = random_user_expr(engine, problem.params, false);
  problem.strided_positions = problem.mask != Mask::tree && between(engine, 0, 3) == 0;
}

// Passes every problem rule on every known target.
inline Problem random_problem(Engine& engine) {
  while (true) {
    Problem problem;
    randomise_tensors(engine, problem);
    randomise_scores(engine, problem);
    problem.sink = coin(engine);
    problem.out_partial = !problem.sink && coin(engine);
    if (problem.out_partial) problem.out_dtype = DType::fp32;
    problem.lse =
        one_of<LseOutput>(engine, {LseOutput::none, LseOutput::natural, LseOutput::base2});
    problem.merge = one_of<Merge>(engine, {Merge::automatic, Merge::mlo, Merge::lse});
    problem.deterministic = between(engine, 0, 3) == 0;
    problem.checked = one_of<Checked>(engine, {Checked::automatic, Checked::off, Checked::on});
    // Random expressions may multiply whole numbers beyond 64 bits; all else is legal as it is.
    const auto refusal = verify(problem, known_cuda_targets().front());
    if (!refusal) return problem;
    if (refusal->rule != "whole_numbers_fit_64_bits") return problem;
  }
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
  schedule.family =
      one_of<Family>(engine, {Family::simt, Family::mma, Family::wgmma, Family::vector});
  schedule.tile_kv = between(engine, 1, 300);
  schedule.rows = between(engine, 1, 10);
  schedule.warps = between(engine, 1, 17);
  schedule.unroll = between(engine, 1, 9);
  schedule.stages = between(engine, 0, 9);
  schedule.loads = one_of<Loads>(engine, {Loads::copy, Loads::tensor});
  schedule.partition =
      one_of<Partition>(engine, {Partition::fixed, Partition::flat, Partition::strided});
  schedule.splits = between(engine, 0, 70);
  schedule.blocks = between(engine, 0, 300);
  schedule.reduce = one_of<Reduce>(engine, {Reduce::kernel, Reduce::last_block, Reduce::cluster});
  schedule.cluster = between(engine, 0, 17);
  schedule.partial_dtype = one_of<DType>(engine, {DType::fp32, DType::bf16});
  schedule.pdl = coin(engine);
  schedule.merge = one_of<Merge>(engine, {Merge::automatic, Merge::mlo, Merge::lse});
  return schedule;
}

// Passes every schedule rule of the pair.
inline Schedule random_schedule(Engine& engine, const Problem& problem, const Target& target) {
  while (true) {
    Schedule schedule = any_schedule(engine);
    schedule.family = coin(engine) ? Family::simt : Family::mma;
    if (target.kind == TargetKind::cpu) schedule.family = Family::vector;
    schedule.tile_kv = 8 * between(engine, 1, 16);
    schedule.unroll = one_of<int>(engine, {1, 2, 4, 8});
    schedule.stages = 1;
    if (schedule.family == Family::mma) {
      schedule.warps = one_of<int>(engine, {1, 2, 4, 8});
      schedule.tile_kv = 16 * schedule.warps * between(engine, 1, 4);
      schedule.rows = between(engine, 1, 64);
      schedule.unroll = 1;
      schedule.stages = between(engine, 2, 4);
    }
    if (target.arch == "sm_90a" && between(engine, 0, 4) == 0) {
      schedule.family = Family::wgmma;
      schedule.tile_kv = kWgmmaTile;
      schedule.rows = between(engine, 1, kWgmmaTile);
      schedule.warps = kWgmmaWarps;
      schedule.row_warps = schedule.unroll = 1;
      schedule.stages = between(engine, 2, 8);
      schedule.loads = Loads::tensor;
    }
    if (schedule.family == Family::vector) schedule.warps = 1;
    if (schedule.reduce == Reduce::cluster) {
      schedule.cluster = between(engine, 2, 16);
      schedule.splits = schedule.cluster * between(engine, 1, 8);
    } else {
      schedule.cluster = 1;
    }
    if (schedule.partition == Partition::flat) {
      schedule.splits = 1;
    } else {
      schedule.blocks = 0;
    }
    if (!verify(problem, schedule, target)) return schedule;
  }
}

}  // namespace splitkv::testing_support
