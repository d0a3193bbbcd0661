#include "tools/splitkv/bench_arithmetic.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "compiler/arithmetic.hpp"

namespace splitkv::tool {
namespace {

constexpr int64_t kMostSets = 4096;
constexpr int64_t kMostLaunches = 4096;
constexpr double kGraphUs = 500;
constexpr double kLaunchUs = 2;

}  // namespace

Rotation rotation_of(const RotationFacts& facts) {
  const int64_t cold_bytes = 3 * facts.l2_bytes;
  const int64_t read = std::max<int64_t>(1, facts.kv_bytes);
  const int64_t wanted = read > cold_bytes ? 1 : std::max<int64_t>(2, ceil_div(cold_bytes, read));
  const int64_t fit = facts.memory_bytes / std::max<int64_t>(1, facts.set_bytes);
  Rotation rotation;
  rotation.sets = std::clamp<int64_t>(wanted, 1, std::clamp<int64_t>(fit, 1, kMostSets));
  rotation.cold = rotation.sets >= wanted;
  const double launch_us = kLaunchUs + double(facts.kv_bytes) / facts.bytes_per_us;
  const int64_t least = facts.kv_bytes >= 1'000'000'000 ? 8 : 20;
  const int64_t launches =
      std::clamp<int64_t>(int64_t(std::ceil(kGraphUs / launch_us)), least, kMostLaunches);
  rotation.launches = ceil_div(launches, rotation.sets) * rotation.sets;
  return rotation;
}

std::optional<std::string> impossible_floor(double measured_us, double handed_us, double step_us) {
  if (handed_us <= 0) return std::nullopt;
  const double least = 0.98 * (handed_us - step_us / 2);
  if (measured_us >= least) return std::nullopt;
  return fmt::format(
      "the floor of {:.2f} us lies more than 2 % below the {:g} us that the fastest read of these "
      "bytes takes on this card: the run is broken",
      measured_us, handed_us);
}

}  // namespace splitkv::tool
