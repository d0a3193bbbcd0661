// From the words on the command line to problems, targets and schedules.
#pragma once

#include <string>
#include <vector>

#include "compiler/default_schedule.hpp"
#include "compiler/problem.hpp"
#include "compiler/result.hpp"
#include "compiler/target.hpp"
#include "compiler/workload.hpp"
#include "tools/splitkv/model_config.hpp"

namespace splitkv::tool {

struct ProblemWords {
  std::string text;   // a problem; beside a model, words that override what it derives
  std::string model;  // a config.json or its folder, or empty
};

// One problem from a text (layers = 0), or those of a model.
Result<std::vector<ModelProblem>> chosen_problems(const ProblemWords& words);

// `text` with the words of `overrides` in place of its own: "kv" also replaces k and v.
std::string override_words(const std::string& text, const std::string& overrides);

// The device that `run` opens. Words: cpu, cpu:NAME, cuda, cuda:N. Empty: cuda:0 where a device
// exists, else cpu.
Result<std::string> chosen_device(const std::string& words);

// The facts to compile for. Words as above, and any architecture: cuda:sm_90a, cpu:x86-64-v3.
Result<Target> chosen_target(const std::string& words);

// What a prepare on that target would choose when it is given `words` (empty: none). Problem and
// schedule are verified.
Result<ScheduleChoice> chosen_schedule(const Problem& problem, const Workload& workload,
                                       const Target& target, const std::string& words);

}  // namespace splitkv::tool
