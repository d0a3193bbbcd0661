#include "runtime/tuning_record.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <optional>

#include "compiler/text.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace splitkv {
namespace {

constexpr int64_t kLeastKvLen = 128;
constexpr std::string_view kBetween = " | ";
constexpr std::string_view kArrow = " -> ";
constexpr std::string_view kSum = " | sum=";

int64_t bucket_up(int64_t value, int64_t least) {
  const auto wanted = uint64_t(std::clamp<int64_t>(value, least, int64_t(1) << 40));
  return int64_t(std::bit_ceil(wanted));
}

std::string sum_of(std::string_view text) {
  return fmt::format("{:08x}", XXH32(text.data(), text.size(), 0));
}

// Takes what stands before `mark` off the text; nothing where the mark is not in it.
std::optional<std::string_view> take_until(std::string_view& text, std::string_view mark) {
  const size_t at = text.find(mark);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view taken = text.substr(0, at);
  text.remove_prefix(at + mark.size());
  return taken;
}

template <class Number>
bool read_number(std::string_view text, Number& value) {
  const char* end = text.data() + text.size();
  const auto [stop, fault] = std::from_chars(text.data(), end, value);
  return fault == std::errc() && stop == end && !text.empty();
}

// Reads "key=value key=value ..." in order, each value by its reader.
class Words {
 public:
  explicit Words(std::string_view text) : rest_(text) {}

  std::optional<std::string_view> value(std::string_view key) {
    std::string_view word = rest_.substr(0, rest_.find(' '));
    if (!word.starts_with(key) || word.size() <= key.size() || word[key.size()] != '=') {
      return std::nullopt;
    }
    rest_.remove_prefix(std::min(rest_.size(), word.size() + 1));
    return word.substr(key.size() + 1);
  }
  template <class Number>
  bool number(std::string_view key, Number& into, Number least) {
    const auto text = value(key);
    return text && read_number(*text, into) && into >= least;
  }
  bool word(std::string_view key, std::string& into) {
    const auto text = value(key);
    if (text) into = *text;
    return text && !text->empty();
  }
  bool at_end() const { return rest_.empty(); }

 private:
  std::string_view rest_;
};

std::optional<TuningBucket> parse_bucket(std::string_view text) {
  TuningBucket bucket;
  if (text == print(bucket)) return bucket;
  Words words(text);
  if (!words.number<int64_t>("batch", bucket.batch, 1) ||
      !words.number<int64_t>("kv_len", bucket.kv_len, kLeastKvLen)) {
    return std::nullopt;
  }
  const auto rows = words.value("rows");
  for (RowLengths kind : {RowLengths::equal, RowLengths::ragged, RowLengths::any}) {
    bucket.rows = kind;
    // Numbers that name no bucket never match a workload.
    const bool whole =
        std::has_single_bit(uint64_t(bucket.batch)) && std::has_single_bit(uint64_t(bucket.kv_len));
    if (rows && *rows == name(kind)) {
      return whole && words.at_end() ? std::optional(bucket) : std::nullopt;
    }
  }
  return std::nullopt;
}

// "SCHEDULE us=1 ratio=1".
std::optional<TunedTime> parse_time(std::string_view text) {
  const size_t at = text.find(" us=");
  if (at == std::string_view::npos) return std::nullopt;
  const Result<Schedule> schedule = parse_schedule(text.substr(0, at));
  TunedTime time;
  Words words(text.substr(at + 1));
  if (!schedule || !words.number("us", time.us, 0.0) || !words.number("ratio", time.ratio, 0.0) ||
      !words.at_end()) {
    return std::nullopt;
  }
  time.schedule = *schedule;
  return time;
}

std::string print(const TunedTime& time) {
  return fmt::format("{} us={} ratio={}", splitkv::print(time.schedule), time.us, time.ratio);
}

bool parse_figures(std::string_view text, TuningRecord& record) {
  Words words(text);
  return words.number("us", record.best.us, 0.0) && words.number("ratio", record.best.ratio, 0.0) &&
         words.number("workloads", record.workloads, 1) && words.number("tried", record.tried, 0) &&
         words.number("failed", record.failed, 0) && words.at_end();
}

bool parse_versions(std::string_view text, TuningRecord& record) {
  Words words(text);
  return words.word("splitkv", record.splitkv) && words.word("compiler", record.compiler) &&
         words.word("driver", record.driver) && words.word("date", record.date) && words.at_end();
}

// What is wrong with the line's text before its sum; nothing where it is read into the record.
std::optional<std::string> parse_fields(std::string_view text, TuningRecord& record) {
  const auto problem = take_until(text, kBetween);
  if (!problem) return "has no ' | ' behind its problem";
  const Result<Problem> parsed = parse_problem(*problem);
  if (!parsed) return "its problem is none: " + parsed.error().message;
  record.problem = tuned_problem(*parsed);
  if (record.problem != *problem) return "its problem is not in canonical form: " + record.problem;

  const auto bucket = take_until(text, kBetween);
  const auto read = bucket ? parse_bucket(*bucket) : std::nullopt;
  if (!read) return "its bucket is none; batch=8 kv_len=8192 rows=equal would be one";
  record.bucket = *read;

  const auto target = take_until(text, kArrow);
  if (!target || target->empty()) return "has no target before ' -> '";
  record.target = *target;

  const auto schedule = take_until(text, kBetween);
  const Result<Schedule> best = parse_schedule(schedule ? *schedule : std::string_view());
  if (!best) return "its schedule is none: " + best.error().message;
  record.best.schedule = *best;

  const auto figures = take_until(text, kBetween);
  if (!figures || !parse_figures(*figures, record)) return "its figures cannot be read";
  while (text.starts_with("then ")) {
    text.remove_prefix(5);
    const auto next = take_until(text, kBetween);
    const auto time = next ? parse_time(*next) : std::nullopt;
    if (!time) return "a runner-up cannot be read";
    record.runners_up.push_back(*time);
  }
  if (!parse_versions(text, record)) return "its versions cannot be read";
  return std::nullopt;
}

}  // namespace

