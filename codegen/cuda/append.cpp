#include "codegen/cuda/append.hpp"

#include <fmt/format.h>

#include "codegen/append_source.hpp"
#include "codegen/cuda/flatten.hpp"
#include "codegen/writer.hpp"
#include "compiler/text.hpp"

namespace splitkv {
namespace {

void write_side(Writer& out, const char* which, const AppendSide& side, int align) {
  const std::string_view scale = side.scale == KvScale::inl ? "inl" : name(side.scale);
  out.line(
      fmt::format(".{} = {{.dtype = DType::{}, .dim = {}, .scale = KvScale::{}, .width = {}}},",
                  which, name(side.dtype), side.dim, scale, append_width(side, align)));
}

void write_append_config(Writer& out, const Append& append) {
  out.open("constexpr AppendConfig config = {");
  out.line(fmt::format(".new_dtype = DType::{},", name(append.new_dtype)));
  out.line(fmt::format(".by_rows = {},", append.places == AppendPlaces::rows));
  write_side(out, "k", append.k, append.align);
  write_side(out, "v", append.v, append.align);
  out.line(fmt::format(".v_in_k = {},", append.v_in_k));
  out.line(fmt::format(".kv_heads = {},", append.kv_heads));
  out.line(fmt::format(".page_size = {},", append.page_size));
  out.line(fmt::format(".separate_tables = {},", append.separate_tables));
  out.line(fmt::format(".checked = {},", append.checked));
  out.close("};");
}

}  // namespace

KernelSource emit_append_cuda(const Append& append) {
  const std::string entry = entry_name(append);
  const std::string_view roots[] = {"append.cuh"};
  Writer out;
  out.line(fmt::format("// {}", print(append)));
  out.line();
  out.raw(flatten_templates(roots));
  out.line("// ---- this append ----");
  out.line("namespace splitkv {");
  out.line();
  write_append_config(out, append);
  out.line();
  out.line("// What the host launches with.");
  out.line(fmt::format("static_assert(sizeof(AppendArgs) == {});", sizeof(AppendArgs)));
  out.line();
  out.line("}  // namespace splitkv");
  out.line();
  out.line(fmt::format("extern \"C\" __global__ void __launch_bounds__({}, 1)", 32 * kAppendWarps));
  out.open(fmt::format("    {}(const __grid_constant__ splitkv::AppendArgs args) {{", entry));
  out.line(fmt::format("splitkv::append<splitkv::config>(args, {});", kAppendWarps));
  out.close("}");
  return {SourceLanguage::cuda, out.take(), entry, ""};
}

}  // namespace splitkv
