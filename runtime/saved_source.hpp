// Source that did not compile is kept in a file of its own, so that the error can name it.
#pragma once

#include <string>

#include "codegen/kernel_source.hpp"

namespace splitkv {

// The path of a new private file in $TMPDIR, else /tmp, that holds the source; where none can be
// written, a text that says so.
std::string save_source(const KernelSource& source);

}  // namespace splitkv
