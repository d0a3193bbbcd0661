#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "compiler/text.hpp"

namespace splitkv {
namespace {

struct Word {
  std::string_view key;
  std::string_view value;
};

// One word of a text form. `read` stores the value and says whether it understood it.
template <class T>
struct WordRule {
  std::string_view key;
  std::string_view fits;  // what would work, in words of the text form
  bool (*read)(T& value, std::string_view text);
};

// ---- values -------------------------------------------------------------------------------------

template <class Number>
bool read_number(Number& number, std::string_view text) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && stop == end && !text.empty();
}

// "N" for both, or "A/B".
bool read_pair(int& a, int& b, std::string_view text) {
  const size_t slash = text.find('/');
  if (slash != std::string_view::npos)
    return read_number(a, text.substr(0, slash)) && read_number(b, text.substr(slash + 1));
  if (!read_number(a, text)) return false;
  b = a;
  return true;
}

bool read_dtype(DType& type, std::string_view text) {
  const std::optional<DType> found = dtype_from_name(text);
  if (found) type = *found;
  return found.has_value();
}

template <class Enum>
bool read_name(Enum& value, std::string_view text, std::initializer_list<Enum> all) {
  for (Enum candidate : all) {
    if (name(candidate) != text) continue;
    value = candidate;
    return true;
  }
  return false;
}

bool read_merge(Merge& merge, std::string_view text) {
  return read_name(merge, text, {Merge::automatic, Merge::mlo, Merge::lse});
}

bool read_switch(bool& on, std::string_view text) {
  on = text == "on";
  return on || text == "off";
}

bool read_layout(KvLayout& layout, std::string_view text) {
  layout = {};
  if (text == "bhtd") return true;
  if (text == "bthd") {
    layout.kind = KvLayoutKind::bthd;
    return true;
  }
  constexpr std::string_view kPaged = "paged:";
  const size_t last = text.rfind(':');
  if (!text.starts_with(kPaged) || last < kPaged.size()) return false;
  const std::string_view order = text.substr(last + 1);
  layout.kind = KvLayoutKind::paged;
  layout.page_order = order == "hnd" ? PageOrder::hnd : PageOrder::nhd;
  return (order == "hnd" || order == "nhd") &&
         read_number(layout.page_size, text.substr(kPaged.size(), last - kPaged.size()));
}

// ---- the words of both forms, in canonical order
// -------------------------------------------------

using P = Problem;
using S = Schedule;
using Text = std::string_view;

constexpr Text kTypes = "fp32, fp16, bf16";

constexpr WordRule<Problem> kProblemWords[] = {
    {"q", kTypes, [](P& p, Text t) { return read_dtype(p.q_dtype, t); }},
    {"kv", kTypes,
     [](P& p, Text t) { return read_dtype(p.k_dtype, t) && read_dtype(p.v_dtype, t); }},
    {"k", kTypes, [](P& p, Text t) { return read_dtype(p.k_dtype, t); }},
    {"v", kTypes, [](P& p, Text t) { return read_dtype(p.v_dtype, t); }},
    {"out", kTypes, [](P& p, Text t) { return read_dtype(p.out_dtype, t); }},
    {"heads", "Q/KV (heads=32/8), N (heads=32)",
     [](P& p, Text t) { return read_pair(p.q_heads, p.kv_heads, t); }},
    {"dim", "D (dim=128), QK/V (dim=192/128)",
     [](P& p, Text t) { return read_pair(p.dim_qk, p.dim_v, t); }},
    {"query_len", "a whole number (query_len=1)",
     [](P& p, Text t) { return read_number(p.query_len, t); }},
    {"kv_layout", "bhtd, bthd, paged:P:nhd, paged:P:hnd (kv_layout=paged:16:nhd)",
     [](P& p, Text t) { return read_layout(p.kv_layout, t); }},
    {"scale", "a number (scale=0.125)",
     [](P& p, Text t) { return read_number(p.scale.emplace(), t); }},
    {"softcap", "a number (softcap=50)", [](P& p, Text t) { return read_number(p.softcap, t); }},
    {"window", "a whole number of keys (window=4096)",
     [](P& p, Text t) { return read_number(p.window, t); }},
    {"lse", "none, natural, base2",
     [](P& p, Text t) {
       return read_name(p.lse, t, {LseOutput::none, LseOutput::natural, LseOutput::base2});
     }},
    {"merge", "auto, mlo, lse", [](P& p, Text t) { return read_merge(p.merge, t); }},
    {"deterministic", "on, off", [](P& p, Text t) { return read_switch(p.deterministic, t); }},
    {"align", "16, 8, 4, 2", [](P& p, Text t) { return read_number(p.align, t); }},
};

constexpr WordRule<Schedule> kScheduleWords[] = {
    {"family", "simt, vector",
     [](S& s, Text t) {
       return read_name(s.family, t, {Family::simt, Family::vector});
     }},
    {"tile", "a whole number of keys (tile=64)",
     [](S& s, Text t) { return read_number(s.tile_kv, t); }},
    {"rows", "a whole number (rows=4)", [](S& s, Text t) { return read_number(s.rows, t); }},
    {"warps", "a whole number (warps=4)", [](S& s, Text t) { return read_number(s.warps, t); }},
    {"unroll", "1, 2, 4, 8", [](S& s, Text t) { return read_number(s.unroll, t); }},
    {"partition", "fixed, flat, strided",
     [](S& s, Text t) {
       return read_name(s.partition, t, {Partition::fixed, Partition::flat, Partition::strided});
     }},
    {"splits", "a whole number (splits=7)", [](S& s, Text t) { return read_number(s.splits, t); }},
    {"blocks", "a whole number (blocks=264)",
     [](S& s, Text t) { return read_number(s.blocks, t); }},
    {"reduce", "kernel, last_block",
     [](S& s, Text t) {
       return read_name(s.reduce, t, {Reduce::kernel, Reduce::last_block});
     }},
    {"merge", "auto, mlo, lse", [](S& s, Text t) { return read_merge(s.merge, t); }},
};

// ---- words of a line ----------------------------------------------------------------------------

// Levenshtein distance.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t(0));
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replace = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replace, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

template <class T>
std::string_view closest_key(std::string_view key, std::span<const WordRule<T>> rules) {
  const auto by_distance = [key](const WordRule<T>& a, const WordRule<T>& b) {
    return edit_distance(key, a.key) < edit_distance(key, b.key);
  };
  return std::min_element(rules.begin(), rules.end(), by_distance)->key;
}

// Splits at blanks and drops the leading `noun`.
std::vector<std::string_view> split_words(std::string_view text, std::string_view noun) {
  constexpr std::string_view kBlanks = " \t\r\n";
  std::vector<std::string_view> words;
  for (size_t begin = text.find_first_not_of(kBlanks); begin != std::string_view::npos;) {
    const size_t end = std::min(text.find_first_of(kBlanks, begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = text.find_first_not_of(kBlanks, end);
  }
  if (!words.empty() && words.front() == noun) words.erase(words.begin());
  return words;
}

bool names(const std::vector<std::string_view>& keys, std::string_view key) {
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

// Reads every word of `text` into `value` and returns the keys it named.
template <class T>
Result<std::vector<std::string_view>> read_words(T& value, std::string_view text,
                                                 std::string_view noun,
                                                 std::span<const WordRule<T>> rules) {
  std::vector<std::string_view> seen;
  for (std::string_view word : split_words(text, noun)) {
    const size_t equals = word.find('=');
    const std::string_view key = word.substr(0, equals);
    const auto rule = std::find_if(rules.begin(), rules.end(),
                                   [key](const WordRule<T>& r) { return r.key == key; });
    if (rule == rules.end()) {
      const std::string_view closest = closest_key(key, rules);
      return invalid_argument(
          fmt::format("{}: {} has no word \"{}\"; the closest is {}=", word, noun, key, closest));
    }
    if (equals == std::string_view::npos)
      return invalid_argument(
          fmt::format("{}: the word has no value; {} would work", word, rule->fits));
    if (names(seen, key))
      return invalid_argument(
          fmt::format("{}: the word is given twice; one {}= would work", word, key));
    if (!rule->read(value, word.substr(equals + 1)))
      return invalid_argument(
          fmt::format("{}: the value is not understood; {} would work", word, rule->fits));
    seen.push_back(key);
  }
  return seen;
}

}  // namespace

Result<Problem> parse_problem(std::string_view text) {
  Problem problem;
  const auto seen = read_words<Problem>(problem, text, "attention", kProblemWords);
  if (!seen) return seen.error();
  for (const auto& [key, example] :
       {Word{"q", "q=bf16"}, Word{"heads", "heads=32/8"}, Word{"dim", "dim=128"}})
    if (!names(*seen, key))
      return invalid_argument(fmt::format("{}=: the word is missing; {} would work", key, example));
  const bool has_k = names(*seen, "k");
  const bool has_v = names(*seen, "v");
  const bool has_kv = names(*seen, "kv");
  if (has_kv && (has_k || has_v))
    return invalid_argument(
        fmt::format("{}=: kv= already names this type; kv= alone, or k= and v=, "
                    "would work",
                    has_k ? "k" : "v"));
  if (has_k != has_v)
    return invalid_argument(
        fmt::format("{}=: the word is missing; kv= alone, or k= and v=, would "
                    "work",
                    has_k ? "v" : "k"));
  if (!has_kv && !has_k) problem.k_dtype = problem.v_dtype = problem.q_dtype;
  if (!names(*seen, "out")) problem.out_dtype = problem.q_dtype;
  return problem;
}

Result<Schedule> parse_schedule(std::string_view text) { return parse_schedule(text, Schedule{}); }

Result<Schedule> parse_schedule(std::string_view text, const Schedule& base) {
  Schedule schedule;
  const auto seen = read_words<Schedule>(schedule, text, "schedule", kScheduleWords);
  if (!seen) return seen.error();
  const auto given = [&seen](Text key) { return names(*seen, key); };
  // A text with every word that is always printed is a whole schedule: what it omits is a default.
  if (given("family") && given("tile") && given("rows") && given("partition")) return schedule;

  schedule = base;
  const auto again = read_words<Schedule>(schedule, text, "schedule", kScheduleWords);
  if (!again) return again.error();
  // A word that only one kind of partition uses chooses that kind.
  if (!given("partition") && given("splits") != given("blocks")) {
    if (given("blocks")) schedule.partition = Partition::flat;
    if (given("splits") && base.partition == Partition::flat) schedule.partition = Partition::fixed;
  }
  // What belonged to the partition of `base` falls with it.
  const bool was_flat = base.partition == Partition::flat;
  const bool is_flat = schedule.partition == Partition::flat;
  if (is_flat && !was_flat && !given("splits")) schedule.splits = Schedule{}.splits;
  if (was_flat && !is_flat && !given("blocks")) schedule.blocks = Schedule{}.blocks;
  return schedule;
}

}  // namespace splitkv
