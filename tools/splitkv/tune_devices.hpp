// Which devices `splitkv tune` measures on, and what is known of them.
#pragma once

#include <string>
#include <vector>

#include "compiler/target.hpp"
#include "tools/splitkv/tune_bench.hpp"
#include "tools/splitkv/tune_page.hpp"

namespace splitkv::tool {

struct TuneDevice {
  std::string name;  // "cuda:0", "cpu"
  Target target;
  TuningVersions versions;
};

// words: what --devices says, "all" or names. Refused: a device twice, and a CPU beside others,
// whose measurements would disturb each other.
Result<std::vector<TuneDevice>> chosen_devices(const std::vector<std::string>& words);

// What --target says; empty: cuda:0, else the CPU.
Result<TuneDevice> chosen_tune_device(const std::string& words);

// Devices that records do not tell apart, by their numbers in the list: equal tuned_target(). In
// the order of their first ones.
std::vector<std::vector<size_t>> machines_of(const std::vector<TuneDevice>& devices);

// With the model's name as the driver or the system gives it.
ReportedDevice reported_device(const TuneDevice& device);

}  // namespace splitkv::tool
