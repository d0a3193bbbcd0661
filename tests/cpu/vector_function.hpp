// Compiles one emitted vector function and runs it over arrays.
#pragma once

#include <functional>
#include <stdexcept>
#include <vector>

#include "codegen/llvm/ir_writer.hpp"
#include "runtime/cpu/cpu_module.hpp"
#include "runtime/cpu/host.hpp"

namespace splitkv::test {

// Block i takes `lanes` elements of `in` at i * lanes (q of the launch arguments) to the same place
// of `out`.
using VectorBody = std::function<void(ir::Writer&, ir::Value in, ir::Value out, ir::Value first)>;

class VectorFunction {
 public:
  VectorFunction(const std::string& target_text, int lanes, const VectorBody& body)
      : lanes_(lanes) {
    ir::Writer w;
    const auto p = w.begin_function("", "vector_function",
                                    {{ir::pointer, "args", ""}, {ir::i64, "block", ""}});
    const auto field = [&](size_t offset, const char* name) {
      return w.load(ir::pointer, w.byte_offset(p[0], ir::i64_constant(int64_t(offset)), "field"), 8,
                    name);
    };
    const ir::Value first = w.mul(p[1], ir::i64_constant(lanes), "first");
    body(w, field(offsetof(LaunchArgs, q), "in"), field(offsetof(LaunchArgs, out), "out"), first);
    w.end_function();
    const KernelSource source{SourceLanguage::llvm_ir, w.finish("nounwind"), "vector_function", ""};
    Result<CpuModule> module = compile_cpu(source, *resolve_cpu_target(target_text, 1));
    if (!module) throw std::runtime_error(module.error().message);
    module_ = std::move(*module);
  }

  // The arrays hold a multiple of `lanes` elements.
  void operator()(const void* in, void* out, size_t elements) const {
    LaunchArgs args;
    args.q = in;
    args.out = out;
    for (size_t i = 0; i < elements / lanes_; ++i) module_.split()(&args, int64_t(i));
  }

 private:
  int lanes_;
  CpuModule module_;
};

}  // namespace splitkv::test
