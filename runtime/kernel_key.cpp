#include "runtime/kernel_key.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "runtime/splitkv.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace splitkv {
namespace {

// Raised whenever the meaning of a key's words changes.
constexpr int kKeySchema = 1;

std::string digest_of(const std::string& text) {
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace

std::string without_comment_lines(const KernelSource& source) {
  const std::string_view comment = source.language == SourceLanguage::cuda ? "//" : ";";
  std::string kept;
  kept.reserve(source.text.size());
  std::string_view rest = source.text;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\n'), rest.size() - 1) + 1;
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end);
    const size_t first = line.find_first_not_of(" \t");
    if (first == std::string_view::npos || !line.substr(first).starts_with(comment)) kept += line;
  }
  return kept;
}

KernelKey kernel_key(const KernelSource& source, const CompilerFacts& facts) {
  KernelKey key;
  key.text = fmt::format(
      "schema={}\nsplitkv={}\nlanguage={}\ncompiler={}\noptions={}\narch={}\nsplit={}\nreduce={}\n"
      "source:\n{}",
      kKeySchema, splitkv_version(), source.language == SourceLanguage::cuda ? "cuda" : "llvm_ir",
      facts.compiler, fmt::join(facts.options, " "), facts.arch, source.split_entry,
      source.reduce_entry, without_comment_lines(source));
  key.digest = digest_of(key.text);
  return key;
}

}  // namespace splitkv
