// What wins where: which schedules count, what they are held against, and the three written forms.
#include "tools/splitkv/bench_compare.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace splitkv::tool {
namespace {

using nlohmann::json;

const BenchHeader kHeader = {"Some Card", "580.1", "13.0", "13.0", "2026-01-02", "0.1.0", "a note"};
const std::string kCode = "schedule family=mma tile=64 rows=4 unroll=1 stages=2 ";

RowReport row_named(const std::string& name) {
  RowReport report;
  report.row.name = name;
  report.row.problem = "attention q=bf16 kv=bf16 heads=32/8 dim=128";
  report.row.kv_len = {8192};
  report.kv_bytes = 33'554'432;
  report.floor_us = 10;
  return report;
}

void add(RowReport& report, const std::string& words, double us, double error = 1e-3) {
  OurTime ours;
  ours.label = words;
  ours.schedule = kCode + words;
  ours.us = us;
  ours.error = error;
  ours.error_limit = 4e-3;
  report.ours.push_back(ours);
}

Comparison compared(const std::string& words, const std::vector<RowReport>& reports) {
  const auto groupings = parse_groupings(words);
  EXPECT_TRUE(groupings.ok());
  const auto comparisons = compare(*groupings, reports);
  EXPECT_TRUE(comparisons.ok()) << (comparisons.ok() ? "" : comparisons.error().message);
  if (!comparisons.ok() || comparisons->size() != 1) return {};
  return comparisons->front();
}

double relative(const Comparison& comparison, size_t row, const std::string& column) {
  for (size_t i = 0; i < comparison.columns.size(); ++i) {
    if (comparison.columns[i] == column) return comparison.rows.at(row).relative.at(i);
  }
  return -1;
}

TEST(BenchCompare, ReadsGroupings) {
  const auto groupings = parse_groupings("partition+reduce,merge");
  ASSERT_TRUE(groupings.ok());
  EXPECT_EQ(*groupings, (std::vector<Grouping>{{{"partition", "reduce"}}, {{"merge"}}}));
  EXPECT_TRUE(compares(*groupings, "reduce"));
  EXPECT_FALSE(compares(*groupings, "pdl"));
  for (const char* text : {"", "partition,", "part", "partition+", "merge+merge", "heads"}) {
    const auto refused = parse_groupings(text);
    ASSERT_FALSE(refused.ok()) << text;
    EXPECT_NE(refused.error().message.find(std::string("--compare=") + text), std::string::npos);
    EXPECT_NE(refused.error().message.find("partition, reduce, cluster"), std::string::npos);
  }
}

TEST(BenchCompare, TakesTheBestOfEachPairOfValues) {
  RowReport report = row_named("a");
  add(report, "partition=fixed splits=8", 20);
  add(report, "partition=fixed splits=16", 16);
  add(report, "partition=flat blocks=132 reduce=last_block", 24);
  const Comparison comparison = compared("partition+reduce", {report});
  EXPECT_EQ(comparison.columns, (std::vector<std::string>{"fixed, kernel", "flat, last_block"}));
  ASSERT_EQ(comparison.rows.size(), 1u);
  EXPECT_EQ(comparison.rows[0].schedules, 3);
  EXPECT_DOUBLE_EQ(comparison.rows[0].best_ratio, 1.6);
  EXPECT_DOUBLE_EQ(relative(comparison, 0, "fixed, kernel"), 1.0);
  EXPECT_DOUBLE_EQ(relative(comparison, 0, "flat, last_block"), 1.5);
}

TEST(BenchCompare, OrdersNumbersBySize) {
  RowReport report = row_named("a");
  add(report, "partition=fixed splits=16 reduce=cluster cluster=16", 20);
  add(report, "partition=fixed splits=16 reduce=cluster cluster=2", 20);
  add(report, "partition=fixed splits=16", 20);
  EXPECT_EQ(compared("cluster", {report}).columns, (std::vector<std::string>{"1", "2", "16"}));
}

TEST(BenchCompare, ColumnsThatARowDidNotRunAreEmpty) {
  RowReport first = row_named("a"), second = row_named("b");
  add(first, "partition=fixed splits=8", 20);
  add(second, "partition=flat blocks=132", 30);
  const Comparison comparison = compared("partition", {first, second});
  EXPECT_EQ(relative(comparison, 0, "flat"), 0);
  EXPECT_EQ(relative(comparison, 1, "flat"), 1);
  EXPECT_NE(text_of(comparison).find(" -"), std::string::npos);
}

TEST(BenchCompare, LeavesOutWhatFailedOrIsWrong) {
  RowReport report = row_named("a"), none = row_named("b");
  add(report, "partition=fixed splits=8", 20);
  add(report, "partition=flat blocks=132", 5, 1.0);
  add(report, "partition=flat blocks=264", 6, 1e-3);
  report.ours.back().failure = "no room";
  add(none, "partition=flat blocks=132", 5, 1.0);
  const Comparison comparison = compared("partition", {report, none});
  ASSERT_EQ(comparison.rows.size(), 1u) << "a row without any that count is left out";
  EXPECT_EQ(comparison.columns, (std::vector<std::string>{"fixed"}));
  EXPECT_EQ(comparison.rows[0].schedules, 1);
}

TEST(BenchCompare, TwoValuedWordsCountInPairsOnly) {
  RowReport report = row_named("a");
  add(report, "partition=fixed splits=8", 10);  // mlo, and no pair
  add(report, "partition=fixed splits=16 merge=mlo", 20);
  add(report, "partition=fixed splits=16 merge=lse", 22);
  add(report, "partition=fixed splits=1 reduce=last_block merge=mlo", 5);  // exchanges nothing
  add(report, "partition=fixed splits=1 reduce=last_block merge=lse", 6);
  const Comparison comparison = compared("merge", {report});
  ASSERT_EQ(comparison.rows.size(), 1u);
  EXPECT_EQ(comparison.rows[0].schedules, 2);
  EXPECT_DOUBLE_EQ(relative(comparison, 0, "mlo"), 1.0);
  EXPECT_DOUBLE_EQ(relative(comparison, 0, "lse"), 1.1);
}

TEST(BenchCompare, AMergeThatIsNotNamedIsMlo) {
  RowReport report = row_named("a");
  add(report, "partition=fixed splits=16 pdl=on", 20);
  add(report, "partition=fixed splits=16 merge=lse pdl=on", 10);
  add(report, "partition=fixed splits=16 merge=mlo", 30);  // of pdl's pair
  EXPECT_DOUBLE_EQ(relative(compared("merge", {report}), 0, "mlo"), 2.0);
  EXPECT_DOUBLE_EQ(relative(compared("pdl", {report}), 0, "off"), 1.5);
  report.ours.pop_back();
  EXPECT_TRUE(compared("pdl", {report}).rows.empty());
  EXPECT_NE(text_of(compared("pdl", {report})).find("no row has any"), std::string::npos);
}

TEST(BenchCompare, ComparesPartialsWithinTheSameMerge) {
  RowReport report = row_named("a");
  add(report, "partition=fixed splits=16 merge=lse", 20);
  add(report, "partition=fixed splits=16 partials=bf16 merge=lse", 19);
  add(report, "partition=fixed splits=16 partials=bf16 merge=mlo", 5);
  const Comparison comparison = compared("partials", {report});
  EXPECT_EQ(comparison.rows.at(0).schedules, 2);
  EXPECT_DOUBLE_EQ(relative(comparison, 0, "bf16"), 1.0);
  EXPECT_DOUBLE_EQ(relative(comparison, 0, "fp32"), 20.0 / 19);
}

TEST(BenchCompare, CountsRowsThatAColumnWinsOrNearlyWins) {
  std::vector<RowReport> reports = {row_named("a"), row_named("b")};
  add(reports[0], "partition=fixed splits=8", 20);
  add(reports[0], "partition=flat blocks=132", 20.3);
  add(reports[1], "partition=fixed splits=8", 30);
  add(reports[1], "partition=flat blocks=132", 20);
  const std::string text = markdown_of(compared("partition", reports));
  EXPECT_NE(text.find("| row | schedules | best to floor | fixed | flat |\n|---|---|---|---|---|\n"
                      "| a | 2 | 2.000 | 1.000 | 1.015 |\n| b | 2 | 2.000 | 1.500 | 1.000 |\n"
                      "| rows it is the best of |  |  | 1 | 1 |\n"
                      "| rows within 2 % of the best |  |  | 1 | 2 |\n"),
            std::string::npos)
      << text;
}

TEST(BenchCompare, RefusesASchedulesTextThatIsNone) {
  RowReport report = row_named("a");
  add(report, "partition=round", 20);
  const auto refused = compare({{{"partition"}}}, {report});
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("row a"), std::string::npos);
}

