#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "compiler/arithmetic.hpp"
#include "compiler/resources.hpp"
#include "compiler/text.hpp"
#include "compiler/text_expr.hpp"

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

// One of two names; `value` becomes true for the second.
bool read_either(bool& value, std::string_view text, std::string_view no, std::string_view yes) {
  value = text == yes;
  return value || text == no;
}

bool read_switch(bool& on, std::string_view text) { return read_either(on, text, "off", "on"); }

bool read_text(std::string_view& kept, std::string_view text) {
  kept = text;
  return !text.empty();
}

bool read_out(Problem& problem, std::string_view text) {
  problem.out_partial = text == "partial";
  if (problem.out_partial) problem.out_dtype = DType::fp32;
  return problem.out_partial || read_dtype(problem.out_dtype, text);
}

bool read_scale(KvScale& scale, std::string_view text) {
  return read_name(scale, text,
                   {KvScale::none, KvScale::tensor, KvScale::head, KvScale::token, KvScale::inl});
}

// "NAME:SCOPE,NAME:SCOPE"
bool read_params(std::vector<Param>& params, std::string_view text) {
  params.clear();
  while (true) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view one = text.substr(0, comma);
    const size_t colon = one.find(':');
    if (colon == 0 || colon == std::string_view::npos) return false;
    Param param{std::string(one.substr(0, colon)), ParamScope::scalar};
    if (!read_name(param.scope, one.substr(colon + 1),
                   {ParamScope::scalar, ParamScope::head, ParamScope::row}))
      return false;
    params.push_back(std::move(param));
    if (comma == text.size()) return true;
    text.remove_prefix(comma + 1);
  }
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

// A problem whose expressions are still text: they may use names that a later word gives.
struct ProblemText : Problem {
  std::string_view score_text;
  std::string_view where_text;
};

using P = ProblemText;
using S = Schedule;
using Text = std::string_view;

constexpr Text kTypes = "fp32, fp16, bf16";
constexpr Text kKvTypes = "fp32, fp16, bf16, e4m3, e5m2, int8";
constexpr Text kScales = "none, tensor, head, token, inline";
constexpr Text kSwitch = "on, off";
constexpr Text kExpression = "an expression (score=score+slope*key_pos)";

constexpr WordRule<ProblemText> kProblemWords[] = {
    {"q", kTypes, [](P& p, Text t) { return read_dtype(p.q_dtype, t); }},
    {"kv", kKvTypes,
     [](P& p, Text t) { return read_dtype(p.k_dtype, t) && read_dtype(p.v_dtype, t); }},
    {"k", kKvTypes, [](P& p, Text t) { return read_dtype(p.k_dtype, t); }},
    {"v", kKvTypes, [](P& p, Text t) { return read_dtype(p.v_dtype, t); }},
    {"out", "fp32, fp16, bf16, partial", [](P& p, Text t) { return read_out(p, t); }},
    {"heads", "Q/KV (heads=32/8), N (heads=32)",
     [](P& p, Text t) { return read_pair(p.q_heads, p.kv_heads, t); }},
    {"dim", "D (dim=128), QK/V (dim=192/128)",
     [](P& p, Text t) { return read_pair(p.dim_qk, p.dim_v, t); }},
    {"q_rope", "a whole number of elements (q_rope=64)",
     [](P& p, Text t) { return read_number(p.dim_rope, t); }},
    {"v_in_k", kSwitch, [](P& p, Text t) { return read_switch(p.v_in_k, t); }},
    {"query_len", "a whole number (query_len=1)",
     [](P& p, Text t) { return read_number(p.query_len, t); }},
    {"ragged", "on, off", [](P& p, Text t) { return read_switch(p.ragged, t); }},
    {"kv_layout", "bhtd, bthd, paged:P:nhd, paged:P:hnd (kv_layout=paged:16:nhd)",
     [](P& p, Text t) { return read_layout(p.kv_layout, t); }},
    {"page_tables", "shared, separate",
     [](P& p, Text t) { return read_either(p.separate_tables, t, "shared", "separate"); }},
    {"kv_scale", kScales,
     [](P& p, Text t) { return read_scale(p.k_scale, t) && read_scale(p.v_scale, t); }},
    {"k_scale", kScales, [](P& p, Text t) { return read_scale(p.k_scale, t); }},
    {"v_scale", kScales, [](P& p, Text t) { return read_scale(p.v_scale, t); }},
    {"scale", "a number (scale=0.125)",
     [](P& p, Text t) { return read_number(p.scale.emplace(), t); }},
    {"softcap", "a number (softcap=50)", [](P& p, Text t) { return read_number(p.softcap, t); }},
    {"alibi", kSwitch, [](P& p, Text t) { return read_switch(p.alibi, t); }},
    {"bias", "fp16, fp32", [](P& p, Text t) { return read_dtype(p.bias.emplace(), t); }},
    {"params", "NAME:scalar, NAME:head, NAME:row, several with commas (params=slope:head)",
     [](P& p, Text t) { return read_params(p.params, t); }},
    {"score", kExpression, [](P& p, Text t) { return read_text(p.score_text, t); }},
    {"mask", "causal, none, tree",
     [](P& p, Text t) {
       return read_name(p.mask, t, {Mask::causal, Mask::none, Mask::tree});
     }},
    {"window", "a whole number of keys (window=4096)",
     [](P& p, Text t) { return read_number(p.window, t); }},
    {"chunk", "a whole number of keys (chunk=8192)",
     [](P& p, Text t) { return read_number(p.chunk, t); }},
    {"where", "an expression (where=key_pos<4||query_pos-key_pos<1024)",
     [](P& p, Text t) { return read_text(p.where_text, t); }},
    {"positions", "contiguous, strided",
     [](P& p, Text t) { return read_either(p.strided_positions, t, "contiguous", "strided"); }},
    {"sink", kSwitch, [](P& p, Text t) { return read_switch(p.sink, t); }},
    {"lse", "none, natural, base2",
     [](P& p, Text t) {
       return read_name(p.lse, t, {LseOutput::none, LseOutput::natural, LseOutput::base2});
     }},
    {"merge", "auto, mlo, lse", [](P& p, Text t) { return read_merge(p.merge, t); }},
    {"deterministic", kSwitch, [](P& p, Text t) { return read_switch(p.deterministic, t); }},
    {"align", "16, 8, 4, 2", [](P& p, Text t) { return read_number(p.align, t); }},
    {"checked", "auto, on, off",
     [](P& p, Text t) {
       return read_name(p.checked, t, {Checked::automatic, Checked::off, Checked::on});
     }},
};

