#pragma once

#include <string>

namespace splitkv::pack_test {

// Writes a file with a tuning record of the problem on one thread of this machine, one batch row of
// 4096 tokens; its schedule, which nothing else would choose, has partition=fixed splits=7. Returns
// that schedule's text.
std::string record_seven_splits(const std::string& problem, const std::string& path);

}  // namespace splitkv::pack_test
