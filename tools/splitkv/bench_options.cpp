#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <limits>
#include <numeric>

#include "compiler/space.hpp"
#include "compiler/text.hpp"
#include "tools/splitkv/bench.hpp"
#include "tools/splitkv/run.hpp"

namespace splitkv::tool {
namespace {

Error bad(const std::string& option, const std::string& value, const std::string& would_fit) {
  return invalid_argument(fmt::format("{}={}: {}", option, value, would_fit));
}

Outcome check_from(const BenchOptions& options) {
  if (options.from.empty()) return Unit{};
  if (!options.problem.empty() || options.measuring_given) {
    return bad("--from", options.from.front(),
               "reports what was measured before; only --best, --compare, --row, --format, --note "
               "and --out go with it");
  }
  return Unit{};
}

Outcome check_peers(const BenchOptions& options) {
  if (options.sweep && options.peers) {
    return invalid_argument("--sweep compares schedules; --peers goes without it");
  }
  if (!options.peers_script.empty() && !options.peers) {
    return bad("--peers-script", options.peers_script, "goes with --peers");
  }
  constexpr const char* peers[] = {"cudnn", "flash2", "flex", "flashinfer"};
  for (const std::string& name : options.only_peers) {
    if (!options.peers) return bad("--only-peers", name, "goes with --peers");
    if (std::find(std::begin(peers), std::end(peers), name) == std::end(peers)) {
      return bad("--only-peers", name, "cudnn, flash2, flex or flashinfer would work");
    }
  }
  return Unit{};
}

Outcome check_random(const BenchOptions& options) {
  const bool is_random = options.table.table == "random";
  const int count = options.table.count;
  if (options.count_given && !is_random) {
    return bad("--count", fmt::format("{}", count), "goes with --table=random");
  }
  if (count < 1 || count > 10000) {
    return bad("--count", fmt::format("{}", count), "1 to 10000 would work");
  }
  if (is_random && options.dtype_given) {
    return bad("--dtype", options.table.dtype, "--table=random draws types itself");
  }
  if (is_random && options.table.paged) {
    return invalid_argument("--paged does not go with --table=random, which draws layouts itself");
  }
  return Unit{};
}

Outcome check_shape(const BenchOptions& options) {
  if (options.problem.empty()) {
    if (options.batch != 0) {
      return bad("--batch", fmt::format("{}", options.batch),
                 "goes with a problem; the tables have batches of their own");
    }
    if (!options.kv_len.empty()) {
      return bad("--kv-len", fmt::format("{}", options.kv_len.front()),
                 "goes with a problem; the tables have lengths of their own");
    }
    return Unit{};
  }
  if (options.table_given) {
    return bad("--table", options.table.table, "goes without a problem; leave one of them out");
  }
  if (options.dtype_given) {
    return bad("--dtype", options.table.dtype, "goes with the tables; the problem has q= and kv=");
  }
  if (options.table.paged) {
    return invalid_argument(
        "--paged goes with the tables; a problem has kv_layout=paged:16:nhd and the like");
  }
  for (const int64_t length : options.kv_len) {
    if (length >= 0 && length <= std::numeric_limits<int32_t>::max()) continue;
    return bad("--kv-len", fmt::format("{}", length), "0 to 2147483647 would work");
  }
  return Unit{};
}

std::string trimmed(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t\r");
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t\r") + 1 - first);
}

}  // namespace

Outcome check_options(const BenchOptions& options) {
  if (options.repeat < 1) {
    return bad("--repeat", fmt::format("{}", options.repeat), "1 or more would work");
  }
  if (options.limit < 1) {
    return bad("--limit", fmt::format("{}", options.limit), "1 or more would work");
  }
  if (options.best && options.sweep && options.compare.empty()) {
    return bad("--best", "given", "goes with --sweep only beside --compare: a sweep lists all");
  }
  if (options.limit_given && !options.sweep) {
    return bad("--limit", fmt::format("{}", options.limit), "goes with --sweep");
  }
  const std::string& format = options.format;
  if (!format.empty() && format != "text" && format != "json" && format != "markdown") {
    return bad("--format", format, "text, json or markdown would work");
  }
  if (options.sweep && options.compare.empty() && !format.empty() && format != "json") {
    return bad("--format", format,
               "--sweep writes a line of JSON a schedule; json would work, or --compare beside it");
  }
  const bool schedules = !options.schedules.empty() || !options.schedules_file.empty();
  if (options.sweep && schedules) {
    return invalid_argument(
        "--sweep draws schedules itself; it goes without --schedule and --schedules-file");
  }
  if (options.batch < 0 || options.batch > std::numeric_limits<int32_t>::max()) {
    return bad("--batch", fmt::format("{}", options.batch), "1 or more would work");
  }
  for (const auto& check : {check_peers, check_random, check_from}) {
    if (const Outcome fit = check(options); !fit) return fit;
  }
  if (const auto groupings = chosen_groupings(options); !groupings) return groupings.error();
  return check_shape(options);
}

Result<std::vector<Grouping>> chosen_groupings(const BenchOptions& options) {
  if (options.compare.empty()) return std::vector<Grouping>{};
  return parse_groupings(options.compare);
}

Result<std::vector<BenchRow>> chosen_rows(const BenchOptions& options) {
  if (!options.problem.empty()) {
    const Result<Problem> problem = parse_problem(options.problem);
    if (!problem) return problem.error();
    RunOptions lengths;
    lengths.batch = options.batch;
    lengths.kv_len = options.kv_len;
    const Result<std::vector<int32_t>> kv_len = generated_lengths(lengths);
    if (!kv_len) return kv_len.error();
    BenchRow row;
    row.name = fmt::format("{},{}/{},{}", kv_len->size(), problem->q_heads, problem->kv_heads,
                           describe_lengths(*kv_len));
    row.problem = print(*problem);
    row.kv_len = *kv_len;
    return std::vector<BenchRow>{row};
  }
  Result<std::vector<BenchRow>> rows = table_rows(options.table);
  if (!rows || options.only.empty()) return rows;
  std::string names;
  for (const BenchRow& row : *rows) names += (names.empty() ? "" : "; ") + row.name;
  std::erase_if(
      *rows, [&](const BenchRow& row) { return row.name.find(options.only) == std::string::npos; });
  if (rows->empty()) {
    return bad("--row", options.only, "is in no row's name; there are: " + names);
  }
  return rows;
}

Variant variant_of(const std::string& text) {
  const size_t colon = text.find(": ");
  Variant variant;
  variant.words = trimmed(colon == std::string::npos ? text : text.substr(colon + 2));
  if (variant.words == "default") variant.words.clear();
  variant.label = colon == std::string::npos ? variant.words : trimmed(text.substr(0, colon));
  if (variant.label.empty()) variant.label = "default";
  return variant;
}

Result<std::vector<Variant>> chosen_variants(const BenchOptions& options) {
  std::vector<Variant> variants;
  for (const std::string& text : options.schedules) variants.push_back(variant_of(text));
  if (!options.schedules_file.empty()) {
    std::ifstream file(options.schedules_file);
    if (!file) {
      return bad("--schedules-file", options.schedules_file, "cannot be read");
    }
    for (std::string line; std::getline(file, line);) {
      line = trimmed(line);
      if (!line.empty() && line.front() != '#') variants.push_back(variant_of(line));
    }
    if (variants.empty()) {
      return bad("--schedules-file", options.schedules_file,
                 "holds no schedule; a line each, as --schedule takes it, would work");
    }
  }
  if (variants.empty()) variants.push_back({"default", ""});
  return variants;
}

std::vector<Variant> sweep_variants(const Problem& problem, const Target& target, int limit,
                                    uint64_t seed) {
  std::vector<int> blocks;
  for (const int per_sm : {1, 2, 3, 4}) blocks.push_back(target.sm_count * per_sm);
  blocks.push_back(std::max(1, target.sm_count / 8 * 8));
  std::vector<Schedule> space =
      schedule_space(problem, target, {1, 2, 4, 8, 16, 32, 64, 128}, blocks);
  const auto on_tensor_cores = [](const Schedule& schedule) {
    return schedule.family == Family::mma || schedule.family == Family::wgmma;
  };
  if (std::any_of(space.begin(), space.end(), on_tensor_cores)) {
    std::erase_if(space, std::not_fn(on_tensor_cores));
  }
  std::vector<size_t> order(space.size());
  std::iota(order.begin(), order.end(), size_t(0));
  const size_t count = std::min(space.size(), size_t(limit));
  uint64_t state = seed * 2 + 1;
  for (size_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    std::swap(order[i], order[i + (state >> 33) % (order.size() - i)]);
  }
  std::vector<Variant> variants;
  for (size_t i = 0; i < count; ++i) {
    const std::string words = print(space[order[i]]);
    variants.push_back({words, words});
  }
  return variants;
}

}  // namespace splitkv::tool
