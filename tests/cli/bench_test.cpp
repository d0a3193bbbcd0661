// `splitkv bench` as a user calls it: what it refuses, by name and with what would work.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/cli/process.hpp"

namespace splitkv::cli_test {
namespace {

const std::string kGood = "attention q=bf16 kv=bf16 heads=4/2 dim=64";

struct Bad {
  std::vector<std::string> arguments;
  std::vector<std::string> named;  // what stderr must hold
};

void expect_refused(const Bad& bad) {
  std::vector<std::string> arguments = {"bench"};
  arguments.insert(arguments.end(), bad.arguments.begin(), bad.arguments.end());
  const Finished finished = run_splitkv(arguments);
  std::string line;
  for (const std::string& argument : arguments) line += argument + " | ";
  EXPECT_EQ(finished.status, 2) << line << finished.err;
  for (const std::string& named : bad.named) {
    EXPECT_NE(finished.err.find(named), std::string::npos)
        << line << "does not name " << named << " in: " << finished.err;
  }
}

TEST(Bench, RefusesOptionsByName) {
  const std::vector<Bad> cases = {
      {{"--table", "square"},
       {"--table=square", "uniform, ragged, models, mla, all, random or cpu"}},
      {{"--dtype", "fp32"}, {"--dtype=fp32", "bf16 or fp16"}},
      {{"--row", "nowhere"}, {"--row=nowhere", "1,32/8,8192"}},
      {{"--batch", "2"}, {"--batch=2", "goes with a problem"}},
      {{"--kv-len", "7"}, {"--kv-len=7", "goes with a problem"}},
      {{"--repeat", "0"}, {"--repeat=0", "1 or more"}},
      {{"--limit", "5"}, {"--limit=5", "--sweep"}},
      {{"--sweep", "--limit", "0"}, {"--limit=0", "1 or more"}},
      {{"--sweep", "--schedule", "splits=2"}, {"--sweep", "--schedule"}},
      {{"--sweep", "--peers"}, {"--sweep", "--peers"}},
      {{"--sweep", "--format", "markdown"}, {"--format=markdown", "json"}},
      {{"--peers-script", "x.py"}, {"--peers-script=x.py", "--peers"}},
      {{"--only-peers", "flex"}, {"--only-peers=flex", "--peers"}},
      {{"--peers", "--only-peers", "flex,llama"}, {"--only-peers=llama", "flashinfer"}},
      {{"--format", "html"}, {"--format=html", "text, json or markdown"}},
      {{"--schedules-file", "/nowhere.txt"}, {"--schedules-file=/nowhere.txt"}},
      {{"--wings"}, {"--wings"}},
      {{"--count", "3"}, {"--count=3", "--table=random"}},
      {{"--table", "random", "--count", "0"}, {"--count=0", "1 to 10000"}},
      {{"--table", "random", "--dtype", "fp16"}, {"--dtype=fp16", "draws types"}},
      {{"--table", "random", "--paged"}, {"--paged", "draws layouts"}},
      {{"--compare", "speed"}, {"--compare=speed", "\"speed\" is not compared", "partition"}},
      {{"--sweep", "--best"}, {"--best", "--compare"}},
      {{"--from", "a.json", "--compare", "pdl", "--repeat", "3"}, {"--from=a.json", "before"}},
      {{"--from", "/nowhere.json", "--compare", "pdl"}, {"--from=/nowhere.json", "read"}},
  };
  for (const Bad& bad : cases) expect_refused({bad.arguments, bad.named});
}

TEST(Bench, RefusesWhatDoesNotGoWithAProblem) {
  const std::vector<Bad> cases = {
      {{"attention q=fp31"}, {"fp31"}},
      {{kGood}, {"--kv-len is missing"}},
      {{kGood, "--kv-len", "8", "--batch", "-1"}, {"--batch=-1", "1 or more"}},
      {{kGood, "--kv-len", "-8"}, {"--kv-len=-8", "0 to 2147483647"}},
      {{kGood, "--kv-len", "1,2", "--batch", "3"}, {"--batch=3", "2 lengths"}},
      {{kGood, "--kv-len", "8", "--table", "mla"}, {"--table=mla", "without a problem"}},
      {{kGood, "--kv-len", "8", "--dtype", "fp16"}, {"--dtype=fp16", "q= and kv="}},
      {{kGood, "--kv-len", "8", "--paged"}, {"--paged", "kv_layout=paged:16:nhd"}},
  };
  for (const Bad& bad : cases) expect_refused(bad);
}

#ifdef SPLITKV_TEST_CPU
TEST(Bench, MeasuresAndChecksOnTheCpu) {
  const Finished finished =
      run_splitkv({"bench", kGood, "--kv-len", "300,0,41", "--target", "cpu", "--repeat", "3",
                   "--format", "json", "--schedule", "two: splits=2", "--schedule", "default"});
  ASSERT_EQ(finished.status, 0) << finished.err;
  const nlohmann::json row = nlohmann::json::parse(finished.out)["rows"][0];
  EXPECT_EQ(row["kv_bytes"], 341 * 2 * 64 * 2 * 2);
  EXPECT_EQ(row["cold"], false) << "some copies of little";
  EXPECT_GT(row["floor_us"], 0);
  ASSERT_EQ(row["ours"].size(), 2u);
  EXPECT_EQ(row["ours"][0]["label"], "two");
  EXPECT_NE(row["ours"][0]["schedule"].get<std::string>().find("splits=2"), std::string::npos);
  for (const nlohmann::json& ours : row["ours"]) {
    EXPECT_GT(ours["us"], 0);
    EXPECT_GT(ours["ratio"], 0);
    EXPECT_GT(ours["error"], 0) << "bf16 rounds";
    EXPECT_LT(ours["error"], 4e-3);
  }
}

TEST(Bench, ComparesWhatItMeasuredAndWhatItSaved) {
  const Folder folder;
  const std::string saved = folder.file("saved.json");
  const Finished measured =
      run_splitkv({"bench", kGood, "--kv-len", "3000,41", "--target", "cpu", "--repeat", "3",
                   "--format", "json", "--schedule", "partition=fixed splits=4 reduce=last_block",
                   "--schedule", "partition=flat blocks=4 reduce=last_block", "--compare",
                   "partition,merge", "--out", saved});
  ASSERT_EQ(measured.status, 0) << measured.err;
  std::ifstream file(saved);
  const nlohmann::json report = nlohmann::json::parse(file);
  EXPECT_EQ(report["rows"][0]["ours"].size(), 4u) << "each with both merges";
  const nlohmann::json& partitions = report["comparisons"][0]["rows"][0]["relative"];
  EXPECT_EQ(partitions.size(), 2u);
  EXPECT_EQ(std::min(partitions["fixed"].get<double>(), partitions["flat"].get<double>()), 1.0);
  EXPECT_EQ(report["comparisons"][1]["rows"][0]["relative"].size(), 2u);
  const Finished again =
      run_splitkv({"bench", "--from", saved, "--compare", "partition,merge", "--format", "json"});
  ASSERT_EQ(again.status, 0) << again.err;
  EXPECT_EQ(nlohmann::json::parse(again.out)["comparisons"], report["comparisons"]);
  const Finished shown = run_splitkv({"bench", "--from", saved, "--compare", "partition"});
  EXPECT_NE(shown.out.find("rows within 2 % of the best"), std::string::npos) << shown.out;
  const Finished none =
      run_splitkv({"bench", "--from", saved, "--compare", "partition", "--row", "7/7"});
  EXPECT_EQ(none.status, 2);
  EXPECT_NE(none.err.find("--row=7/7"), std::string::npos) << none.err;
}

TEST(Bench, MeasuresARowThatWasDrawn) {
  // One of 4 MB: the reference takes seconds for others.
  const Finished finished =
      run_splitkv({"bench", "--table", "random", "--seed", "7", "--count", "3", "--row",
                   "random 7.3", "--target", "cpu", "--repeat", "1"});
  ASSERT_EQ(finished.status, 0) << finished.err;
  for (const char* part : {"random 7.3: ", "attention q=", ", batch ", "error"})
    EXPECT_NE(finished.out.find(part), std::string::npos) << part << "\n" << finished.out;
}

TEST(Bench, RefusesPeersOfTheCpu) {
  expect_refused({{"--target", "cpu", "--peers"}, {"--target=cpu", "--peers", "cuda:0"}});
}
#endif

TEST(Bench, RefusesAFileWithoutSchedules) {
  const Folder folder;
  std::ofstream(folder.file("schedules.txt")) << "# none\n\n";
  expect_refused({{"--schedules-file", folder.file("schedules.txt")}, {"holds no schedule"}});
}

#ifdef SPLITKV_TEST_FAKE_LIBCUDA
// The stand-in runs nothing: that no row was compared must be seen, not counted as no error.
std::vector<std::string> stand_in() {
  return {"SPLITKV_LIBCUDA=" + std::string(SPLITKV_TEST_FAKE_LIBCUDA)};
}

bool has_nvrtc() { return run_splitkv({"compile", kGood, "--target", "cuda:sm_90a"}).status == 0; }

TEST(Bench, DoesNotTakeAResultThatWasNotCompared) {
  if (!has_nvrtc()) GTEST_SKIP() << "NVRTC is not here";
  const Finished finished =
      run_splitkv({"bench", kGood, "--kv-len", "4096", "--target", "cuda:0"}, stand_in());
  EXPECT_EQ(finished.status, 1) << finished.err;
  EXPECT_NE(finished.out.find("0 rows of out were compared instead of"), std::string::npos)
      << finished.out << finished.err;
  EXPECT_NE(finished.out.find("Stand-in"), std::string::npos);
}

TEST(Bench, RefusesWordsThatItsOwnAttentionDoesNotKnow) {
  if (!has_nvrtc()) GTEST_SKIP() << "NVRTC is not here";
  for (const std::string word :
       {"sink=on", "alibi=on", "lse=natural", "chunk=64", "bias=fp32", "out=partial", "mask=tree",
        "q_rope=16", "positions=strided", "score=score+1", "where=key_pos>3"}) {
    const Finished finished = run_splitkv(
        {"bench", kGood + " " + word, "--kv-len", "64", "--target", "cuda:0"}, stand_in());
    EXPECT_EQ(finished.status, 2) << word << finished.err;
    const std::string name = word.substr(0, word.find('='));
    EXPECT_NE(finished.err.find("problem: " + name), std::string::npos) << finished.err;
  }
}

TEST(Bench, CountsSchedulesOfAFileThatDoNotFit) {
  if (!has_nvrtc()) GTEST_SKIP() << "NVRTC is not here";
  const Folder folder;
  std::ofstream(folder.file("schedules.txt"))
      << "plain: family=simt\nfamily=simt rows=999\nfamily=simt rows=998\n";
  const Finished finished = run_splitkv({"bench", kGood, "--kv-len", "4096", "--target", "cuda:0",
                                         "--schedules-file", folder.file("schedules.txt")},
                                        stand_in());
  EXPECT_NE(finished.out.find("2 schedules do not fit the problem"), std::string::npos)
      << finished.out << finished.err;
  EXPECT_NE(finished.out.find("plain "), std::string::npos) << finished.out;
}
#endif

}  // namespace
}  // namespace splitkv::cli_test
