#include "tools/splitkv/bench_compare.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "compiler/text.hpp"

namespace splitkv::tool {
namespace {

using ValueOf = std::string (*)(const Problem&, const Schedule&);

struct Word {
  const char* name;
  ValueOf value_of;
};

std::string number(int64_t value) { return fmt::format("{}", value); }

bool is_number(const std::string& text) {
  return text.find_first_not_of("0123456789") == std::string::npos;
}

constexpr Word kWords[] = {
    {"family", [](const Problem&, const Schedule& s) { return std::string(name(s.family)); }},
    {"tile", [](const Problem&, const Schedule& s) { return number(s.tile_kv); }},
    {"rows", [](const Problem&, const Schedule& s) { return number(s.rows); }},
    {"warps", [](const Problem&, const Schedule& s) { return number(s.warps); }},
    {"stages", [](const Problem&, const Schedule& s) { return number(s.stages); }},
    {"loads", [](const Problem&, const Schedule& s) { return std::string(name(s.loads)); }},
    {"partition", [](const Problem&, const Schedule& s) { return std::string(name(s.partition)); }},
    {"reduce", [](const Problem&, const Schedule& s) { return std::string(name(s.reduce)); }},
    {"cluster", [](const Problem&, const Schedule& s) { return number(s.cluster); }},
    {"partials",
     [](const Problem&, const Schedule& s) { return std::string(name(s.partial_dtype)); }},
    {"merge",
     [](const Problem& p, const Schedule& s) { return std::string(name(exchanged_merge(p, s))); }},
    {"pdl", [](const Problem&, const Schedule& s) { return std::string(s.pdl ? "on" : "off"); }},
};

const Word* word_named(const std::string& text) {
  const auto found = std::find_if(std::begin(kWords), std::end(kWords),
                                  [&](const Word& word) { return text == word.name; });
  return found == std::end(kWords) ? nullptr : found;
}

std::vector<std::string> parts_of(const std::string& text, char separator) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == separator) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

Error bad_word(const std::string& text, const std::string& what) {
  std::string known;
  for (const Word& word : kWords) known += (known.empty() ? "" : ", ") + std::string(word.name);
  return invalid_argument(
      fmt::format("--compare={}: {}; words of a schedule ({}), joined by + where they are compared "
                  "together and apart by commas, would work",
                  text, what, known));
}

std::string column_of(const Grouping& grouping, const Problem& problem, const Schedule& schedule) {
  std::string column;
  for (const std::string& word : grouping.words) {
    column += (column.empty() ? "" : ", ") + word_named(word)->value_of(problem, schedule);
  }
  return column;
}

// What the other schedules of a pair are alike in; nothing where the word has no bearing.
std::optional<std::string> rest_of(const Grouping& grouping, const Problem& problem,
                                   Schedule schedule) {
  const std::string& word = grouping.words.front();
  if (word == "pdl") {
    schedule.pdl = false;
  } else if (!exchanges_partials(schedule)) {
    return std::nullopt;
  } else if (word == "merge") {
    schedule.merge = Merge::automatic;
  } else {
    schedule.partial_dtype = DType::fp32;
  }
  if (word != "merge") schedule.merge = exchanged_merge(problem, schedule);
  return print(schedule);
}

struct Timed {
  Schedule schedule;
  double ratio = 0;  // to the floor
};

Result<std::vector<Timed>> right_ones(const RowReport& report) {
  std::vector<Timed> timed;
  for (const OurTime& ours : report.ours) {
    if (!ours.failure.empty() || !(ours.error <= ours.error_limit)) continue;
    const Result<Schedule> schedule = parse_schedule(ours.schedule);
    if (!schedule) {
      return invalid_argument(fmt::format("row {}: its schedule cannot be read: {}",
                                          report.row.name, schedule.error().message));
    }
    timed.push_back({*schedule, ratio_of(report, ours)});
  }
  return timed;
}

// Leaves those whose other halves were measured too.
void keep_pairs(const Grouping& grouping, const Problem& problem, std::vector<Timed>& timed) {
  std::map<std::string, std::vector<std::string>> values;  // by what the pairs are alike in
  for (const Timed& one : timed) {
    if (const auto rest = rest_of(grouping, problem, one.schedule)) {
      values[*rest].push_back(column_of(grouping, problem, one.schedule));
    }
  }
  std::erase_if(timed, [&](const Timed& one) {
    const auto rest = rest_of(grouping, problem, one.schedule);
    if (!rest) return true;
    const std::vector<std::string>& found = values[*rest];
    return std::all_of(found.begin(), found.end(),
                       [&](const std::string& value) { return value == found.front(); });
  });
}

Result<Comparison> compare_one(const Grouping& grouping, const std::vector<RowReport>& reports) {
  Comparison comparison;
  comparison.words = grouping.words;
  std::vector<std::map<std::string, double>> best_of_rows;
  for (const RowReport& report : reports) {
    const Result<Problem> problem = parse_problem(report.row.problem);
    if (!problem) return problem.error();
    Result<std::vector<Timed>> timed = right_ones(report);
    if (!timed) return timed.error();
    if (is_paired(grouping)) keep_pairs(grouping, *problem, *timed);
    if (timed->empty()) continue;
    std::map<std::string, double> best;
    for (const Timed& one : *timed) {
      const auto [at, is_new] =
          best.emplace(column_of(grouping, *problem, one.schedule), one.ratio);
      if (!is_new) at->second = std::min(at->second, one.ratio);
    }
    ComparedRow row;
    row.row = report.row.name;
    row.schedules = int64_t(timed->size());
    row.best_ratio = std::min_element(best.begin(), best.end(), [](const auto& a, const auto& b) {
                       return a.second < b.second;
                     })->second;
    comparison.rows.push_back(std::move(row));
    for (const auto& [value, ratio] : best) {
      auto& columns = comparison.columns;
      if (std::find(columns.begin(), columns.end(), value) == columns.end())
        columns.push_back(value);
    }
    best_of_rows.push_back(std::move(best));
  }
  // Numbers by size: shorter ones are smaller.
  std::sort(comparison.columns.begin(), comparison.columns.end(),
            [](const std::string& a, const std::string& b) {
              const bool numbers = is_number(a) && is_number(b);
              if (numbers && a.size() != b.size()) return a.size() < b.size();
              return a < b;
            });
  for (size_t i = 0; i < comparison.rows.size(); ++i) {
    ComparedRow& row = comparison.rows[i];
    for (const std::string& column : comparison.columns) {
      const auto found = best_of_rows[i].find(column);
      row.relative.push_back(found == best_of_rows[i].end() ? 0 : found->second / row.best_ratio);
    }
  }
  return comparison;
}

std::string title_of(const Comparison& comparison) {
  std::string title;
  for (const std::string& word : comparison.words) title += (title.empty() ? "" : " and ") + word;
  return title;
}

// Rows on which the column is within `share` of the best.
int64_t rows_within(const Comparison& comparison, size_t column, double share) {
  return std::count_if(comparison.rows.begin(), comparison.rows.end(), [&](const ComparedRow& row) {
    return row.relative[column] > 0 && row.relative[column] <= 1 + share;
  });
}

std::string cell_of(double relative) {
  return relative > 0 ? fmt::format("{:.3f}", relative) : "-";
}

constexpr double kNear = 0.02;

// The lines of both forms: cells, the first of which is the row's name.
std::vector<std::vector<std::string>> cells_of(const Comparison& comparison) {
  std::vector<std::vector<std::string>> lines = {{"row", "schedules", "best to floor"}};
  for (const std::string& column : comparison.columns) lines[0].push_back(column);
  for (const ComparedRow& row : comparison.rows) {
    lines.push_back({row.row, number(row.schedules), fmt::format("{:.3f}", row.best_ratio)});
    for (const double relative : row.relative) lines.back().push_back(cell_of(relative));
  }
  const std::pair<std::string, double> counts[] = {{"rows it is the best of", 0},
                                                   {"rows within 2 % of the best", kNear}};
  for (const auto& [what, share] : counts) {
    lines.push_back({what, "", ""});
    for (size_t column = 0; column < comparison.columns.size(); ++column) {
      lines.back().push_back(number(rows_within(comparison, column, share)));
    }
  }
  return lines;
}

std::string caption_of(const Comparison& comparison) {
  const bool paired = is_paired({comparison.words});
  return fmt::format(
      "{}: the best time with each, as a multiple of the row's best{}", title_of(comparison),
      paired ? ", of schedules that were run with both and differ in nothing else" : "");
}

}  // namespace

