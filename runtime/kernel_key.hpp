// The key of compiled code. This is the only place that decides what a key is made of.
#pragma once

#include <string>
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

// The lines of the source that are not wholly a comment.
std::string without_comment_lines(const KernelSource& source);

}  // namespace splitkv
