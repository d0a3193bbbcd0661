#include "runtime/kernel_key.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "runtime/splitkv.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace splitkv {
namespace {

// Raised whenever the meaning of a key's words changes, or what is compiled of the same source.
constexpr int kKeySchema = 1;
constexpr std::string_view kSourceFollows = "\nsource:\n";
constexpr std::string_view kCuda = "cuda", kLlvmIr = "llvm_ir";

std::string digest_of(const std::string& text) {
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

std::string stripped(SourceLanguage language, std::string_view rest) {
  const std::string_view comment = language == SourceLanguage::cuda ? "//" : ";";
  std::string kept;
  kept.reserve(rest.size());
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\n'), rest.size() - 1) + 1;
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end);
    const size_t first = line.find_first_not_of(" \t");
    if (first == std::string_view::npos || !line.substr(first).starts_with(comment)) kept += line;
  }
  return kept;
}

}  // namespace

std::string without_comment_lines(const KernelSource& source) {
  return stripped(source.language, source.text);
}

KernelKey kernel_key(const KernelSource& source, const CompilerFacts& facts) {
  const std::string head = fmt::format(
      "schema={}\nsplitkv={}\nlanguage={}\ncompiler={}\noptions={}\narch={}\nsplit={}\nreduce={}{}",
      kKeySchema, splitkv_version(), source.language == SourceLanguage::cuda ? kCuda : kLlvmIr,
      facts.compiler, fmt::join(facts.options, " "), facts.arch, source.split_entry,
      source.reduce_entry, kSourceFollows);
  return key_of(head, source.text);
}

KernelKey pack_key(const KernelSource& source, const std::string& arch) {
  KernelKey key;
  key.text = fmt::format(
      "pack_schema={}\nsplitkv={}\nlanguage={}\narch={}\nsplit={}\nreduce={}\nsource={}\n",
      kKeySchema, splitkv_version(), source.language == SourceLanguage::cuda ? kCuda : kLlvmIr,
      arch, source.split_entry, source.reduce_entry, digest_of(without_comment_lines(source)));
  key.digest = digest_of(key.text);
  return key;
}

KernelKey key_of_pack_text(std::string_view text) {
  return {std::string(text), digest_of(std::string(text))};
}

KernelKey key_of(std::string_view head, std::string_view source) {
  const bool is_cuda = key_word(head, "language") == kCuda;
  KernelKey key;
  key.text = head;
  key.text += stripped(is_cuda ? SourceLanguage::cuda : SourceLanguage::llvm_ir, source);
  key.digest = digest_of(key.text);
  return key;
}

std::string_view key_head(const KernelKey& key) {
  const size_t at = key.text.find(kSourceFollows);
  if (at == std::string::npos) return key.text;
  return std::string_view(key.text).substr(0, at + kSourceFollows.size());
}

std::string_view key_word(std::string_view head, std::string_view name) {
  while (!head.empty()) {
    const std::string_view line = head.substr(0, head.find('\n'));
    if (line.size() > name.size() && line.starts_with(name) && line[name.size()] == '=') {
      return line.substr(name.size() + 1);
    }
    head.remove_prefix(std::min(line.size() + 1, head.size()));
  }
  return {};
}

}  // namespace splitkv