TEST(BenchCompare, JsonHoldsEachRow) {
  RowReport report = row_named("a");
  add(report, "partition=fixed splits=8", 20);
  add(report, "partition=flat blocks=132", 30);
  const Comparison comparison = compared("partition", {report});
  const json j = json::parse(json_of(kHeader, {report}, {comparison}))["comparisons"][0];
  EXPECT_EQ(j["words"], json({"partition"}));
  EXPECT_EQ(j["rows"][0]["row"], "a");
  EXPECT_EQ(j["rows"][0]["best_ratio"], 2.0);
  EXPECT_EQ(j["rows"][0]["relative"], json({{"fixed", 1.0}, {"flat", 1.5}}));
}

class SavedReports : public testing::Test {
 protected:
  SavedReports() {
    std::string name = (std::filesystem::temp_directory_path() / "splitkv-saved-XXXXXX").string();
    folder_ = mkdtemp(name.data());
  }
  ~SavedReports() override { std::filesystem::remove_all(folder_); }
  std::string write(const std::string& name, const std::string& text) const {
    const std::string path = (folder_ / name).string();
    std::ofstream(path) << text;
    return path;
  }
  std::filesystem::path folder_;
};

TEST_F(SavedReports, CompareAsTheyDidWhenMeasured) {
  RowReport report = row_named("a");
  add(report, "partition=fixed splits=8", 20);
  add(report, "partition=flat blocks=132", 30);
  add(report, "partition=flat blocks=264", 10, std::numeric_limits<double>::infinity());
  add(report, "partition=flat blocks=528", 10);
  report.ours.back().failure = "no room";
  BenchHeader header;
  const auto whole = read_reports({write("a.json", json_of(kHeader, {report}))}, header);
  ASSERT_TRUE(whole.ok()) << whole.error().message;
  EXPECT_EQ(header, kHeader);
  EXPECT_EQ(compared("partition", *whole), compared("partition", {report}));
  std::string lines;
  for (const OurTime& ours : report.ours) lines += json_line_of(report, ours);
  const auto listed = read_reports({write("a.jsonl", lines)}, header);
  ASSERT_TRUE(listed.ok()) << listed.error().message;
  EXPECT_EQ(compared("partition", *listed), compared("partition", {report}));
}