constexpr WordRule<Schedule> kScheduleWords[] = {
    {"family", "simt, mma, wgmma, vector",
     [](S& s, Text t) {
       return read_name(s.family, t, {Family::simt, Family::mma, Family::wgmma, Family::vector});
     }},
    {"tile", "a whole number of keys (tile=64)",
     [](S& s, Text t) { return read_number(s.tile_kv, t); }},
    {"rows", "a whole number (rows=4)", [](S& s, Text t) { return read_number(s.rows, t); }},
    {"warps", "a whole number (warps=4)", [](S& s, Text t) { return read_number(s.warps, t); }},
    {"row_warps", "a whole number of warps (row_warps=2)",
     [](S& s, Text t) { return read_number(s.row_warps, t); }},
    {"unroll", "1, 2, 4, 8", [](S& s, Text t) { return read_number(s.unroll, t); }},
    {"stages", "a whole number (stages=4)", [](S& s, Text t) { return read_number(s.stages, t); }},
    {"loads", "copy, tensor",
     [](S& s, Text t) {
       return read_name(s.loads, t, {Loads::copy, Loads::tensor});
     }},
    {"partition", "fixed, flat, strided",
     [](S& s, Text t) {
       return read_name(s.partition, t, {Partition::fixed, Partition::flat, Partition::strided});
     }},
    {"splits", "a whole number (splits=7)", [](S& s, Text t) { return read_number(s.splits, t); }},
    {"blocks", "a whole number (blocks=264)",
     [](S& s, Text t) { return read_number(s.blocks, t); }},
    {"reduce", "kernel, last_block, cluster",
     [](S& s, Text t) {
       return read_name(s.reduce, t, {Reduce::kernel, Reduce::last_block, Reduce::cluster});
     }},
    {"cluster", "a whole number of blocks (cluster=4)",
     [](S& s, Text t) { return read_number(s.cluster, t); }},
    {"partials", "fp32, bf16",
     [](S& s, Text t) {
       return read_name(s.partial_dtype, t, {DType::fp32, DType::bf16});
     }},
    {"merge", "auto, mlo, lse", [](S& s, Text t) { return read_merge(s.merge, t); }},
    {"pdl", kSwitch, [](S& s, Text t) { return read_switch(s.pdl, t); }},
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

// One word for both of K and V, or one for each.
Outcome check_pairs(const std::vector<std::string_view>& seen) {
  struct Pair {
    std::string_view both, k, v, what;
  };
  for (const Pair& pair :
       {Pair{"kv", "k", "v", "type"}, Pair{"kv_scale", "k_scale", "v_scale", "scale"}})
    if (names(seen, pair.both) && (names(seen, pair.k) || names(seen, pair.v)))
      return invalid_argument(fmt::format(
          "{}=: {}= already names this {}; {}= alone, or {}= and {}=, would work",
          names(seen, pair.k) ? pair.k : pair.v, pair.both, pair.what, pair.both, pair.k, pair.v));
  if (names(seen, "k") != names(seen, "v"))
    return invalid_argument(
        fmt::format("{}=: the word is missing; kv= alone, or k= and v=, would work",
                    names(seen, "k") ? "v" : "k"));
  return Unit{};
}

Outcome read_expression(ScoreExpr& expr, const Problem& problem, Text key, Text text) {
  if (text.empty()) return Unit{};
  Result<ScoreExpr> parsed = parse_expression(text, problem.params, key == "score");
  if (!parsed) return invalid_argument(fmt::format("{}={}: {}", key, text, parsed.error().message));
  expr = *std::move(parsed);
  return Unit{};
}

// What belonged to the family of `base` falls with it.
template <class Given>
void leave_family(Schedule& schedule, const Schedule& base, const Given& given) {
  const bool wgmma = schedule.family == Family::wgmma;
  const bool tensor_cores = wgmma || schedule.family == Family::mma;
  if (!given("unroll")) schedule.unroll = tensor_cores ? 1 : Schedule{}.unroll;
  if (!given("stages")) schedule.stages = tensor_cores ? 2 : Schedule{}.stages;
  if (!given("row_warps")) schedule.row_warps = Schedule{}.row_warps;
  if (!given("loads")) schedule.loads = wgmma ? Loads::tensor : Schedule{}.loads;
  if (!given("warps") && schedule.family == Family::vector) schedule.warps = 1;
  if (wgmma && !given("warps")) schedule.warps = kWgmmaWarps;
  if (wgmma && !given("tile")) schedule.tile_kv = kWgmmaTile;
  if (base.family == Family::wgmma && !given("warps") && schedule.family != Family::vector)
    schedule.warps = Schedule{}.warps;
  if (base.family == Family::wgmma && !given("rows"))
    schedule.rows = std::min(schedule.rows, Schedule{}.rows);
}

// Brings reduce, cluster and partition together where the text leaves one of them to `base`.
template <class Given>
void fit_reduce(Schedule& schedule, const Schedule& base, const Given& given) {
  if (given("reduce")) {
    if (schedule.reduce != base.reduce && !given("cluster")) schedule.cluster = Schedule{}.cluster;
  } else if (given("cluster")) {
    if (schedule.cluster > 1) schedule.reduce = Reduce::cluster;
    if (schedule.cluster == 1 && base.reduce == Reduce::cluster)
      schedule.reduce = Reduce::last_block;
  } else if (schedule.reduce == Reduce::cluster && schedule.partition == Partition::flat) {
    schedule.reduce = Reduce::last_block;
    schedule.cluster = Schedule{}.cluster;
  }
}

}  // namespace

