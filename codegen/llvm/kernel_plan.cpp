#include "codegen/llvm/kernel_plan.hpp"

#include <algorithm>
#include <numeric>

#include "compiler/arithmetic.hpp"

namespace splitkv::llvm_codegen {
namespace {

// K and V of one block of keys should still be in the first-level cache when the second pass of the
// block begins, and the pointers and scores of a block live on the stack.
constexpr int kMostBlockKeys = 64;

bool uses(const ScoreExpr& expr, ScoreOp op) {
  return std::any_of(expr.nodes.begin(), expr.nodes.end(),
                     [&](const ScoreNode& node) { return node.op == op; });
}

void plan_expressions(KernelPlan& plan, const Problem& problem) {
  plan.log2_score = log2_score_of(problem);
  plan.mask = fold(mask_within_interval_of(problem));
  const KeyInterval interval = key_interval_of(problem);
  plan.first_key = fold(interval.first);
  plan.end_key = fold(interval.end);
  plan.params = all_params(problem);
  plan.uses_tree = uses(plan.mask, ScoreOp::tree_visible);
}

}  // namespace

// fp16 conversions are instructions where F16C is. Every x86 with 256-bit integer vectors has it;
// of other cpu names it is not known, and the integer path is right everywhere.
bool converts_half(const Target& target) {
  return target.arch == "x86-64-v3" || target.arch == "x86-64-v4" ||
         (target.arch == "host" && target.vector_bits >= 256);
}

KernelPlan plan_kernel(const Problem& problem, const Schedule& schedule, const Target& target) {
  KernelPlan plan;
  plan.problem = problem;
  if (problem.v_in_k) {
    plan.problem.v_dtype = problem.k_dtype;
    plan.problem.v_scale = problem.k_scale;
  }
  plan.schedule = schedule;
  plan.merge = exchanged_merge(problem, schedule);
  plan_expressions(plan, problem);
  plan.checked = problem.checked == Checked::on;
  plan.base2 = problem.lse == LseOutput::base2;
  plan.lanes = target.vector_bits / 32;
  plan.native_half = converts_half(target);
  // At scores of several hundred an fp32 score is too coarse for fp32's accuracy contract, and so
  // is an fp32 sum of fp32 products that cancel. With a narrower K the products are exact in fp32
  // and the contract is wider.
  plan.real = problem.k_dtype == DType::fp32 ? ir::Element::f64 : ir::Element::f32;
  plan.heads = group_size(problem);
  plan.group = plan.heads * problem.query_len;
  plan.row_blocks = row_blocks(problem, schedule);
  plan.padded_qk = round_up(problem.dim_qk, plan.lanes);
  plan.padded_v = round_up(problem.dim_v, plan.lanes);
  plan.block_keys = std::min(schedule.tile_kv, kMostBlockKeys);
  plan.padded_keys = round_up(plan.block_keys, std::lcm(plan.lanes, schedule.unroll));
  return plan;
}

}  // namespace splitkv::llvm_codegen
