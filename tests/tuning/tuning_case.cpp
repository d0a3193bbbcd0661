#include "tests/tuning/tuning_case.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "compiler/text.hpp"

namespace splitkv::tuning_test {

TempFolder::TempFolder() {
  std::string pattern = testing::TempDir() + "splitkv_tuning_XXXXXX";
  EXPECT_NE(mkdtemp(pattern.data()), nullptr);
  path_ = pattern;
}

TempFolder::~TempFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

Target target() { return *parse_target("cuda:sm_90a"); }

TuningRecord record(int64_t batch, int64_t kv_len, RowLengths rows, int splits) {
  const auto schedule = [](int count) {
    return *parse_schedule(fmt::format(
        "schedule family=mma tile=64 rows=4 unroll=1 stages=3 partition=fixed splits={}", count));
  };
  TuningRecord record;
  record.problem = tuned_problem(*parse_problem(kProblem));
  record.bucket = {batch, kv_len, rows};
  record.target = tuned_target(target());
  record.best = {schedule(splits), 12.34, 1.05};
  record.runners_up = {{schedule(splits + 1), 12.5, 1.06}, {schedule(splits + 2), 13, 1.1}};
  record.workloads = 1;
  record.tried = 40;
  record.failed = 2;
  record.splitkv = "0.1.0";
  record.compiler = "NVRTC-13.0";
  record.driver = "580.65.06";
  record.date = "2026-01-31";
  return record;
}

std::string contents(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void overwrite(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::trunc);
  file << text;
}

Log KeptLog::log() {
  RuntimeOptions options;
  options.log = [](void* user, splitkv_log_level level, const char* line) {
    if (level <= SPLITKV_LOG_WARNING) static_cast<KeptLog*>(user)->warnings.push_back(line);
  };
  options.log_user = this;
  return Log(options);
}

}  // namespace splitkv::tuning_test