Result<Problem> parse_problem(std::string_view text) {
  ProblemText problem;
  const auto seen = read_words<ProblemText>(problem, text, "attention", kProblemWords);
  if (!seen) return seen.error();
  for (const auto& [key, example] :
       {Word{"q", "q=bf16"}, Word{"heads", "heads=32/8"}, Word{"dim", "dim=128"}})
    if (!names(*seen, key))
      return invalid_argument(fmt::format("{}=: the word is missing; {} would work", key, example));
  if (const Outcome pairs = check_pairs(*seen); !pairs) return pairs.error();
  if (!names(*seen, "kv") && !names(*seen, "k"))
    problem.k_dtype = problem.v_dtype = problem.q_dtype;
  if (!names(*seen, "out")) problem.out_dtype = problem.q_dtype;
  const Outcome score = read_expression(problem.score_mod, problem, "score", problem.score_text);
  if (!score) return score.error();
  const Outcome where = read_expression(problem.predicate, problem, "where", problem.where_text);
  if (!where) return where.error();
  return Problem(std::move(problem));
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
  if (schedule.family != base.family) leave_family(schedule, base, given);
  // Rows that are named come without warps that divide rows, in as many streams as there were;
  // named warps keep them where they can. Each stream of a tile has keys of its own.
  if (!given("row_warps") && schedule.row_warps > 1 && (given("rows") || given("warps"))) {
    if (given("rows") && !given("warps")) schedule.warps = streams(schedule);
    if (given("rows") || schedule.warps % schedule.row_warps != 0)
      schedule.row_warps = Schedule{}.row_warps;
    if (!given("tile") && schedule.warps > 0)
      schedule.tile_kv = round_up(schedule.tile_kv, kMmaStep * streams(schedule));
  }
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
  fit_reduce(schedule, base, given);
  return schedule;
}

}  // namespace splitkv
