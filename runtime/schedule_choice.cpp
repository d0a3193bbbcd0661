#include "runtime/schedule_choice.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "compiler/text.hpp"
#include "compiler/verifier.hpp"

namespace splitkv {
namespace {

bool names_word(std::string_view text, std::string_view word) {
  for (size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1)) {
    if (at == 0 || text[at - 1] == ' ' || text[at - 1] == '\t') return true;
  }
  return false;
}

// Words that name a family are read over what the library would choose of that family.
std::optional<Family> family_named(std::string_view words) {
  for (Family family : {Family::simt, Family::mma, Family::wgmma}) {
    if (names_word(words, fmt::format("family={}", name(family)))) return family;
  }
  return std::nullopt;
}

int clamp_to_int(int64_t value) {
  return int(std::clamp<int64_t>(value, 1, std::numeric_limits<int>::max()));
}

// Gives a partition that was named without its count the grid that the library's choice has. No
// rule has looked at the schedule yet.
void keep_the_grid(std::string_view words, const Problem& problem, const Workload& workload,
                   const Schedule& chosen, Schedule* schedule) {
  const bool was_flat = chosen.partition == Partition::flat;
  const bool is_flat = schedule->partition == Partition::flat;
  if (was_flat == is_flat || schedule->rows <= 0) return;
  const int64_t sequences =
      std::max<int64_t>(1, workload.batch) * problem.kv_heads * row_blocks(problem, *schedule);
  if (is_flat && !names_word(words, "blocks=")) {
    schedule->blocks = clamp_to_int(sequences * chosen.splits);
  } else if (was_flat && !names_word(words, "splits=")) {
    schedule->splits = clamp_to_int(chosen.blocks / sequences);
  }
}

// Where the library's choice joins in clusters and other words alone make that impossible, the last
// arriving block joins instead. Large clusters that were named are not launched early unless that
// is named too: the next grid's blocks would take SMs that whole clusters need.
void keep_joining(std::string_view words, Schedule* schedule) {
  if (schedule->cluster > 2 && !names_word(words, "pdl=")) schedule->pdl = false;
  if (schedule->reduce != Reduce::cluster || schedule->cluster < 1) return;
  if (names_word(words, "reduce=") || names_word(words, "cluster=")) return;
  if (schedule->splits % schedule->cluster == 0) return;
  schedule->reduce = Reduce::last_block;
  schedule->cluster = Schedule{}.cluster;
}

// What was tuned where it is of the family that is named or none is; else what the cost model
// chooses of it.
ScheduleChoice library_choice(const Problem& problem, const Workload& workload,
                              const Target& target, std::optional<Family> family,
                              const std::optional<ScheduleChoice>& tuned) {
  if (tuned && (!family || *family == tuned->schedule.family)) return *tuned;
  return default_schedule(problem, workload, target, family);
}

// Words read over the library's choice, of `family` where one is named. `holder` gave them.
Result<ScheduleChoice> read_words(const std::string& words, const char* holder,
                                  const Problem& problem, const Workload& workload,
                                  const Target& target, std::optional<Family> family,
                                  const std::optional<ScheduleChoice>& tuned) {
  ScheduleChoice choice = library_choice(problem, workload, target, family, tuned);
  const Result<Schedule> parsed = parse_schedule(words, choice.schedule);
  if (!parsed) {
    return Error{parsed.error().status, fmt::format("in {}: {}", holder, parsed.error().message)};
  }
  Schedule schedule = *parsed;
  keep_the_grid(words, problem, workload, choice.schedule, &schedule);
  keep_joining(words, &schedule);
  if (const auto refusal = verify(problem, schedule, target)) {
    Error error = to_error(*refusal);
    error.message = fmt::format("in {} ({}): {}", holder, words, error.message);
    return error;
  }
  choice.schedule = schedule;
  return choice;
}

}  // namespace

Result<ScheduleChoice> choose_schedule(const Problem& problem, const Workload& workload,
                                       const Target& target, const char* argument,
                                       const std::string& variable, TunedSchedules* tuned) {
  const bool from_argument = argument != nullptr;
  std::optional<ScheduleChoice> kept;
  if (tuned != nullptr) kept = tuned->find(problem, workload, target, read_environment());
  if (!from_argument && variable.empty()) {
    return library_choice(problem, workload, target, std::nullopt, kept);
  }

  const std::string words = from_argument ? argument : variable;
  const char* holder = from_argument ? "the schedule argument" : "SPLITKV_SCHEDULE";
  const std::optional<Family> named = family_named(words);
  Result<ScheduleChoice> choice = read_words(words, holder, problem, workload, target, named, kept);
  if (!choice && !named && target.kind == TargetKind::cuda) {
    // What the words ask for may not suit the family that would be chosen without them.
    Result<ScheduleChoice> other =
        read_words(words, holder, problem, workload, target, Family::simt, std::nullopt);
    if (other) choice = std::move(other);
  }
  if (!choice) return choice;
  choice->why = fmt::format("{} ({}), over the library's choice ({})", holder, words, choice->why);
  choice->decider = from_argument ? Decider::argument : Decider::environment;
  return choice;
}

}  // namespace splitkv
