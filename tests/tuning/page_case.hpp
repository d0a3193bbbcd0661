// Data for the tuning page: numbers that can be checked by hand and texts that must be escaped.
#pragma once

#include "tools/splitkv/tune_page.hpp"

namespace splitkv::tuning_test {

inline constexpr const char* kHostile = "</title><script>document.body.remove()</script>&amp;\"'";

// Two problems on two devices. The first was measured on four workloads, with hostile texts
// wherever text may come from outside; the second is known from a file.
tool::TuneReportData reported();

}  // namespace splitkv::tuning_test
