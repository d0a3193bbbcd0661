// Predictions of many cases by the cost model under constants that change: what
// tools/fit_cost_model talks to. Reads lines from stdin:
//   case <tab> TARGET <tab> GB/s <tab> PROBLEM <tab> ROWSxLENGTH,ROWSxLENGTH,... <tab> SCHEDULE
//                                GB/s: what a plain read reached beside it; 0: the target's fact
//   constants NAME=VALUE ...     answered with a line: the times of all cases so far, in
//   microseconds names                        answered with a line: NAME=VALUE of every constant,
//   as compiled in
#include <fmt/format.h>

#include <charconv>
#include <cstdio>
#include <iostream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "compiler/cost_model.hpp"
#include "compiler/text.hpp"
#include "compiler/verifier.hpp"

namespace splitkv {
namespace {

using Constant = double CostConstants::*;

const std::pair<const char*, Constant> kConstants[] = {
    {"launch_us", &CostConstants::launch_us},
    {"early_launch_us", &CostConstants::early_launch_us},
    {"large_cluster_us", &CostConstants::large_cluster_us},
    {"start_us", &CostConstants::start_us},
    {"flat_us", &CostConstants::flat_us},
    {"sequence_us", &CostConstants::sequence_us},
    {"join_us", &CostConstants::join_us},
    {"join_read_us", &CostConstants::join_read_us},
    {"wave_us", &CostConstants::wave_us},
    {"peak_share", &CostConstants::peak_share},
    {"saturation", &CostConstants::saturation},
    {"crowding", &CostConstants::crowding},
    {"uneven_share", &CostConstants::uneven_share},
    {"fill_share", &CostConstants::fill_share},
    {"step_us", &CostConstants::step_us},
    {"operand_us", &CostConstants::operand_us},
    {"panel_share", &CostConstants::panel_share},
    {"widening_share", &CostConstants::widening_share},
    {"warp_share", &CostConstants::warp_share},
    {"latency_us", &CostConstants::latency_us},
    {"simt_issue", &CostConstants::simt_issue},
    {"l2_share", &CostConstants::l2_share},
    {"late_share", &CostConstants::late_share},
    {"last_block_us", &CostConstants::last_block_us},
    {"round_us", &CostConstants::round_us},
    {"round_partial_us", &CostConstants::round_partial_us},
    {"second_launch_us", &CostConstants::second_launch_us},
    {"early_reduce_us", &CostConstants::early_reduce_us},
    {"kernel_partial_us", &CostConstants::kernel_partial_us},
    {"cluster_us", &CostConstants::cluster_us},
    {"cluster_block_us", &CostConstants::cluster_block_us},
    {"cluster_value_us", &CostConstants::cluster_value_us},
    {"clusters_us", &CostConstants::clusters_us},
    {"clusters_partial_us", &CostConstants::clusters_partial_us},
};

struct Case {
  Target target;
  Problem problem;
  std::vector<RowGroup> rows;
  Schedule schedule;
};

std::vector<std::string> fields_of(const std::string& line, char separator) {
  std::vector<std::string> fields;
  std::istringstream stream(line);
  for (std::string field; std::getline(stream, field, separator);) fields.push_back(field);
  return fields;
}

Result<std::vector<RowGroup>> rows_of(const std::string& text) {
  std::vector<RowGroup> rows;
  for (const std::string& field : fields_of(text, ',')) {
    RowGroup group;
    const char* end = field.data() + field.size();
    const auto [at, fault] = std::from_chars(field.data(), end, group.rows);
    if (fault != std::errc() || at == end || *at != 'x' ||
        std::from_chars(at + 1, end, group.kv_len).ptr != end || group.rows < 1)
      return invalid_argument(fmt::format("rows {}: 31x1024,1x131072 would work", text));
    rows.push_back(group);
  }
  if (rows.empty()) return invalid_argument("rows are missing: 1x8192 would work");
  return rows;
}

Result<Case> case_of(const std::string& line) {
  const std::vector<std::string> fields = fields_of(line, '\t');
  if (fields.size() != 6)
    return invalid_argument(fmt::format("{}: a case has 5 fields behind its name", line));
  auto target = parse_target(fields[1]);
  if (!target) return target.error();
  double read_gb_per_s = 0;
  std::from_chars(fields[2].data(), fields[2].data() + fields[2].size(), read_gb_per_s);
  if (read_gb_per_s > 0) target->read_gb_per_s = read_gb_per_s;
  const auto problem = parse_problem(fields[3]);
  if (!problem) return problem.error();
  const auto rows = rows_of(fields[4]);
  if (!rows) return rows.error();
  const auto schedule = parse_schedule(fields[5]);
  if (!schedule) return schedule.error();
  if (const auto refusal = verify(*problem, *schedule, *target)) return to_error(*refusal);
  return Case{*target, *problem, *rows, *schedule};
}

Result<CostConstants> constants_of(const std::string& line) {
  CostConstants constants;
  std::istringstream words(line);
  std::string word;
  words >> word;
  while (words >> word) {
    const size_t sign = word.find('=');
    const std::string wanted = word.substr(0, sign);
    bool found = false;
    for (const auto& [name, constant] : kConstants) {
      if (wanted != name || sign == std::string::npos) continue;
      const char* end = word.data() + word.size();
      found = std::from_chars(word.data() + sign + 1, end, constants.*constant).ptr == end;
    }
    if (!found) return invalid_argument(fmt::format("{}: no constant and value", word));
  }
  return constants;
}

std::string times_of(const std::vector<Case>& cases, const CostConstants& constants) {
  std::string line;
  for (const Case& one : cases)
    line += fmt::format(
        "{:.4f} ", predict(one.problem, one.rows, one.schedule, one.target, constants).total_us());
  return line;
}

std::string compiled_in() {
  std::string line;
  for (const auto& [name, constant] : kConstants)
    line += fmt::format("{}={} ", name, CostConstants().*constant);
  return line;
}

int serve() {
  std::vector<Case> cases;
  for (std::string line; std::getline(std::cin, line);) {
    if (line.starts_with("case\t")) {
      Result<Case> one = case_of(line);
      if (!one) {
        fmt::print(stderr, "splitkv_predict_cases: {}\n", one.error().message);
        return 2;
      }
      cases.push_back(std::move(*one));
      continue;
    }
    const bool names = line == "names";
    const Result<CostConstants> constants = constants_of(names ? "constants" : line);
    if (!constants) {
      fmt::print(stderr, "splitkv_predict_cases: {}\n", constants.error().message);
      return 2;
    }
    fmt::print("{}\n", names ? compiled_in() : times_of(cases, *constants));
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace splitkv

int main() { return splitkv::serve(); }