std::string_view name(RowLengths rows) {
  switch (rows) {
    case RowLengths::equal:
      return "equal";
    case RowLengths::ragged:
      return "ragged";
    case RowLengths::any:
      return "any";
  }
  return "?";
}

TuningBucket bucket_of(const Problem& problem, const Workload& workload) {
  if (problem.deterministic) return {};
  TuningBucket bucket{bucket_up(workload.batch, 1), bucket_up(workload.kv_len, kLeastKvLen)};
  const int64_t longest = workload.kv_len, mean = workload.kv_len_mean;
  const bool is_told = mean > 0 || workload.batch <= 1;
  const bool is_ragged = workload.batch > 1 && mean > 0 && mean < longest - longest / 10;
  bucket.rows = is_ragged ? RowLengths::ragged : is_told ? RowLengths::equal : RowLengths::any;
  return bucket;
}

std::string print(const TuningBucket& bucket) {
  if (bucket.batch == 0) return fmt::format("batch=* kv_len=* rows={}", name(bucket.rows));
  return fmt::format("batch={} kv_len={} rows={}", bucket.batch, bucket.kv_len, name(bucket.rows));
}

std::string tuned_problem(const Problem& problem) {
  Problem kept = problem;
  kept.checked = Checked::automatic;
  return print(kept);
}

std::string tuned_target(const Target& target) {
  if (target.kind == TargetKind::cpu) {
    return fmt::format("{} threads={}", print(target), target.threads);
  }
  return fmt::format("{} sms={} l2={} read={:.0f}", print(target), target.sm_count, target.l2_bytes,
                     target.read_gb_per_s);
}

std::string_view architecture_of(std::string_view tuned_target) {
  return tuned_target.substr(0, tuned_target.find(' '));
}

std::string print(const TuningRecord& record) {
  std::string text =
      fmt::format("{} | {} | {} -> {} | us={} ratio={} workloads={} tried={} failed={}",
                  record.problem, print(record.bucket), record.target, print(record.best.schedule),
                  record.best.us, record.best.ratio, record.workloads, record.tried, record.failed);
  for (const TunedTime& time : record.runners_up) text += " | then " + print(time);
  text += fmt::format(" | splitkv={} compiler={} driver={} date={}", record.splitkv,
                      record.compiler, record.driver, record.date);
  return fmt::format("{}{}{}", text, kSum, sum_of(text));
}

Result<TuningRecord> parse_record(std::string_view line) {
  const size_t at = line.rfind(kSum);
  if (at == std::string_view::npos) return invalid_argument("has no sum at its end: it was cut");
  const std::string_view text = line.substr(0, at);
  if (line.substr(at + kSum.size()) != sum_of(text)) {
    return invalid_argument("its sum is not that of its text: it was changed");
  }
  TuningRecord record;
  if (const auto fault = parse_fields(text, record)) return invalid_argument(*fault);
  return record;
}

double rounded_time(double value) {
  double rounded = 0;
  const std::string text = fmt::format("{:.4g}", value);
  const bool read = read_number(std::string_view(text), rounded);
  return read ? rounded : value;
}

}  // namespace splitkv
