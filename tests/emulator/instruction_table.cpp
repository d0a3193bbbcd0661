#include "tests/emulator/instruction_table.hpp"

#include <cctype>

namespace emulator {
namespace {

// `#` stands for a number, in the opcode and in what the function's template takes.
struct Instruction {
  std::string_view opcode;
  std::string_view function;
};

constexpr Instruction kInstructions[] = {
    {"ld.global.nc.L1::no_allocate.v4.u32", "load"},
    {"ld.global.nc.L1::no_allocate.v2.u32", "load"},
    {"ld.global.nc.u32", "load"},
    {"ld.global.nc.u16", "load"},
    {"ld.global.cg.f32", "load"},
    {"ld.global.cg.v4.f32", "load"},
    {"ld.global.cg.v2.f32", "load"},
    {"ld.global.cg.v2.u32", "load"},
    {"ld.global.cg.u32", "load"},
    {"ld.relaxed.gpu.f32", "load"},
    {"ld.relaxed.gpu.v4.f32", "load"},
    {"ld.relaxed.gpu.v2.f32", "load"},
    {"ld.shared.u32", "load_shared"},
    {"ld.shared.f32", "load_shared"},
    {"st.shared.u32", "store_shared"},
    {"st.shared.v2.u32", "store_shared"},
    {"st.shared::cluster.f32", "store_cluster"},
    {"st.shared::cluster.v2.f32", "store_cluster"},
    {"st.shared::cluster.v4.f32", "store_cluster"},
    {"mapa.shared::cluster.u32", "map_shared"},
    {"atom.acq_rel.gpu.global.add.u32", "atomic_add<emulator::u32>"},

    {"ex2.approx.ftz.f32", "exp2"},
    {"rcp.approx.ftz.f32", "reciprocal"},
    {"lg2.approx.ftz.f32", "log2"},
    {"cvt.f32.f16", "float_from_fp16"},
    {"cvt.rn.f16.f32", "fp16_from_float"},
    {"cvt.rn.bf16.f32", "bf16_from_float"},
    {"cvt.rn.bf16x2.f32", "two_bf16"},
    {"cvt.rn.f16x2.f32", "two_fp16"},
    {"cvt.rn.satfinite.e4m3x2.f32", "two_e4m3"},
    {"cvt.rn.satfinite.e5m2x2.f32", "two_e5m2"},
    {"cvt.rn.f16x2.e4m3x2", "two_fp16_of_e4m3"},
    {"selp.u32", "select"},

    {"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", "multiply<true>"},
    {"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "multiply<false>"},
    {"ldmatrix.sync.aligned.m8n8.x#.shared.b16", "load_matrices<false, #>"},
    {"ldmatrix.sync.aligned.m8n8.x#.trans.shared.b16", "load_matrices<true, #>"},
    {"movmatrix.sync.aligned.m8n8.trans.b16", "transpose"},

    {"setp.eq.u32", "equals"},
    {"wgmma.fence.sync.aligned", "begin_group_products"},
    {"wgmma.mma_async.sync.aligned.m64n#k16.f32.bf16.bf16", "multiply_in_group<true, #>"},
    {"wgmma.mma_async.sync.aligned.m64n#k16.f32.f16.f16", "multiply_in_group<false, #>"},
    {"wgmma.commit_group.sync.aligned", "commit_group_products"},
    {"wgmma.wait_group.sync.aligned", "wait_group_products"},

    {"bar.sync", "meet_at_barrier"},
    {"bar.arrive", "arrive_at_barrier"},
    {"barrier.cluster.arrive.release.aligned", "cluster_arrive"},
    {"barrier.cluster.wait.acquire.aligned", "cluster_wait"},
    {"fence.mbarrier_init.release.cluster", "nothing"},
    {"fence.proxy.async.shared::cta", "nothing"},
    {"griddepcontrol.wait", "nothing"},
    {"griddepcontrol.launch_dependents", "nothing"},
    {"prefetch.tensormap", "nothing"},

    {"cp.async.cg.shared.global", "copy"},
    {"cp.async.ca.shared.global", "copy"},
    {"cp.async.commit_group", "commit"},
    {"cp.async.wait_group", "wait_group"},
    {"cp.async.wait_all", "wait_all"},
    {"mbarrier.init.shared::cta.b64", "init_mbarrier"},
    {"mbarrier.inval.shared::cta.b64", "inval_mbarrier"},
    {"mbarrier.arrive.shared::cta.b64", "arrive"},
    {"mbarrier.arrive.expect_tx.shared::cta.b64", "arrive_expecting"},
    {"mbarrier.try_wait.parity.shared::cta.b64", "try_wait"},
    {"cp.async.bulk.tensor.#d.shared::cluster.global.tile.mbarrier::complete_tx::bytes",
     "copy_by_map<#>"},
};

// Whether an opcode is of a pattern, and what stands for its `#`.
bool matches(std::string_view pattern, std::string_view opcode, std::string& number) {
  const size_t mark = pattern.find('#');
  if (mark == std::string_view::npos) return pattern == opcode;
  const std::string_view before = pattern.substr(0, mark), after = pattern.substr(mark + 1);
  if (!opcode.starts_with(before)) return false;
  size_t end = mark;
  while (end < opcode.size() && std::isdigit(static_cast<unsigned char>(opcode[end]))) ++end;
  if (end == mark || opcode.substr(end) != after) return false;
  number = opcode.substr(mark, end - mark);
  return true;
}

}  // namespace

std::string function_of(std::string_view opcode) {
  for (const Instruction& instruction : kInstructions) {
    std::string number;
    if (!matches(instruction.opcode, opcode, number)) continue;
    std::string function(instruction.function);
    if (const size_t mark = function.find('#'); mark != std::string::npos)
      function.replace(mark, 1, number);
    return function;
  }
  return "";
}

}  // namespace emulator
