// A bench without a device, whose clock only moves when something is asked of it: times come from a
// rule, and chosen schedules misbehave.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "runtime/tuning_bench.hpp"

namespace splitkv::tuning_test {

class ScriptedBench final : public TuningBench {
 public:
  // Microseconds of a schedule at a point whose floor is 100.
  using Rule = std::function<double(const Schedule&, const TuningPoint&)>;
  explicit ScriptedBench(Rule rule) : rule_(std::move(rule)) {}

  // What becomes of schedules whose text holds the words. stage: compile, check or measure.
  struct Fault {
    std::string words, stage, why;
    double seconds = 0;  // that it takes, for those that hang
  };
  std::vector<Fault> faults;
  // Of one request each, in seconds.
  double compile_s = 0.01, check_s = 0.001, measure_s = 0.002;
  std::string no_floor_at;  // the point that does not fit in memory

  double now_s = 0;
  int prepared = 0;
  int most_at_once = 0;                             // schedules of one prepare
  std::vector<std::string> checked;                 // texts in order
  std::map<std::string, int> measured;              // by text
  std::map<std::string, std::vector<int>> repeats;  // by text
  std::vector<std::string> unchecked_measurements;  // must stay empty

  int workers() const override { return 4; }
  std::vector<Outcome> prepare(const std::vector<Schedule>& schedules, double limit_s) override;
  Outcome check(const Schedule& schedule, double limit_s) override;
  Result<double> floor_us(const TuningPoint& point, double limit_s) override;
  Result<double> time_us(const Schedule& schedule, const TuningPoint& point, int repeat,
                         double limit_s) override;

 private:
  Outcome fate(const Schedule& schedule, const std::string& stage, double seconds, double limit_s);

  const Rule rule_;
};

}  // namespace splitkv::tuning_test
