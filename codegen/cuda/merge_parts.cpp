#include "codegen/cuda/merge_parts.hpp"

#include <fmt/format.h>

#include <cassert>

#include "codegen/cuda/flatten.hpp"
#include "codegen/merge_source.hpp"
#include "codegen/writer.hpp"
#include "compiler/text.hpp"

namespace splitkv {

KernelSource emit_merge_cuda(Merge form, LseOutput base) {
  assert(form != Merge::automatic && base != LseOutput::none);
  const std::string entry = fmt::format("splitkv_merge_{}_{}", name(form), name(base));
  const std::string_view roots[] = {"merge_parts.cuh"};
  Writer out;
  out.line(fmt::format("// merge form={} base={}", name(form), name(base)));
  out.line();
  out.raw(flatten_templates(roots));
  out.line("// ---- this merge ----");
  out.line(fmt::format("static_assert(sizeof(splitkv::MergeArgs) == {});", sizeof(MergeArgs)));
  out.line();
  out.line(fmt::format("extern \"C\" __global__ void __launch_bounds__({}, 1)", 32 * kMergeWarps));
  out.open(fmt::format("    {}(const __grid_constant__ splitkv::MergeArgs args) {{", entry));
  out.line(
      fmt::format("splitkv::merge_parts<splitkv::Merge::{}, splitkv::LseOutput::{}>(args, {});",
                  name(form), name(base), kMergeWarps));
  out.close("}");
  return {SourceLanguage::cuda, out.take(), entry, ""};
}

}  // namespace splitkv
