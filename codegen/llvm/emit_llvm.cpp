#include <fmt/format.h>

#include "codegen/entry_names.hpp"
#include "codegen/kernel_source.hpp"
#include "codegen/llvm/attend.hpp"
#include "compiler/text.hpp"

namespace splitkv {
namespace {

using namespace llvm_codegen;
using ir::i64_constant;
using ir::Value;

std::vector<Value> begin_entry(ir::Writer& w, std::string_view name) {
  return w.begin_function("", name,
                          {{ir::pointer, "args", "noalias readonly"}, {ir::i64, "block", ""}});
}

void emit_split_entry(ir::Writer& w, const KernelPlan& plan, const std::string& name) {
  const std::vector<Value> p = begin_entry(w, name);
  emit_pieces_of_block(w, plan, p[0], p[1],
                       [&](const Piece& piece) { emit_attend_call(w, plan, p[0], piece); });
  const Value offsets = emit_pointer_arg(w, p[0], offsetof(LaunchArgs, q_offset), "q_offset");
  w.when(
      emit_is_null(w, offsets, "queries.alike"), "all_written", [] {},
      [&] {
        w.call("clear_tokens", {p[0], p[1], emit_split_blocks(w, plan, p[0])});
      });
  w.end_function();
}

// A sequence that one piece finished has no partials to join.
void emit_reduce_entry(ir::Writer& w, const KernelPlan& plan, const std::string& name) {
  const std::vector<Value> p = begin_entry(w, name);
  const Sequence sequence = emit_sequence(w, plan, p[1]);
  const PieceSlots slots = emit_sequence_slots(w, plan, p[0], p[1], sequence);
  const Value shared = w.compare("gt", slots.pieces, i64_constant(1), "is_shared");
  w.when(shared, "shared", [&] { emit_join_call(w, plan, p[0], sequence, slots); });
  w.end_function();
}

}  // namespace

KernelSource emit_llvm(const Problem& problem, const Schedule& schedule, const Target& target) {
  const KernelPlan plan = plan_kernel(problem, schedule, target);
  KernelSource source;
  source.language = SourceLanguage::llvm_ir;
  source.split_entry = "splitkv_split";
  ir::Writer w;
  w.header(fmt::format("{} | {} | {}", print(problem), print(schedule), print(target)));
  emit_split_entry(w, plan, source.split_entry);
  emit_find_row_function(w, plan);
  emit_attend_function(w, plan);
  emit_join_function(w, plan);
  emit_clear_function(w, plan);
  if (plan.checked) emit_report_function(w);
  if (schedule.reduce == Reduce::kernel) {
    source.reduce_entry = "splitkv_reduce";
    emit_reduce_entry(w, plan, source.reduce_entry);
  }
  // Vectors as wide as the target says stay that wide even where LLVM's tuning prefers less.
  source.text = w.finish(
      fmt::format("nounwind \"prefer-vector-width\"=\"{0}\" \"min-legal-vector-width\"=\"{0}\"",
                  target.vector_bits));
  const size_t own = source.text.find('\n');  // after the comment
  return with_readable_entries(std::move(source), problem, own);
}

}  // namespace splitkv
