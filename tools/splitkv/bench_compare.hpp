// Which word of a schedule wins where: of measured schedules, the best with each value of a word.
#pragma once

#include <string>
#include <vector>

#include "tools/splitkv/bench_report.hpp"

namespace splitkv::tool {

// Words that are compared together: {"partition", "reduce"} has a column for each pair of values.
struct Grouping {
  std::vector<std::string> words;

  bool operator==(const Grouping&) const = default;
};

// "partition+reduce,merge": groupings at commas, their words at pluses. invalid_argument for a word
// that no schedule has, for one that is named twice in a grouping, and for an empty one.
Result<std::vector<Grouping>> parse_groupings(const std::string& text);

// Whether any grouping holds the word.
bool compares(const std::vector<Grouping>& groupings, const std::string& word);

// Words with two values that a program can change by itself: merge, partials and pdl. Where one is
// compared on its own, only schedules count that were measured with both values and are alike in
// all other words: else the better half of the others would be what is seen.
bool is_paired(const Grouping& grouping);

// One row of the table. Schedules that failed or gave a wrong result do not count. A row without
// any that count is left out.
Result<std::vector<Comparison>> compare(const std::vector<Grouping>& groupings,
                                        const std::vector<RowReport>& reports);

// Reports that were written as JSON, whole or a line a schedule. Rows of one name and problem are
// joined, whatever the file: floor and copies are those of the first, ratios are to the floor of
// their own run. The header is that of the first report that has one.
// invalid_argument, with the file's name, for one that is no such report.
Result<std::vector<RowReport>> read_reports(const std::vector<std::string>& files,
                                            BenchHeader& header);

std::string text_of(const Comparison& comparison);
std::string markdown_of(const Comparison& comparison);

}  // namespace splitkv::tool
