// Where libcuda and libnvrtc may be found, in the order in which they are tried.
#pragma once

#include <string>
#include <vector>

#include "runtime/options.hpp"

namespace splitkv::cuda {

// When SPLITKV_LIBCUDA is set: that alone. Else the copy that is already in the process, the plain
// name, then the usual paths.
std::vector<std::string> driver_candidates(const Environment& environment);

// When SPLITKV_LIBNVRTC is set: that alone. Else a copy that is already in the process, the plain
// names (13 before 12), the toolkit's folders, pip wheels and PyTorch's copies in the
// site-packages of the virtual environment and of the python3 on the PATH. Files found by walking
// are listed only where they exist; no process is started.
std::vector<std::string> nvrtc_candidates(const Environment& environment);

}  // namespace splitkv::cuda
