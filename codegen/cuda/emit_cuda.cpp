// The CUDA unit: template headers, then a Config of constants, the score functor, the two entries,
// and assertions that host and device agree.
#include <fmt/format.h>

#include "codegen/cuda/config.hpp"
#include "codegen/cuda/flatten.hpp"
#include "codegen/cuda/score.hpp"
#include "codegen/entry_names.hpp"
#include "codegen/kernel_source.hpp"
#include "codegen/launch_args.hpp"
#include "codegen/launch_shape.hpp"
#include "codegen/writer.hpp"
#include "compiler/text.hpp"

namespace splitkv {
namespace {

constexpr const char* split_name = "splitkv_split";
constexpr const char* reduce_name = "splitkv_reduce";

struct FamilyNames {
  std::string_view root;  // template header
  const char* split;      // its split function
  const char* memory;     // its shared memory
};

FamilyNames names_of(Family family) {
  if (family == Family::wgmma) return {"split_wgmma.cuh", "split_wgmma", "WgmmaMemory"};
  if (family == Family::mma) return {"split_mma.cuh", "split_mma", "MmaMemory"};
  return {"split_simt.cuh", "split_simt", "SimtMemory"};
}

void write_agreement(Writer& out, const FamilyNames& family, const LaunchShape& shape) {
  out.line("// What the host launches with.");
  out.line(fmt::format("static_assert(sizeof(LaunchArgs) == {});", sizeof(LaunchArgs)));
  out.line(fmt::format("static_assert(32 * config.warps == {});", shape.split_threads));
  out.line(fmt::format("static_assert({}<config>::bytes == {});", family.memory,
                       shape.split_smem_bytes));
}

void write_entries(Writer& out, const FamilyNames& family, const Schedule& schedule,
                   const LaunchShape& shape) {
  const std::string cluster =
      schedule.cluster > 1 ? fmt::format(" __cluster_dims__({}, 1, 1)", schedule.cluster) : "";
  out.line(fmt::format("extern \"C\" __global__ void __launch_bounds__({}, 1){}",
                       shape.split_threads, cluster));
  out.open(fmt::format("    {}(const __grid_constant__ splitkv::LaunchArgs args) {{", split_name));
  // Swizzles of the copy engine count from multiples of 1024 bytes.
  out.line(schedule.loads == Loads::tensor ? "extern __shared__ __align__(1024) float4 shared[];"
                                           : "extern __shared__ float4 shared[];");
  out.line(fmt::format("splitkv::{}<splitkv::config, splitkv::Score>(args, &shared[0].x);",
                       family.split));
  out.close("}");
  if (schedule.reduce != Reduce::kernel) return;
  out.line();
  out.line(
      fmt::format("extern \"C\" __global__ void __launch_bounds__({}, 1)", shape.reduce_threads));
  out.open(fmt::format("    {}(const __grid_constant__ splitkv::LaunchArgs args) {{", reduce_name));
  out.line(fmt::format(
      "splitkv::reduce_sequence<splitkv::config, splitkv::Score, {}>(args, blockIdx.x);",
      shape.reduce_threads / 32));
  out.close("}");
}

}  // namespace

std::string cuda_unit_of(const KernelSource& source, std::string_view entry) {
  constexpr std::string_view begin_of_entry = "\nextern \"C\" __global__";
  const std::string_view text = source.text;
  size_t begin = text.find(begin_of_entry);
  std::string unit(text.substr(0, begin));
  while (begin != std::string_view::npos) {
    const size_t end = text.find(begin_of_entry, begin + 1);
    const std::string_view definition = text.substr(begin, end - begin);
    if (definition.find(fmt::format(" {}(", entry)) != std::string_view::npos) unit += definition;
    begin = end;
  }
  return unit;
}

KernelSource emit_cuda(const Problem& problem, const Schedule& schedule) {
  // splits and blocks are launch-time values: the code serves all of them, and is the same for all.
  Schedule code = schedule;
  code.splits = schedule.cluster;  // the fewest
  code.blocks = Schedule{}.blocks;
  Schedule several = schedule;  // a launch that has partials to reduce
  (schedule.partition == Partition::flat ? several.blocks : several.splits) = 2 * schedule.cluster;
  const LaunchShape shape = launch_shape(problem, several, 1);
  Writer out;
  out.line(fmt::format("// {} | {}", print(problem), print(code)));
  out.line();
  const FamilyNames family = names_of(schedule.family);
  const std::string_view roots[] = {family.root};
  out.raw(flatten_templates(roots));
  const size_t own = out.size();
  out.line("// ---- this problem ----");
  out.line("namespace splitkv {");
  out.line();
  write_config(out, problem, schedule);
  out.line();
  write_score(out, problem);
  out.line();
  write_agreement(out, family, shape);
  out.line();
  out.line("}  // namespace splitkv");
  out.line();
  write_entries(out, family, schedule, shape);
  return with_readable_entries({SourceLanguage::cuda, out.take(), split_name,
                                schedule.reduce == Reduce::kernel ? reduce_name : ""},
                               problem, own);
}

}  // namespace splitkv
