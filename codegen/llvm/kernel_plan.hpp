// What every LLVM emitter needs to know of one (problem, schedule, target), decided once.
#pragma once

#include <vector>

#include "codegen/llvm/ir_writer.hpp"
#include "compiler/problem.hpp"
#include "compiler/schedule.hpp"
#include "compiler/score.hpp"
#include "compiler/target.hpp"

namespace splitkv::llvm_codegen {

struct KernelPlan {
  Problem problem;  // v_in_k=on: with K's dtype and scale for V
  Schedule schedule;
  Merge merge = Merge::mlo;             // of exchanged partials
  ScoreExpr log2_score, mask;           // mask: what is left to test inside the key interval
  ScoreExpr first_key, end_key;         // positions; see KeyInterval
  std::vector<Param> params;            // of the emitted code
  bool uses_tree = false;               // the mask asks for tree_visible
  bool checked = false;                 // guards against bad page ids and lengths
  bool base2 = false;                   // statistics leave in base 2, not natural
  int lanes = 0;                        // fp32 lanes of a vector
  bool native_half = false;             // fp16 converts in hardware; else in integer operations
  ir::Element real = ir::Element::f32;  // q, the sums of q * k and the scores
  int heads = 0;                        // query heads that share a kv head
  int group = 0;                        // most query rows that share a kv head: heads * query_len
  int row_blocks = 0;                   // sequences a (batch row, kv head) has
  int padded_qk = 0;                    // dim_qk, rounded up to whole vectors
  int padded_v = 0;
  int block_keys = 0;   // keys whose scores are held at once: a tile, or a part of a long one
  int padded_keys = 0;  // block_keys, rounded up to whole vectors and whole unrolled steps
};

// Whether a target is known to convert fp16 in hardware.
bool converts_half(const Target& target);

KernelPlan plan_kernel(const Problem& problem, const Schedule& schedule, const Target& target);

// A page id may turn out bad only where there are pages.
inline bool checks_pages(const KernelPlan& plan) { return plan.checked && is_paged(plan.problem); }

// Sequences of one batch row.
constexpr int64_t sequences_a_row(const KernelPlan& plan) {
  return int64_t(plan.problem.kv_heads) * plan.row_blocks;
}

}  // namespace splitkv::llvm_codegen