Result<std::vector<Grouping>> parse_groupings(const std::string& text) {
  std::vector<Grouping> groupings;
  for (const std::string& part : parts_of(text, ',')) {
    Grouping grouping;
    for (const std::string& word : parts_of(part, '+')) {
      if (word_named(word) == nullptr)
        return bad_word(text, fmt::format("\"{}\" is not compared", word));
      auto& words = grouping.words;
      if (std::find(words.begin(), words.end(), word) != words.end())
        return bad_word(text, fmt::format("{} stands twice in {}", word, part));
      words.push_back(word);
    }
    groupings.push_back(std::move(grouping));
  }
  return groupings;
}

bool compares(const std::vector<Grouping>& groupings, const std::string& word) {
  return std::any_of(groupings.begin(), groupings.end(), [&](const Grouping& grouping) {
    return std::find(grouping.words.begin(), grouping.words.end(), word) != grouping.words.end();
  });
}

bool is_paired(const Grouping& grouping) {
  if (grouping.words.size() != 1) return false;
  const std::string& word = grouping.words.front();
  return word == "merge" || word == "partials" || word == "pdl";
}

Result<std::vector<Comparison>> compare(const std::vector<Grouping>& groupings,
                                        const std::vector<RowReport>& reports) {
  std::vector<Comparison> comparisons;
  for (const Grouping& grouping : groupings) {
    Result<Comparison> comparison = compare_one(grouping, reports);
    if (!comparison) return comparison.error();
    comparisons.push_back(std::move(*comparison));
  }
  return comparisons;
}

std::string text_of(const Comparison& comparison) {
  if (comparison.rows.empty()) return caption_of(comparison) + ": no row has any\n";
  const auto lines = cells_of(comparison);
  std::vector<size_t> widths(lines[0].size());
  for (const auto& line : lines) {
    for (size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  std::string text = caption_of(comparison) + "\n";
  for (const auto& line : lines) {
    text += fmt::format("  {:<{}}", line[0], widths[0]);
    for (size_t i = 1; i < line.size(); ++i) text += fmt::format("  {:>{}}", line[i], widths[i]);
    text += "\n";
  }
  return text;
}

std::string markdown_of(const Comparison& comparison) {
  std::string text = "\nWhat wins where. " + caption_of(comparison);
  if (comparison.rows.empty()) return text + ": no row has any.\n";
  text += ".\n\n";
  const auto lines = cells_of(comparison);
  for (size_t i = 0; i < lines.size(); ++i) {
    text += "|";
    for (const std::string& cell : lines[i]) text += fmt::format(" {} |", cell);
    text += "\n";
    if (i > 0) continue;
    text += "|";
    for (size_t column = 0; column < lines[0].size(); ++column) text += "---|";
    text += "\n";
  }
  return text;
}

}  // namespace splitkv::tool
