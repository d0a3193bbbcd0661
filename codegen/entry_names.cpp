#include "codegen/entry_names.hpp"

#include <fmt/format.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace splitkv {
namespace {

std::string description_of(const Problem& problem) {
  std::string text(name(problem.q_dtype));
  if (problem.k_dtype != problem.q_dtype) text += fmt::format("_{}", name(problem.k_dtype));
  text += fmt::format("_h{}x{}_d{}", problem.q_heads, problem.kv_heads, problem.dim_qk);
  if (problem.dim_v != problem.dim_qk) text += fmt::format("x{}", problem.dim_v);
  return text;
}

// Every call and definition of a function in C++ or IR.
void rename(std::string& text, const std::string& from, const std::string& to) {
  const std::string used = from + '(';
  for (size_t at = text.find(used); at != std::string::npos; at = text.find(used, at)) {
    text.replace(at, from.size(), to);
    at += to.size();
  }
}

}  // namespace

KernelSource with_readable_entries(KernelSource source, const Problem& problem, size_t begin) {
  const std::string_view own = std::string_view(source.text).substr(begin);
  const uint32_t digest = uint32_t(XXH3_64bits(own.data(), own.size()));
  const std::string ending = fmt::format("_{}_{:08x}", description_of(problem), digest);
  for (std::string* entry : {&source.split_entry, &source.reduce_entry}) {
    if (entry->empty()) continue;
    rename(source.text, *entry, *entry + ending);
    *entry += ending;
  }
  return source;
}

}  // namespace splitkv