TEST_F(SavedReports, AreToldAgainAsTheyWere) {
  RowReport report = row_named("a");
  add(report, "partition=fixed splits=8", 20);
  OurTime& ours = report.ours[0];
  ours.least_us = 19, ours.greatest_us = 21;
  ours.registers_split = 128, ours.registers_reduce = 40, ours.smem_bytes = 65536;
  ours.named = false;
  report.row.goal_ratio = 1.25;
  report.row.drawn = true;
  report.row.matrix_flops = kHandedMatrixFlops * 15e-6;
  report.sets = 6, report.launches = 60, report.refused = 2;
  report.cold = false;
  report.broken = "why";
  report.peers = {{"cudnn", 30, false, 3, ""}, {"flex", 40, true, 4, "no module"}};
  BenchHeader header;
  const std::string path = write("a.json", json_of(kHeader, {report}));
  const auto saved = read_reports({path}, header);
  ASSERT_TRUE(saved.ok()) << saved.error().message;
  EXPECT_EQ(json_of(header, *saved), json_of(kHeader, {report}));
  EXPECT_EQ(markdown_of(header, *saved), markdown_of(kHeader, {report}));
  EXPECT_EQ(text_of(saved->front()), text_of(report));
  const auto twice = read_reports({path, path}, header);
  ASSERT_TRUE(twice.ok());
  EXPECT_EQ(twice->front().ours.size(), 2u);
  EXPECT_EQ(twice->front().peers.size(), 2u) << "peers are told once";
}

TEST_F(SavedReports, OfSeveralFilesAreJoinedAtTheirFloors) {
  RowReport first = row_named("a"), second = row_named("a"), other = row_named("a");
  add(first, "partition=fixed splits=8", 20);
  second.floor_us = 5;
  add(second, "partition=flat blocks=132", 15);
  other.row.problem = "attention q=fp16 kv=fp16 heads=32/8 dim=128";
  add(other, "partition=flat blocks=132", 15);
  BenchHeader header;
  const auto reports = read_reports({write("a.json", json_of(kHeader, {first})),
                                     write("b.json", json_of(kHeader, {second, other}))},
                                    header);
  ASSERT_TRUE(reports.ok()) << reports.error().message;
  ASSERT_EQ(reports->size(), 2u);
  const Comparison comparison = compared("partition", *reports);
  EXPECT_DOUBLE_EQ(relative(comparison, 0, "fixed"), 1.0);
  EXPECT_DOUBLE_EQ(relative(comparison, 0, "flat"), 1.5) << "3 x its floor against 2 x";
}

TEST_F(SavedReports, SayWhatIsWrongWithAFile) {
  BenchHeader header;
  for (const std::string text : {"", "hello", "[]", "{}", R"({"rows": [{}]})", R"({"rows": []})",
                                 R"({"row": "a", "problem": "p", "kv_bytes": 1})"}) {
    const auto refused = read_reports({write("bad.json", text)}, header);
    ASSERT_FALSE(refused.ok()) << text;
    EXPECT_EQ(refused.error().status, Status::invalid_argument);
    EXPECT_NE(refused.error().message.find("bad.json"), std::string::npos) << text;
  }
  const auto nowhere = read_reports({"/nowhere.json"}, header);
  ASSERT_FALSE(nowhere.ok());
  EXPECT_NE(nowhere.error().message.find("--from=/nowhere.json"), std::string::npos);
}

}  // namespace
}  // namespace splitkv::tool
