#include "tools/splitkv/offline.hpp"

#include <fmt/format.h>

#include <cstdio>

#include "codegen/entry_names.hpp"
#ifdef SPLITKV_HAS_CPU
#include "runtime/cpu/cpu_module.hpp"
#endif
#ifdef SPLITKV_HAS_CUDA
#include "runtime/cuda/nvrtc.hpp"
#endif

namespace splitkv::tool {
namespace {

[[maybe_unused]] Error not_built(const char* option) {
  return {Status::unsupported,
          fmt::format("this build has {}=OFF; a build with {}=ON would work", option, option)};
}

[[maybe_unused]] Result<StoredCode> compile_with_nvrtc([[maybe_unused]] const KernelSource& source,
                                                       [[maybe_unused]] const Target& target) {
#ifdef SPLITKV_HAS_CUDA
  Result<Cubin> cubin = compile_cuda(source, target.arch);
  if (!cubin) return cubin.error();
  return StoredCode{std::move(cubin->images), std::move(cubin->log), cubin->compile_ms};
#else
  return not_built("SPLITKV_CUDA");
#endif
}

[[maybe_unused]] Result<StoredCode> compile_with_llvm([[maybe_unused]] const KernelSource& source,
                                                      [[maybe_unused]] const Target& target) {
#ifdef SPLITKV_HAS_CPU
  Result<CpuObject> object = compile_cpu_object(source, target);
  if (!object) return object.error();
  return StoredCode{{std::move(object->bytes)}, "", object->compile_ms};
#else
  return not_built("SPLITKV_CPU");
#endif
}

}  // namespace

RuntimeOptions warnings_to_stderr() {
  RuntimeOptions options;
  options.log = [](void*, splitkv_log_level level, const char* line) {
    if (level <= SPLITKV_LOG_WARNING) fmt::print(stderr, "splitkv: {}\n", line);
  };
  return options;
}

Result<CompilerFacts> compiler_facts(const Target& target) {
  if (target.kind == TargetKind::cuda) {
#ifdef SPLITKV_HAS_CUDA
    return nvrtc_facts(target.arch);
#else
    return not_built("SPLITKV_CUDA");
#endif
  }
#ifdef SPLITKV_HAS_CPU
  const Result<CpuCompiler> compiler = cpu_compiler(target);
  if (!compiler) return compiler.error();
  return facts_of(*compiler, target);
#else
  return not_built("SPLITKV_CPU");
#endif
}

Result<DiskCache::Found> compile_offline(Services& services, const KernelSource& source,
                                         const Target& target, const CompilerFacts& facts) {
  return find_or_make(services, source, kernel_key(source, facts), [&] {
    return target.kind == TargetKind::cuda ? compile_with_nvrtc(source, target)
                                           : compile_with_llvm(source, target);
  });
}

std::string describe_resources([[maybe_unused]] const StoredCode& code,
                               [[maybe_unused]] int64_t dynamic_bytes) {
  std::string text;
#ifdef SPLITKV_HAS_CUDA
  for (const PtxasEntry& entry : parse_ptxas_log(code.log)) {
    const bool is_split = names_split(entry.name);
    text +=
        fmt::format("{}{} {} registers {} spilled {} shared", text.empty() ? "" : "; ", entry.name,
                    entry.registers, entry.spill_store_bytes + entry.spill_load_bytes,
                    entry.smem_bytes + (is_split ? dynamic_bytes : 0));
  }
#endif
  return text;
}

size_t image_bytes(const StoredCode& code) {
  size_t bytes = 0;
  for (const std::string& image : code.images) bytes += image.size();
  return bytes;
}

}  // namespace splitkv::tool
