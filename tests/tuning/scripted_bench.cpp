#include "tests/tuning/scripted_bench.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/text.hpp"

namespace splitkv::tuning_test {

Outcome ScriptedBench::fate(const Schedule& schedule, const std::string& stage, double seconds,
                            double limit_s) {
  const std::string text = print(schedule);
  for (const Fault& fault : faults) {
    if (fault.stage != stage || text.find(fault.words) == std::string::npos) continue;
    now_s += std::min(limit_s, std::max(seconds, fault.seconds));
    return Error{Status::device_error, fault.why};
  }
  now_s += seconds;
  return Unit{};
}

std::vector<Outcome> ScriptedBench::prepare(const std::vector<Schedule>& schedules,
                                            double limit_s) {
  most_at_once = std::max(most_at_once, int(schedules.size()));
  std::vector<Outcome> outcomes;
  for (const Schedule& schedule : schedules) {
    ++prepared;
    outcomes.push_back(fate(schedule, "compile", compile_s, limit_s));
  }
  return outcomes;
}

Outcome ScriptedBench::check(const Schedule& schedule, double limit_s) {
  checked.push_back(print(schedule));
  return fate(schedule, "check", check_s, limit_s);
}

Result<double> ScriptedBench::floor_us(const TuningPoint& point, double) {
  now_s += measure_s;
  if (print(point) == no_floor_at) return Error{Status::out_of_memory, "too large"};
  return 100.0;
}

Result<double> ScriptedBench::time_us(const Schedule& schedule, const TuningPoint& point,
                                      int repeat, double limit_s) {
  const std::string text = print(schedule);
  if (std::find(checked.begin(), checked.end(), text) == checked.end()) {
    unchecked_measurements.push_back(text);
  }
  ++measured[text];
  repeats[text].push_back(repeat);
  const Outcome fine = fate(schedule, "measure", measure_s * repeat, limit_s);
  if (!fine) return fine.error();
  return rule_(schedule, point);
}

}  // namespace splitkv::tuning_test
