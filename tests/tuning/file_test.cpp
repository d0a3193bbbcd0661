// Files of records: damaged lines are told and left out, writers never mix their lines, what cannot
// be written is taken back.
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "tests/tuning/tuning_case.hpp"

using namespace splitkv;
using namespace splitkv::tuning_test;

namespace {

std::vector<KeptRecord> read(const std::string& path, std::vector<std::string>& complaints) {
  return read_records(contents(path), path,
                      [&](const std::string& line) { complaints.push_back(line); });
}

TEST(TuningFile, KeepsRecordsInOrderBehindRemarksAndBlanks) {
  const TempFolder folder;
  const std::string path = folder / "deep/er/tuning.txt";
  ASSERT_TRUE(append_lines(path, {"# a remark", ""}).ok());
  ASSERT_TRUE(append_record(path, record(8, 8192, RowLengths::equal, 3)).ok());
  ASSERT_TRUE(append_record(path, record(1, 8192, RowLengths::equal, 5)).ok());
  std::vector<std::string> complaints;
  const auto kept = read(path, complaints);
  ASSERT_EQ(kept.size(), 2u);
  EXPECT_EQ(kept[0].record, record(8, 8192, RowLengths::equal, 3));
  EXPECT_EQ(kept[1].origin, path + ":4");
  EXPECT_TRUE(complaints.empty());
}

TEST(TuningFile, DamagedLinesAreLeftOutWithFileAndLine) {
  const TempFolder folder;
  const std::string path = folder / "tuning.txt";
  const std::string good = print(record(8, 8192, RowLengths::equal, 3));
  std::string flipped = good;
  flipped[20] = char(flipped[20] ^ 4);
  overwrite(path, good + "\n" + flipped + "\nnonsense\n" + good.substr(0, 100) + "\n" + good);
  std::vector<std::string> complaints;
  const auto kept = read(path, complaints);
  EXPECT_EQ(kept.size(), 2u);
  ASSERT_EQ(complaints.size(), 3u);
  for (int line = 2; line <= 4; ++line) {
    EXPECT_EQ(complaints[size_t(line - 2)].find(fmt::format("{}:{}: ", path, line)), 0u)
        << complaints[size_t(line - 2)];
  }
}

TEST(TuningFile, ALineThatAKilledWriterLeftHalfIsEnded) {
  const TempFolder folder;
  const std::string path = folder / "tuning.txt";
  const TuningRecord kept = record(8, 8192, RowLengths::equal, 3);
  overwrite(path, print(kept).substr(0, 50));
  ASSERT_TRUE(append_record(path, kept).ok());
  std::vector<std::string> complaints;
  const auto records = read(path, complaints);
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].record, kept);
  EXPECT_EQ(complaints.size(), 1u);
}

TEST(TuningFile, EightProcessesNeverMixTheirLines) {
  constexpr int processes = 8, lines = 40;
  const TempFolder folder;
  const std::string path = folder / "tuning.txt";
  std::vector<pid_t> children;
  for (int i = 0; i < processes; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      for (int n = 0; n < lines; ++n) {
        const TuningRecord one = record(1 << i, 128 << (n % 8), RowLengths::equal, n + 1);
        if (!append_record(path, one)) _exit(1);
      }
      _exit(0);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  std::vector<std::string> complaints;
  const auto records = read(path, complaints);
  EXPECT_TRUE(complaints.empty()) << complaints.front();
  EXPECT_EQ(records.size(), size_t(processes * lines));
  // Those of one process stand in its order.
  for (int i = 0; i < processes; ++i) {
    int next = 1;
    for (const KeptRecord& kept : records) {
      if (kept.record.bucket.batch != 1 << i) continue;
      EXPECT_EQ(kept.record.best.schedule.splits, next++);
    }
  }
}

TEST(TuningFile, WhatAFullDiskLetsThroughIsTakenBack) {
  const TempFolder folder;
  const std::string path = folder / "tuning.txt";
  const TuningRecord kept = record(8, 8192, RowLengths::equal, 3);
  ASSERT_TRUE(append_record(path, kept).ok());
  const std::string before = contents(path);
  const pid_t child = fork();
  if (child == 0) {
    // A limit on the size of files stands for a disk that is nearly full.
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{before.size() + 10, before.size() + 10};
    setrlimit(RLIMIT_FSIZE, &limit);
    const Outcome written = append_record(path, kept);
    const bool told = !written && written.error().message.find(path) != std::string::npos;
    _exit(told ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(contents(path), before);
}

TEST(TuningFile, FoldersAndPipesAreNoFiles) {
  const TempFolder folder;
  EXPECT_FALSE(read_tuning_file(folder / "").ok());
  EXPECT_FALSE(append_lines(folder / "", {"x"}).ok());
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_FALSE(read_tuning_file(folder / "pipe").ok());
  EXPECT_FALSE(append_lines(folder / "pipe", {"x"}).ok());
  const auto none = read_tuning_file(folder / "none");
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(*none, "");
}

TEST(TuningFile, IsWhereTheEnvironmentSays) {
  Environment environment;
  EXPECT_EQ(user_tuning_file(environment), "");
  environment.home = "/home/u";
  EXPECT_EQ(user_tuning_file(environment), "/home/u/.config/splitkv/tuning.txt");
  environment.xdg_config_home = "relative";
  EXPECT_EQ(user_tuning_file(environment), "/home/u/.config/splitkv/tuning.txt");
  environment.xdg_config_home = "/etc/u";
  EXPECT_EQ(user_tuning_file(environment), "/etc/u/splitkv/tuning.txt");
  environment.tuning_file = "/tmp/x";
  EXPECT_EQ(user_tuning_file(environment), "/tmp/x");
  environment.tuning_file = "off";
  EXPECT_EQ(user_tuning_file(environment), "");
}

TEST(TuningFile, TheLibrarysOwnRecordsAreWhole) {
  std::vector<std::string> complaints;
  const auto records = read_records(shipped_records(), "shipped",
                                    [&](const std::string& line) { complaints.push_back(line); });
  EXPECT_TRUE(complaints.empty()) << complaints.front();
  for (const KeptRecord& kept : records) EXPECT_GT(kept.record.best.us, 0) << kept.origin;
}

}  // namespace
