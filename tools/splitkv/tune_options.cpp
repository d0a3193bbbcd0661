#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <limits>

#include "compiler/text.hpp"
#include "runtime/tuning_pool.hpp"
#include "tools/splitkv/choices.hpp"
#include "tools/splitkv/tune.hpp"

namespace splitkv::tool {
namespace {

Error bad(const std::string& option, const std::string& value, const std::string& would_fit) {
  return invalid_argument(fmt::format("{}={}: {}", option, value, would_fit));
}

Outcome check_numbers(const char* option, const std::vector<int64_t>& numbers, int64_t most) {
  if (numbers.empty()) return bad(option, "", "a list of numbers, as 1,8, would work");
  for (const int64_t number : numbers) {
    if (number < 1 || number > most) {
      return bad(option, fmt::format("{}", number), fmt::format("1 to {} would work", most));
    }
  }
  return Unit{};
}

Result<std::vector<std::string>> lines_of(const std::string& path) {
  std::ifstream file(path);
  if (!file) return bad("--file", path, "cannot be read");
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find_first_not_of(" \t\r");
    if (first == std::string::npos || line[first] == '#') continue;
    lines.push_back(line.substr(first, line.find_last_not_of(" \t\r") + 1 - first));
  }
  if (lines.empty()) return bad("--file", path, "holds no problem; a line each would work");
  return lines;
}

}  // namespace

Outcome check_options(const TuneOptions& options) {
  constexpr int64_t most_batch = 65536, most_kv_len = std::numeric_limits<int32_t>::max();
  if (const Outcome o = check_numbers("--batch", options.batch, most_batch); !o) return o;
  if (const Outcome o = check_numbers("--kv-len", options.kv_len, most_kv_len); !o) return o;
  if (options.rows != "equal" && options.rows != "ragged" && options.rows != "all") {
    return bad("--rows", options.rows, "equal, ragged or all would work");
  }
  if (!(options.budget_s >= 0) || options.budget_s > 1e6) {
    return bad("--budget", fmt::format("{}", options.budget_s), "seconds above 0 would work");
  }
  if (options.candidates < 1 || options.candidates > 10000) {
    return bad("--candidates", fmt::format("{}", options.candidates), "1 to 10000 would work");
  }
  if (!options.devices.empty() && !options.target.empty()) {
    return bad("--devices", options.devices.front(),
               "--target names a device as well; one of the two would work");
  }
  if (!options.report.empty() && options.dry_run) {
    return bad("--report", options.report,
               "nothing is measured with --dry-run; without it that would work");
  }
  if (options.problems.empty() && options.file.empty() && options.model.empty()) {
    return invalid_argument(
        "a problem is missing: \"attention q=bf16 heads=32/8 dim=128\", --file=PROBLEMS or "
        "--model=DIR/config.json would work");
  }
  return Unit{};
}

Result<std::vector<Problem>> tuned_problems(const TuneOptions& options) {
  std::vector<std::string> texts = options.problems;
  if (!options.file.empty()) {
    const auto lines = lines_of(options.file);
    if (!lines) return lines.error();
    texts.insert(texts.end(), lines->begin(), lines->end());
  }
  std::vector<Problem> problems;
  const auto add = [&](const Problem& problem) {
    if (std::find(problems.begin(), problems.end(), problem) == problems.end()) {
      problems.push_back(problem);
    }
  };
  for (const std::string& text : texts) {
    const Result<Problem> problem = parse_problem(text);
    if (!problem) return problem.error();
    add(*problem);
  }
  if (!options.model.empty()) {
    const auto parts = chosen_problems({"", options.model});
    if (!parts) return parts.error();
    for (const ModelProblem& part : *parts) add(part.problem);
  }
  return problems;
}

std::vector<TuningPoint> tuned_points(const TuneOptions& options, const Problem& problem) {
  std::vector<TuningPoint> points;
  const auto add = [&](const TuningPoint& point) {
    if (std::find(points.begin(), points.end(), point) == points.end()) points.push_back(point);
  };
  for (const int64_t batch : options.batch) {
    for (const int64_t kv_len : options.kv_len) {
      if (options.rows != "ragged" || batch == 1) add({batch, kv_len, RowLengths::equal});
      // What is cut on each row's own length is judged on equal ones.
      if (options.rows != "equal" && batch > 1 && !problem.deterministic) {
        add({batch, kv_len, RowLengths::ragged});
      }
    }
  }
  if (points.empty()) {  // deterministic, and --rows=ragged
    for (const int64_t batch : options.batch) add({batch, options.kv_len.front()});
  }
  return points;
}

std::vector<ReportedRecord> known_records(const std::vector<TuningPoint>& points,
                                          const std::vector<TuningPoint>& missing,
                                          const Problem& problem, const Target& target,
                                          const std::vector<KeptRecord>& records) {
  const std::string text = tuned_problem(problem), machine = tuned_target(target);
  const std::vector<PointBucket> measured = buckets_of(problem, missing);
  std::vector<ReportedRecord> known;
  for (const PointBucket& bucket : buckets_of(problem, points)) {
    const auto is_it = [&](const PointBucket& other) { return other.bucket == bucket.bucket; };
    if (std::any_of(measured.begin(), measured.end(), is_it)) continue;
    const auto newest = std::find_if(records.rbegin(), records.rend(), [&](const auto& kept) {
      return kept.record.problem == text && kept.record.target == machine &&
             kept.record.bucket == bucket.bucket;
    });
    if (newest != records.rend()) known.push_back({newest->record, 0, newest->origin});
  }
  return known;
}

}  // namespace splitkv::tool
