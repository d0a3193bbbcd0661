// Which schedules a row runs: counts that a text leaves to the cost model, and the other values of
// words that are compared.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <set>
#include <sstream>

#include "compiler/text.hpp"
#include "compiler/verifier.hpp"
#include "tools/splitkv/bench.hpp"
#include "tools/splitkv/choices.hpp"
#include "tools/splitkv/explain.hpp"

namespace splitkv::tool {
namespace {

// "splits=best:2": the count that the cost model puts second.
struct Best {
  std::string key;   // splits or blocks
  std::string rest;  // the other words
  int rank = 1;
};

Result<std::optional<Best>> best_word(const std::string& words) {
  std::optional<Best> best;
  std::istringstream stream(words);
  std::string rest;
  for (std::string word; stream >> word;) {
    const std::string key = word.substr(0, word.find('='));
    if ((key != "splits" && key != "blocks") || !word.starts_with(key + "=best")) {
      rest += (rest.empty() ? "" : " ") + word;
      continue;
    }
    Best found{key, "", 1};
    const std::string rank = word.substr(key.size() + 5);
    if (!rank.empty()) {
      const char* end = rank.data() + rank.size();
      const auto [stop, fault] = std::from_chars(rank.data() + 1, end, found.rank);
      if (rank[0] != ':' || fault != std::errc() || stop != end || found.rank < 1) {
        return invalid_argument(
            fmt::format("schedule: {}={}: a count, {}=best or {}=best:2 would work", key,
                        word.substr(key.size() + 1), key, key));
      }
    }
    if (best) return invalid_argument("schedule: best stands for one of splits and blocks only");
    best = found;
  }
  if (best) best->rest = rest;
  return best;
}

// Counts that are weighed: round ones, and those that fill the device or fall on ends of sequences
// that are equally long.
std::vector<int64_t> counts_of(const std::string& key, const VariantSpace& space) {
  const int64_t sms = std::max(1, space.target.sm_count);
  const int64_t sequences = std::max<int64_t>(1, space.workload.batch * space.problem.kv_heads);
  std::vector<int64_t> counts;
  if (key == "splits") {
    counts = {1, 2, 3, 4, 5, 6, 8, 10, 11, 12, 14, 16, 20, 22, 24, 32, 48, 64, 96, 128, 256};
    counts.push_back(sms / sequences);
  } else {
    for (int64_t each = 1; each <= 4; ++each) {
      const int64_t blocks = sms * each;
      counts.insert(counts.end(), {blocks, int64_t(std::bit_floor(uint64_t(blocks)))});
      counts.push_back(blocks / sequences * sequences);
    }
  }
  std::sort(counts.begin(), counts.end());
  counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
  std::erase_if(counts, [](int64_t count) { return count < 1; });
  return counts;
}

// The words with the count that the model puts at that rank (the last one where there are fewer).
// Where none fits, with the least count: it is refused with its reason, as any other is.
std::string with_count(const Best& best, const VariantSpace& space) {
  struct Weighted {
    double us;
    std::string words;
  };
  std::vector<Weighted> fitting;
  const std::vector<RowGroup> rows = row_groups(space.kv_len);
  const std::vector<int64_t> counts = counts_of(best.key, space);
  for (const int64_t count : counts) {
    const std::string words = fmt::format("{} {}={}", best.rest, best.key, count);
    const auto fits = chosen_schedule(space.problem, space.workload, space.target, words);
    if (!fits) continue;
    fitting.push_back(
        {predict(space.problem, rows, fits->schedule, space.target).total_us(), words});
  }
  if (fitting.empty()) return fmt::format("{} {}={}", best.rest, best.key, counts.front());
  std::stable_sort(fitting.begin(), fitting.end(),
                   [](const Weighted& a, const Weighted& b) { return a.us < b.us; });
  return fitting[std::min(fitting.size(), size_t(best.rank)) - 1].words;
}

bool names(const std::string& words, const std::string& key) {
  return (" " + words).find(" " + key + "=") != std::string::npos;
}

// The schedule with the other value of each compared word that its words leave open and that has
// any bearing.
std::vector<Schedule> others_of(const std::string& words, const Schedule& schedule,
                                const VariantSpace& space) {
  std::vector<Schedule> others;
  const auto open = [&](const char* word) {
    return compares(space.groupings, word) && !names(words, word);
  };
  if (open("merge") && exchanges_partials(schedule) && space.problem.merge == Merge::automatic) {
    others.push_back(schedule);
    others.back().merge =
        exchanged_merge(space.problem, schedule) == Merge::mlo ? Merge::lse : Merge::mlo;
  }
  if (open("partials") && exchanges_partials(schedule)) {
    others.push_back(schedule);
    others.back().partial_dtype = schedule.partial_dtype == DType::fp32 ? DType::bf16 : DType::fp32;
  }
  if (open("pdl")) {
    others.push_back(schedule);
    others.back().pdl = !schedule.pdl;
  }
  std::erase_if(others, [&](const Schedule& other) {
    return verify(space.problem, other, space.target).has_value();
  });
  return others;
}

}  // namespace

Result<std::vector<Variant>> expanded(const std::vector<Variant>& wanted,
                                      const VariantSpace& space) {
  std::vector<Variant> variants;
  std::set<std::string> known;  // schedules, printed
  std::vector<std::pair<std::string, Schedule>> bases;
  for (Variant variant : wanted) {
    const Result<std::optional<Best>> best = best_word(variant.words);
    if (!best) return best.error();
    if (best->has_value()) {
      if (space.target.kind != TargetKind::cuda) {
        return invalid_argument(
            fmt::format("schedule: {}=best is weighed by the cost model, which is of CUDA targets; "
                        "a count would work",
                        (*best)->key));
      }
      const bool named = variant.label != variant.words;
      variant.words = with_count(**best, space);
      if (!named) variant.label = variant.words;
    }
    const auto fits = chosen_schedule(space.problem, space.workload, space.target, variant.words);
    const bool is_new = !fits || known.insert(print(fits->schedule)).second;
    if (best->has_value() && !is_new) continue;
    if (fits) bases.emplace_back(variant.words, fits->schedule);
    variants.push_back(std::move(variant));
  }
  for (const auto& [words, schedule] : bases) {
    for (const Schedule& other : others_of(words, schedule, space)) {
      const std::string text = print(other);
      if (known.insert(text).second) variants.push_back({text, text});
    }
  }
  return variants;
}

}  // namespace splitkv::tool
