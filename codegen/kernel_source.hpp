// Values in, source out. The problem and schedule must have passed the verifier for the target.
#pragma once

#include <string>
#include <string_view>

#include "compiler/problem.hpp"
#include "compiler/schedule.hpp"
#include "compiler/target.hpp"

namespace splitkv {

enum class SourceLanguage { cuda, llvm_ir };

struct KernelSource {
  SourceLanguage language = SourceLanguage::cuda;
  std::string text;          // first line: a comment with the problem and schedule in text form
  std::string split_entry;   // extern "C" names
  std::string reduce_entry;  // empty when reduce=last_block

  bool operator==(const KernelSource&) const = default;
};

// The CUDA unit with this entry alone: the same text without the definitions of the others, which
// stand at its end. Units of one source compile side by side.
std::string cuda_unit_of(const KernelSource& source, std::string_view entry);

// Self-contained CUDA C++: NVRTC and plain nvcc -std=c++20 compile it without any header.
KernelSource emit_cuda(const Problem& problem, const Schedule& schedule);

// Textual LLVM 19 IR. Entries: void name(ptr LaunchArgs, i64 block), called once for each block of
// the launch shape's grids, from any threads.
KernelSource emit_llvm(const Problem& problem, const Schedule& schedule, const Target& target);

// By the target's kind.
KernelSource emit(const Problem& problem, const Schedule& schedule, const Target& target);

}  // namespace splitkv
