// Compiling for a target that need not be here.
#pragma once

#include <string>
#include <vector>

#include "codegen/kernel_source.hpp"
#include "compiler/result.hpp"
#include "compiler/target.hpp"
#include "runtime/platform.hpp"

namespace splitkv::tool {

// Warnings of the library to stderr, everything else to nobody.
RuntimeOptions warnings_to_stderr();

// Who would compile for the target. library_missing; unsupported where the build leaves it out.
Result<CompilerFacts> compiler_facts(const Target& target);

// The code from disk, or compiled and kept there.
Result<DiskCache::Found> compile_offline(Services& services, const KernelSource& source,
                                         const Target& target, const CompilerFacts& facts);

// What is known of each kernel from the compiler's log: "split 40 registers 0 spilled 2048 shared;
// reduce ...". dynamic_bytes: shared memory that the split kernel is launched with. Empty for the
// CPU.
std::string describe_resources(const StoredCode& code, int64_t dynamic_bytes);

size_t image_bytes(const StoredCode& code);

}  // namespace splitkv::tool
