// The tuning page as text: what stands in it, that it is safe and whole by itself, and the sums
// behind its drawings. How a browser shows it is browser_test.cpp.
#include <gtest/gtest.h>

#include <algorithm>

#include "compiler/text.hpp"
#include "tests/tuning/page_case.hpp"
#include "tools/splitkv/tune_page_drawings.hpp"

using namespace splitkv;
using namespace splitkv::tool;
using namespace splitkv::tuning_test;

namespace {

bool says(const std::string& text, const std::string& words) {
  return text.find(words) != std::string::npos;
}

int count(const std::string& text, const std::string& words) {
  int found = 0;
  for (size_t at = text.find(words); at != std::string::npos; at = text.find(words, at + 1)) {
    ++found;
  }
  return found;
}

Schedule simple(int warps, Reduce reduce) {
  Schedule schedule;
  schedule.warps = warps;
  schedule.reduce = reduce;
  return schedule;
}

TEST(TunePage, HoldsWhatWasTunedOfEachProblem) {
  const std::string page = tune_report(reported());
  for (const char* words :
       {"2026-01-31", "splitkv 0.1.0", "2 problems, 42 s", "cuda:1", "A card", "NVRTC-13.0",
        "580.65.06", "sm_90a sms=132", "batch=64 kv_len=4096 rows=equal",
        // Winner, time, floor, ratio, the untuned ratio, how much better.
        "partition=flat blocks=132 reduce=last_block", ">44.0</td>", ">40.0</td>", ">1.100</td>",
        ">1.650</td>", ">1.50x</td>", "failed", "untuned: batch=512", "on cuda:0, cuda:1"}) {
    EXPECT_TRUE(says(page, words)) << words << "\n" << page;
  }
  EXPECT_EQ(count(page, "<tr class=\"record\">"), 5);
  EXPECT_EQ(count(page, "<g class=\"mark\">"), 5);
  EXPECT_EQ(count(page, "<circle class=\"own\""), 4) << "what a file tells has no untuned time";
}

TEST(TunePage, TextsFromOutsideAreNeverMarkup) {
  const std::string page = tune_report(reported());
  EXPECT_FALSE(says(page, "<script"));
  EXPECT_FALSE(says(page, "second line")) << "of messages the first line alone";
  EXPECT_EQ(count(page, "&lt;script&gt;"), 4);
  EXPECT_TRUE(says(page, "key_pos&lt;1024&amp;&amp;key_pos&gt;3"));
  EXPECT_TRUE(says(page, "&amp;amp;&quot;&#39;"));
  EXPECT_EQ(escaped(std::string("a\0b\x1b[1m\n", 8)), "a?b?[1m\n");
}

TEST(TunePage, LoadsNothing) {
  const std::string page = tune_report(reported());
  for (const char* words : {"http", "src=", "href=", "url(", "@import", "<link", "//"}) {
    EXPECT_FALSE(says(page, words)) << words;
  }
  EXPECT_TRUE(says(page, "prefers-color-scheme: dark"));
}

TEST(TunePage, WithNothingMeasuredHasNoDrawings) {
  TuneReportData data = reported();
  for (ReportedProblem& problem : data.problems) {
    problem.points.clear(), problem.records.clear(), problem.failures.clear();
  }
  const std::string page = tune_report(data);
  EXPECT_FALSE(says(page, "<svg"));
  EXPECT_TRUE(says(page, "untuned: batch=512"));
  EXPECT_TRUE(says(tune_report({}), "0 problems"));
}

TEST(TunePage, AReportOfTheTunerJoinsItsProblem) {
  TuningReport report;
  const TuneReportData data = reported();
  report.records = {data.problems[0].records[0].record};
  report.untuned_ratio = {1.25};
  report.points = {data.problems[0].points[0]};
  report.untuned = {"why"};
  ReportedProblem problem = data.problems[1];
  add_report(problem, report);
  ASSERT_EQ(problem.records.size(), 2u);
  EXPECT_EQ(problem.records[1].untuned_ratio, 1.25);
  EXPECT_EQ(problem.records[1].origin, "");
  EXPECT_EQ(problem.points.size(), 1u);
  EXPECT_EQ(problem.untuned, report.untuned);
}

TEST(PlotMarks, AreTheWinnersTimeAtEachWorkloadAndTheLibrarysOwn) {
  const auto marks = plot_marks(reported());
  ASSERT_EQ(marks.size(), 5u);
  EXPECT_EQ(marks[1].floor_us, 40);
  EXPECT_DOUBLE_EQ(marks[1].tuned_us, 44);
  EXPECT_DOUBLE_EQ(marks[1].own_us, 66);
  EXPECT_TRUE(says(marks[1].title, "4x4096: 44.0 us, 1.100 of the floor (40.0 us)"))
      << marks[1].title;
  EXPECT_TRUE(says(marks[1].title, "untuned: 66.0 us, 1.650")) << marks[1].title;
  EXPECT_EQ(marks[4].own_us, 0);
  EXPECT_TRUE(says(marks[4].title, "batch=8 kv_len=8192 rows=any")) << marks[4].title;
}

TEST(PlotMarks, AreLeftOutWhereNothingIsKnown) {
  TuneReportData data = reported();
  data.problems[0].points[0].floor_us = 0;
  data.problems[0].points[1].times.clear();
  data.problems[0].records.pop_back();
  EXPECT_EQ(plot_marks(data).size(), 2u);
}

TEST(WorthOfChoices, ComparesTheBestOfEachValueWithTheBestOfAll) {
  const Schedule a = simple(4, Reduce::kernel), b = simple(8, Reduce::kernel),
                 c = simple(4, Reduce::last_block);
  // Reduce: last_block is 1.2 and 1.8 of the best; the mean is their root. Warps: 8 is best once.
  const std::vector<PointTimes> points = {
      {{1, 1024}, 50, a, {{a, 100, 9}, {b, 110, 1}, {c, 120, 1}}},
      {{8, 1024}, 50, a, {{b, 100, 9}, {a, 125, 1}, {c, 180, 1}}},
      {{64, 1024}, 50, a, {}},
  };
  const auto choices = worth_of_choices(points);
  ASSERT_EQ(choices.size(), 4u);
  EXPECT_EQ(choices[0].word, "reduce");
  EXPECT_EQ(choices[0].value, "kernel");
  EXPECT_DOUBLE_EQ(choices[0].slowdown, 1);
  EXPECT_EQ(choices[0].schedules, 2);
  EXPECT_EQ(choices[0].workloads, 2);
  EXPECT_EQ(choices[1].value, "last_block");
  EXPECT_NEAR(choices[1].slowdown, 1.4697, 1e-4);
  EXPECT_EQ(choices[2].word, "warps");
  EXPECT_EQ(choices[2].value, "4");
  EXPECT_NEAR(choices[2].slowdown, 1.1180, 1e-4);
  EXPECT_EQ(choices[3].value, "8");
  EXPECT_NEAR(choices[3].slowdown, 1.0488, 1e-4);
}

TEST(WorthOfChoices, OrdersNumbersAsNumbersAndTakesEveryWord) {
  std::vector<PointTimes> points = {{{1, 1024}, 1, {}, {}}};
  Schedule other = simple(16, Reduce::cluster);
  other.partition = Partition::flat;
  other.stages = 3;
  other.pdl = true;
  other.loads = Loads::tensor;
  other.family = Family::mma;
  other.rows = 8;
  other.unroll = 1;
  other.tile_kv = 128;
  other.merge = Merge::lse;
  points[0].times = {{other, 1, 1}, {simple(2, Reduce::kernel), 2, 1}};
  std::vector<std::string> said;
  for (const ChoiceWorth& choice : worth_of_choices(points)) {
    said.push_back(choice.word + "=" + choice.value);
  }
  const std::vector<std::string> wanted = {
      "family=simt",    "family=mma", "partition=fixed", "partition=flat", "reduce=kernel",
      "reduce=cluster", "rows=4",     "rows=8",          "tile=64",        "tile=128",
      "warps=2",        "warps=16",   "stages=1",        "stages=3",       "unroll=1",
      "unroll=4",       "loads=copy", "loads=tensor",    "merge=auto",     "merge=lse",
      "pdl=off",        "pdl=on"};
  std::vector<std::string> sorted = said, expected = wanted;
  std::sort(sorted.begin(), sorted.end());
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(sorted, expected);
  EXPECT_LT(std::find(said.begin(), said.end(), "warps=2"),
            std::find(said.begin(), said.end(), "warps=16"));
}

TEST(ShortNumber, HasThreeDigits) {
  EXPECT_EQ(short_number(0.07123), "0.0712");
  EXPECT_EQ(short_number(1), "1.00");
  EXPECT_EQ(short_number(71.23), "71.2");
  EXPECT_EQ(short_number(10), "10.0");
  EXPECT_EQ(short_number(7123), "7123");
  EXPECT_EQ(short_number(0), "-");
}

}  // namespace
