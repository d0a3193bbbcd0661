// The machine this process runs on, as a Target.
#pragma once

#include <string_view>

#include "compiler/result.hpp"
#include "compiler/target.hpp"

namespace splitkv {

// Threads that this process may run at once: its affinity mask, not the machine's size.
int usable_threads();

// "cpu": arch "host", with the vector width that this cpu's instructions offer. "cpu:x86-64-v3" and
// the like: as parse_target reads them; invalid_argument when this machine cannot run that level.
// threads: 0 for usable_threads().
Result<Target> resolve_cpu_target(std::string_view text, int threads);

}  // namespace splitkv
