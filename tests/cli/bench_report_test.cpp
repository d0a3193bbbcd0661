// What the benchmark writes: text, Markdown, JSON, and what makes a run fail.
#include "tools/splitkv/bench_report.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>

#include "tools/splitkv/bench.hpp"

namespace splitkv::tool {
namespace {

using nlohmann::json;

const BenchHeader kHeader = {"Some Card", "580.1", "13.0", "13.0", "2026-01-02", "0.1.0", "a note"};

RowReport report_of(const std::string& name) {
  RowReport report;
  report.row.name = name;
  report.row.problem = "attention q=bf16 kv=bf16 heads=32/8 dim=128";
  report.row.kv_len = {8192};
  report.row.goal_ratio = 1.25;
  report.kv_bytes = 33'554'432;
  report.sets = 6;
  report.launches = 60;
  report.floor_us = 8;
  report.floor_method = "16-byte loads x8, 264 blocks";
  OurTime ours;
  ours.label = "plain";
  ours.schedule = "schedule family=mma tile=64";
  ours.us = 10;
  ours.least_us = 9.9;
  ours.greatest_us = 10.5;
  ours.error = 1.5e-3;
  ours.error_limit = 4e-3;
  ours.registers_split = 128;
  ours.registers_reduce = 40;
  ours.smem_bytes = 65536;
  report.ours.push_back(ours);
  return report;
}

bool holds(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(BenchReport, TextHasTimeRatioRateErrorAndResources) {
  const std::string text = text_of(report_of("1,32/8,8192"));
  for (const char* part : {"1,32/8,8192: 34 MB", "6 copies", "60 launches", "8.00 us",
                           "16-byte loads x8", "10.00 us", "1.250", "3355 GB/s", "error 1.5e-03",
                           "128 regs+40", "65536 B smem", "schedule family=mma tile=64", "goal"}) {
    EXPECT_TRUE(holds(text, part)) << part << " is not in\n" << text;
  }
  EXPECT_FALSE(holds(text, "WRONG"));
  EXPECT_FALSE(holds(text, "BROKEN"));
}

TEST(BenchReport, TextShowsWhatIsWrong) {
  RowReport report = report_of("a");
  report.ours[0].error = 5e-3;
  report.broken = "the floor cannot be";
  report.cold = false;
  report.refused = 3;
  const std::string text = text_of(report);
  for (const char* part :
       {"WRONG", "BROKEN: the floor cannot be", "too few copies", "3 schedules do not fit"}) {
    EXPECT_TRUE(holds(text, part)) << part;
  }
}

TEST(BenchReport, MarkdownIsOneTableWithAColumnAPeer) {
  RowReport first = report_of("a"), second = report_of("b");
  first.peers.push_back({"cudnn", 12, false, 1.5, ""});
  second.row.peers = {{"flash3", 16}};
  second.row.floor_us = 8;
  add_handed_peers(second);
  const std::string text = markdown_of(kHeader, {first, second});
  EXPECT_TRUE(holds(text, "Some Card, driver 580.1, CUDA 13.0, NVRTC 13.0"));
  EXPECT_TRUE(holds(text, "2026-01-02, a note"));
  EXPECT_TRUE(holds(text, "| GB/s | error | cudnn | flash3 |\n"));
  EXPECT_TRUE(holds(
      text,
      "| a | 34 | 8.00 | plain | 10.00 | 1.250 | 1.25 | 3355 | 1.5e-03 | 12.0 us, 1.50 | - |\n"))
      << text;
  EXPECT_TRUE(holds(text, "| - | 2.00 (handed) |\n")) << text;
}

TEST(BenchReport, JsonHoldsWhatTheTableHolds) {
  RowReport report = report_of("a");
  report.row.peers = {{"flash3", 16}};
  report.peers.push_back({"flex", 0, false, 0, "no such module"});
  add_handed_peers(report);
  const json j = json::parse(json_of(kHeader, {report}));
  EXPECT_EQ(j["card"], "Some Card");
  EXPECT_EQ(j["note"], "a note");
  const json& row = j["rows"][0];
  EXPECT_EQ(row["row"], "a");
  EXPECT_EQ(row["kv_len"], json({8192}));
  EXPECT_EQ(row["floor_us"], 8);
  EXPECT_EQ(row["ours"][0]["ratio"], 1.25);
  EXPECT_EQ(row["ours"][0]["registers"], json({128, 40}));
  EXPECT_EQ(row["peers"][0]["cannot"], "no such module");
  EXPECT_FALSE(row["peers"][0].contains("us"));
  EXPECT_EQ(row["peers"][1]["handed"], true);
  EXPECT_EQ(row["peers"][1]["ratio"], 2.0) << "to this run's floor, where none is handed";
}

TEST(BenchReport, JsonLineOfASweepIsOneLine) {
  const RowReport report = report_of("a");
  const std::string line = json_line_of(report, report.ours[0]);
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  const json j = json::parse(line);
  for (const char* field :
       {"problem", "batch", "lengths", "schedule", "us", "floor_us", "error", "row"}) {
    EXPECT_TRUE(j.contains(field)) << field;
  }
}

TEST(BenchReport, AnErrorThatIsNoNumberIsNull) {
  RowReport report = report_of("a");
  report.ours[0].error = std::numeric_limits<double>::infinity();
  EXPECT_TRUE(json::parse(json_line_of(report, report.ours[0]))["error"].is_null());
  EXPECT_TRUE(is_failed(report));
}

TEST(BenchReport, FailsByABrokenFloorAFailureOrAnError) {
  RowReport report = report_of("a");
  EXPECT_FALSE(is_failed(report));
  report.broken = "broken";
  EXPECT_TRUE(is_failed(report));
  report = report_of("a");
  report.ours[0].failure = "no";
  EXPECT_TRUE(is_failed(report));
  EXPECT_EQ(best_of(report), nullptr);
  report = report_of("a");
  report.ours[0].error = 5e-3;
  EXPECT_TRUE(is_failed(report));
}

TEST(BenchReport, OperationsBoundARowWhereTheyTakeLonger) {
  RowReport report = report_of("a");
  report.row.matrix_flops = kHandedMatrixFlops * 20e-6;
  EXPECT_DOUBLE_EQ(bound_us(report), 20);
  report.floor_us = 30;
  EXPECT_DOUBLE_EQ(bound_us(report), 30);
}

TEST(BenchReport, AMeasuredPeerStandsBeforeTheHandedOne) {
  RowReport report = report_of("a");
  report.row.floor_us = 8;
  report.row.peers = {{"cudnn", 16}, {"flash2", 24}};
  report.peers = {{"cudnn", 20, false, 2.5, ""}, {"flash2", 0, false, 0, "refused"}};
  add_handed_peers(report);
  ASSERT_EQ(report.peers.size(), 2u);
  EXPECT_EQ(report.peers[0].us, 20);
  EXPECT_FALSE(report.peers[0].handed);
  EXPECT_TRUE(report.peers[1].handed);
  EXPECT_DOUBLE_EQ(report.peers[1].ratio, 3);
  EXPECT_EQ(report.peers[1].cannot, "refused");
}

TEST(BenchPeers, AnswersFindTheirRow) {
  std::vector<RowReport> reports = {report_of("a"), report_of("b")};
  EXPECT_TRUE(take_peer_line(R"({"row": "b", "peer": "flex", "us": 16.0})", reports).ok());
  EXPECT_TRUE(take_peer_line(R"({"row": "b", "peer": "fa", "cannot": "why"})", reports).ok());
  EXPECT_TRUE(reports[0].peers.empty());
  ASSERT_EQ(reports[1].peers.size(), 2u);
  EXPECT_DOUBLE_EQ(reports[1].peers[0].ratio, 2);
  EXPECT_EQ(reports[1].peers[1].cannot, "why");
  for (const char* line : {"hello", "[]", "{}", R"({"row": "c", "peer": "flex", "us": 1})",
                           R"({"row": "a", "peer": "flex"})"}) {
    EXPECT_FALSE(take_peer_line(line, reports).ok()) << line;
  }
}

TEST(BenchPeers, TheRequestSaysWhatEachRowIs) {
  const json j = json::parse(peer_request({"", 1, 60'000'000, 9}, {report_of("a")}));
  EXPECT_EQ(j["device"], 1);
  EXPECT_EQ(j["l2_bytes"], 60'000'000);
  const json& row = j["rows"][0];
  EXPECT_EQ(row["row"], "a");
  EXPECT_EQ(row["q_heads"], 32);
  EXPECT_EQ(row["kv_heads"], 8);
  EXPECT_EQ(row["kv_len"], json({8192}));
  EXPECT_EQ(row["k_dtype"], "bf16");
  EXPECT_EQ(row["kv_bytes"], 33'554'432);
}

// The script itself, on a row that no peer is asked to run: nothing is measured, wherever this
// runs.
TEST(BenchPeers, TheScriptAnswersForEveryPeer) {
  if (std::system("python3 -c '' >/dev/null 2>&1") != 0) GTEST_SKIP() << "python3 is not here";
  RowReport report = report_of("a");
  report.row.problem = "attention q=bf16 kv=bf16 heads=32/8 dim=128 window=64";
  std::vector<RowReport> reports = {report};
  const Outcome ran = run_peers({SPLITKV_TEST_PEERS, 0, 60'000'000, 3}, reports);
  ASSERT_TRUE(ran.ok()) << ran.error().message;
  std::vector<std::string> names;
  for (const PeerTime& peer : reports[0].peers) {
    names.push_back(peer.name);
    EXPECT_EQ(peer.us, 0) << peer.name;
    EXPECT_NE(peer.cannot, "") << peer.name;
  }
  EXPECT_EQ(names, (std::vector<std::string>{"cudnn", "flash2", "flex", "flashinfer"}));
  reports = {report};
  ASSERT_TRUE(run_peers({SPLITKV_TEST_PEERS, 0, 60'000'000, 3, {"flex"}}, reports).ok());
  ASSERT_EQ(reports[0].peers.size(), 1u);
  EXPECT_EQ(reports[0].peers[0].name, "flex");
}

TEST(BenchVariants, HaveNamesOrAreTheirWords) {
  EXPECT_EQ(variant_of("early: pdl=on"), (Variant{"early", "pdl=on"}));
  EXPECT_EQ(variant_of("splits=4"), (Variant{"splits=4", "splits=4"}));
  EXPECT_EQ(variant_of(""), (Variant{"default", ""}));
  EXPECT_EQ(variant_of("default"), (Variant{"default", ""}));
  EXPECT_EQ(variant_of("ours: default"), (Variant{"ours", ""}));
}

TEST(BenchReport, OfUnnamedSchedulesOnlyTheFastestRightOneIsKept) {
  RowReport report;
  const auto add = [&](const char* label, bool named, double us, double error) {
    OurTime ours;
    ours.label = label;
    ours.named = named;
    ours.us = us;
    ours.error = error;
    ours.error_limit = 4e-3;
    report.ours.push_back(ours);
  };
  add("default", true, 12.0, 2e-3);
  add("warps=4", false, 11.0, 2e-3);
  add("warps=8", false, 10.0, 2e-3);
  add("warps=2", false, 9.0, 1.0);  // wrong: it must not win, nor be hidden
  keep_best(report);
  ASSERT_EQ(report.ours.size(), 3u);
  EXPECT_EQ(report.ours[0].label, "default");
  EXPECT_EQ(report.ours[1].label, "best of 3");
  EXPECT_EQ(report.ours[1].us, 10.0);
  EXPECT_EQ(report.ours[2].label, "warps=2");
}

}  // namespace
}  // namespace splitkv::tool
