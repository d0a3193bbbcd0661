// Buffers that are promised to be enough for whatever tuning may come to.
#include <gtest/gtest.h>

#include <random>

#include "compiler/default_schedule.hpp"
#include "compiler/text.hpp"
#include "compiler/verifier.hpp"
#include "runtime/tune_problem.hpp"
#include "runtime/tuning_space.hpp"
#include "tests/tuning/tuning_case.hpp"

using namespace splitkv;
using namespace splitkv::tuning_test;

namespace {

constexpr int kAll = 1 << 20;

const char* const kProblems[] = {
    "attention q=bf16 kv=bf16 heads=32/8 dim=128",
    "attention q=bf16 kv=bf16 heads=8/1 dim=64 query_len=4 merge=lse",
    "attention q=fp32 kv=fp32 heads=4/2 dim=32 lse=natural",
    "attention q=bf16 kv=e4m3 heads=128/1 dim=576/512 v_in_k=on",
    "attention q=fp16 kv=fp16 heads=16/16 dim=80 deterministic=on",
};

std::vector<Target> targets() {
  Target small = target();
  small.sm_count = 58;
  small.arch = "sm_89";
  small.smem_per_block_bytes = 101376;
  small.smem_per_sm_bytes = 102400;
  Target cpu = *parse_target("cpu:x86-64-v3");
  cpu.threads = 6;
  return {target(), small, cpu};
}

struct Drawn {
  Workload workload;
  int64_t max_batch;
};

Drawn drawn(std::mt19937& random) {
  const int64_t batches[] = {1, 2, 3, 5, 8, 64, 200}, lengths[] = {1, 100, 1500, 8192, 131072};
  const int64_t shares[] = {0, 1, 10};  // of the mean: not told, equal, ragged
  Drawn one;
  one.workload.batch = batches[random() % std::size(batches)];
  one.workload.kv_len = lengths[random() % std::size(lengths)];
  const int64_t share = shares[random() % std::size(shares)];
  one.workload.kv_len_mean = share == 0 ? 0 : (one.workload.kv_len + share - 1) / share;
  one.max_batch = int64_t(1 + random() % 300);
  return one;
}

// All that may win for a workload.
std::vector<Schedule> winners(const Problem& problem, const Workload& workload,
                              const Target& target) {
  std::vector<Schedule> all = {default_schedule(problem, workload, target).schedule};
  for (const TuningPoint& point : tuning_points(problem, {workload})) {
    for (const Schedule& one : tuning_candidates(problem, point, target, kAll)) {
      all.push_back(one);
      for (const Schedule& other : neighbours(one, problem, target)) all.push_back(other);
    }
  }
  return all;
}

// The first that does not fit, or "".
std::string too_large(const Problem& problem, const std::vector<Schedule>& schedules, int64_t batch,
                      const BufferSizes& bound) {
  for (const Schedule& schedule : schedules) {
    const BufferSizes needed = buffer_sizes(problem, schedule, batch);
    if (needed.scratch_bytes > bound.scratch_bytes || needed.state_bytes > bound.state_bytes) {
      return print(schedule);
    }
  }
  return "";
}

TEST(AdoptableSizes, CoverEveryCandidateOfTheWorkloadAndOfAnyInItsBucket) {
  std::mt19937 random(7);
  size_t tried = 0;
  for (const char* text : kProblems) {
    const Problem problem = *parse_problem(text);
    for (const Target& target : targets()) {
      if (verify(problem, target)) continue;
      for (int draw = 0; draw < 4; ++draw) {
        const Drawn one = drawn(random);
        const BufferSizes bound = adoptable_sizes(problem, target, {one.workload}, one.max_batch);
        const BufferSizes any = adoptable_sizes(problem, target, {}, one.max_batch);
        // Another that a record of this bucket may have been made for.
        Workload mate = one.workload;
        mate.batch = mate.batch / 2 + 1;
        mate.batch = std::min(mate.batch, one.workload.batch);
        ASSERT_EQ(bucket_of(problem, mate).kv_len, bucket_of(problem, one.workload).kv_len);
        const bool shares = bucket_of(problem, mate) == bucket_of(problem, one.workload);
        for (const Workload& workload : {one.workload, shares ? mate : one.workload}) {
          const std::vector<Schedule> all = winners(problem, workload, target);
          SCOPED_TRACE(std::string(text) + " on " + print(target) + " " +
                       std::to_string(workload.batch) + "x" + std::to_string(workload.kv_len));
          EXPECT_EQ(too_large(problem, all, one.max_batch, bound), "");
          EXPECT_EQ(too_large(problem, all, one.max_batch, any), "");
          tried += all.size();
        }
      }
    }
  }
  EXPECT_GT(tried, 10000u);
}

// Not the largest thing that could be: what is sized for many rows is not what one long row needs.
TEST(AdoptableSizes, OfALargeBatchAreFarBelowThoseOfAnyWorkload) {
  const Problem problem = *parse_problem(kProblem);
  const int64_t batch = 256;
  const BufferSizes known = adoptable_sizes(problem, target(), {{batch, 8192, 0}}, batch);
  const BufferSizes any = adoptable_sizes(problem, target(), {}, batch);
  EXPECT_LT(known.scratch_bytes * 10, any.scratch_bytes);
  EXPECT_LT(known.scratch_bytes, int64_t(64) << 20);
  EXPECT_EQ(known.partial_o_offset, 0);
  // Nor more than is needed: one row is the whole of its bucket.
  const Workload one = {1, 8192, 0};
  int64_t most = 0;
  for (const Schedule& schedule : winners(problem, one, target())) {
    most = std::max(most, buffer_sizes(problem, schedule, batch).scratch_bytes);
  }
  EXPECT_EQ(adoptable_sizes(problem, target(), {one}, batch).scratch_bytes, most);
}

}  // namespace
