// The key of compiled code. This is the only place that decides what a key is made of.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "codegen/kernel_source.hpp"

namespace splitkv {

// Who turns source into machine code, and for what: everything besides the source that changes the
// compiled bytes.
struct CompilerFacts {
  std::string compiler;              // "NVRTC 13.0", "LLVM 19.1.7"
  std::vector<std::string> options;  // in the order in which they are passed
  std::string arch;  // "sm_90a"; for the CPU its LLVM name, features and vector width

  bool operator==(const CompilerFacts&) const = default;
};

struct KernelKey {
  std::string text;    // all that went in, in order: kept beside the digest
  std::string digest;  // 32 hexadecimal digits, XXH3-128 of the text

  bool operator==(const KernelKey&) const = default;
};

// In order: key schema, library version, language, compiler, options, arch, source without comment
// lines. Comment lines hold the text forms, where launch-time values (splits, blocks) stand. Never
// paths, times or host names.
KernelKey kernel_key(const KernelSource& source, const CompilerFacts& facts);

// All of a key's text before the source, and the key that such a head and a source make:
// key_of(key_head(kernel_key(source, facts)), source.text) == kernel_key(source, facts).
std::string_view key_head(const KernelKey& key);
KernelKey key_of(std::string_view head, std::string_view source);

// A key for code that was compiled elsewhere, to be found without asking a compiler what it is: key
// schema, library version, language, arch, entries and the digest of the source without comment
// lines. The text is all of it; arch as in CompilerFacts.
KernelKey pack_key(const KernelSource& source, const std::string& arch);
KernelKey key_of_pack_text(std::string_view text);  // of that text, with its digest

// The value of a line "name=value" of a head; empty where there is none.
std::string_view key_word(std::string_view head, std::string_view name);

// The lines of the source that are not wholly a comment.
std::string without_comment_lines(const KernelSource& source);

}  // namespace splitkv
