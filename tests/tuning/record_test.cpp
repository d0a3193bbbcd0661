// A record and its line are one and the same; a line that was changed anywhere is known.
#include <gtest/gtest.h>

#include "compiler/text.hpp"
#include "tests/tuning/tuning_case.hpp"

using namespace splitkv;
using namespace splitkv::tuning_test;

namespace {

TEST(TuningRecord, IsReadAsItWasPrinted) {
  for (const RowLengths rows : {RowLengths::equal, RowLengths::ragged, RowLengths::any}) {
    TuningRecord kept = record(8, 8192, rows, 7);
    for (const size_t runners : {size_t(2), size_t(1), size_t(0)}) {
      kept.runners_up.resize(runners);
      const auto read = parse_record(print(kept));
      ASSERT_TRUE(read.ok()) << read.error().message;
      EXPECT_EQ(*read, kept) << print(kept);
    }
  }
  TuningRecord other = record(1, 128, RowLengths::equal, 1);
  other.bucket = {};
  other.problem = tuned_problem(
      *parse_problem("attention q=fp16 heads=4 dim=64 score=score*2 where=key_pos<5||head==1 "
                     "deterministic=on"));
  const auto read = parse_record(print(other));
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(*read, other);
}

TEST(TuningRecord, SaysWhatTheDocumentSays) {
  TuningRecord kept = record(8, 8192, RowLengths::equal, 7);
  kept.runners_up.resize(1);
  EXPECT_EQ(print(kept).find(
                "attention q=bf16 kv=bf16 heads=32/8 dim=128 | batch=8 kv_len=8192 rows=equal | "
                "cuda:sm_90a sms=132 l2=52428800 read=4700 -> schedule family=mma tile=64 rows=4 "
                "unroll=1 stages=3 partition=fixed splits=7 | us=12.34 ratio=1.05 workloads=1 "
                "tried=40 failed=2 | then schedule family=mma tile=64 rows=4 unroll=1 stages=3 "
                "partition=fixed splits=8 us=12.5 ratio=1.06 | splitkv=0.1.0 compiler=NVRTC-13.0 "
                "driver=580.65.06 date=2026-01-31 | sum="),
            0u)
      << print(kept);
}

TEST(TuningRecord, NoChangedBitAndNoCutIsTaken) {
  const std::string line = print(record(8, 8192, RowLengths::equal, 7));
  for (size_t i = 0; i < line.size(); ++i) {
    std::string changed = line;
    changed[i] = char(changed[i] ^ 1);
    EXPECT_FALSE(parse_record(changed).ok()) << changed;
    EXPECT_FALSE(parse_record(line.substr(0, i)).ok()) << i;
  }
}

TEST(TuningRecord, FieldsThatCannotBeAreNamed) {
  const auto fault = [](TuningRecord changed) {
    const auto read = parse_record(print(changed));
    return read.ok() ? std::string("none") : read.error().message;
  };
  TuningRecord kept = record(8, 8192, RowLengths::equal, 7);
  kept.problem = "attention q=bf16 heads=32/7 dim";
  EXPECT_NE(fault(kept).find("problem"), std::string::npos) << fault(kept);
  kept = record(6, 8192, RowLengths::equal, 7);
  EXPECT_NE(fault(kept).find("bucket"), std::string::npos) << fault(kept);
  kept = record(8, 100, RowLengths::equal, 7);
  EXPECT_NE(fault(kept).find("bucket"), std::string::npos) << fault(kept);
  kept = record(8, 8192, RowLengths::equal, 7);
  kept.workloads = 0;
  EXPECT_NE(fault(kept).find("figures"), std::string::npos) << fault(kept);
  kept = record(8, 8192, RowLengths::equal, 7);
  kept.date = "";
  EXPECT_NE(fault(kept).find("versions"), std::string::npos) << fault(kept);
}

TEST(TuningBucket, IsThePowerOfTwoAtOrAboveTheWorkload) {
  const Problem problem = *parse_problem(kProblem);
  const auto of = [&](int64_t batch, int64_t kv_len, int64_t mean) {
    return print(bucket_of(problem, {batch, kv_len, mean}));
  };
  EXPECT_EQ(of(1, 1, 1), "batch=1 kv_len=128 rows=equal");
  EXPECT_EQ(of(1, 5000, 0), "batch=1 kv_len=8192 rows=equal");
  EXPECT_EQ(of(8, 8192, 8192), "batch=8 kv_len=8192 rows=equal");
  EXPECT_EQ(of(9, 8193, 8000), "batch=16 kv_len=16384 rows=equal");
  EXPECT_EQ(of(5, 8192, 7000), "batch=8 kv_len=8192 rows=ragged");
  EXPECT_EQ(of(5, 8192, 0), "batch=8 kv_len=8192 rows=any");
  Problem fixed = problem;
  fixed.deterministic = true;
  EXPECT_EQ(print(bucket_of(fixed, {5, 8192, 0})), "batch=* kv_len=* rows=any");
}

TEST(TuningBucket, CheckedKernelsShareTheRecords) {
  Problem problem = *parse_problem(kProblem);
  problem.checked = Checked::on;
  EXPECT_EQ(tuned_problem(problem), print(*parse_problem(kProblem)));
}

}  // namespace
