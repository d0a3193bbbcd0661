// Names of a kernel's entries as profilers and debuggers show them: what is computed can be read,
// and a digest tells kernels apart that look alike.
#pragma once

#include <cstddef>
#include <string_view>

#include "codegen/kernel_source.hpp"

namespace splitkv {

// The source with its entries renamed, in the text too: splitkv_split becomes
// "splitkv_split_bf16_h32x8_d128_0f3a9c12". These are q's type (then K's where it is another),
// query heads x kv heads, the head dim (then v's where it is another) and a digest of the text from
// `begin` on, which must hold all that tells one problem's code from another's and none of its
// comments.
KernelSource with_readable_entries(KernelSource source, const Problem& problem, size_t begin);

// Whether a name is that of a split kernel, as a compiler's log has it.
constexpr bool names_split(std::string_view entry) { return entry.starts_with("splitkv_split"); }

}  // namespace splitkv
