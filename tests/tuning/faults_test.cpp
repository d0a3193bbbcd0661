// The whole tuner among candidates that misbehave for real, too little memory, and processes whose
// caches differ. On the CPU, through the binary.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <map>
#include <set>

#include "compiler/text.hpp"
#include "runtime/cpu/host.hpp"
#include "runtime/tuning_space.hpp"
#include "tests/cli/process.hpp"
#include "tests/tuning/planted.hpp"
#include "tests/tuning/tuning_case.hpp"

using namespace splitkv;
using namespace splitkv::tuning_test;
using splitkv::cli_test::Finished;
using splitkv::cli_test::line_of;
using splitkv::cli_test::run_splitkv;

namespace {

constexpr const char* kSmall = "attention q=fp32 kv=fp32 heads=4/2 dim=32";

bool says(const std::string& text, const std::string& words) {
  return text.find(words) != std::string::npos;
}

std::vector<std::string> with_cache(const std::string& folder) {
  return {"SPLITKV_NO_DISK=0", "SPLITKV_CACHE_DIR=" + folder};
}

// Candidates of the verb for the point whose kernels are their own, without the library's choice
// and what shares its kernel.
std::vector<Schedule> victims(const Problem& problem, const Target& target, int candidates) {
  const auto list = tuning_candidates(problem, {1, 256}, target, candidates);
  std::map<std::string, std::vector<Schedule>> by_kernel;
  for (const Schedule& schedule : list) {
    by_kernel[kernel_digest(problem, schedule, target)].push_back(schedule);
  }
  by_kernel.erase(kernel_digest(problem, list.front(), target));
  std::vector<Schedule> found;
  for (const auto& [digest, schedules] : by_kernel) {
    if (schedules.size() == 1) found.push_back(schedules.front());
  }
  return found;
}

TEST(TuneFaults, CandidatesThatAreWrongCrashOrHangAreNamedAndNeverWin) {
  const TempFolder folder;
  const std::string cache = folder / "cache", out = folder / "tuning.txt";
  const Problem problem = *parse_problem(kSmall);
  const Target target = *resolve_cpu_target("cpu", 0);
  const std::vector<Schedule> planted = victims(problem, target, 12);
  ASSERT_GE(planted.size(), 4u);
  const struct {
    Misdeed misdeed;
    const char* said;
  } faults[] = {{Misdeed::other_numbers, "(check): its result is wrong"},
                {Misdeed::writes_nothing, "(check): its result is wrong"},
                {Misdeed::crashes, "(check): the measuring process was ended by signal"},
                {Misdeed::hangs, "(check): gave no answer within"}};
  std::set<std::string> kernels;
  for (size_t i = 0; i < std::size(faults); ++i) {
    plant(cache, problem, planted[i], target, faults[i].misdeed);
    kernels.insert(kernel_digest(problem, planted[i], target));
  }
  const Finished tuned = run_splitkv({"tune", kSmall, "--target", "cpu", "--batch", "1", "--kv-len",
                                      "256", "--candidates", "12", "--budget", "30", "--out", out},
                                     with_cache(cache));
  ASSERT_EQ(tuned.status, 0) << tuned.out << tuned.err;
  for (size_t i = 0; i < std::size(faults); ++i) {
    const std::string line = "failed    " + print(planted[i]) + " " + faults[i].said;
    EXPECT_TRUE(says(tuned.out, line)) << line << "\n" << tuned.out;
    EXPECT_TRUE(says(contents(out), "-> " + print(planted[i]) + " | check: ")) << contents(out);
  }
  const auto records =
      read_records(contents(out), out, [](const std::string& line) { ADD_FAILURE() << line; });
  ASSERT_EQ(records.size(), 1u);
  const TuningRecord& record = records.front().record;
  EXPECT_GE(record.failed, 4);
  EXPECT_GT(record.tried, 2);
  std::vector<TunedTime> kept = record.runners_up;
  kept.push_back(record.best);
  for (const TunedTime& time : kept) {
    EXPECT_FALSE(kernels.contains(kernel_digest(problem, time.schedule, target)))
        << print(time.schedule);
  }
}

TEST(TuneFaults, AWorkloadBeyondMemoryStaysUntunedAndTheOthersAreTuned) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the address sanitizer takes more address space than the limit";
#endif
  const TempFolder folder;
  const std::string out = folder / "tuning.txt";
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  rlimit limited = before;
  limited.rlim_cur = rlim_t(3) << 30;
  ASSERT_EQ(setrlimit(RLIMIT_AS, &limited), 0);
  // 16 Mi tokens of 512 bytes.
  const Finished tuned =
      run_splitkv({"tune", kSmall, "--target", "cpu", "--batch", "1", "--kv-len", "256,16777216",
                   "--candidates", "2", "--budget", "40", "--out", out});
  ASSERT_EQ(setrlimit(RLIMIT_AS, &before), 0);
  EXPECT_EQ(tuned.status, 1) << tuned.out << tuned.err;
  EXPECT_TRUE(says(tuned.out, "untuned   batch=1 kv_len=16777216 rows=equal: 1x16777216: "))
      << tuned.out;
  EXPECT_TRUE(says(tuned.out, "1 records added")) << tuned.out << tuned.err;
  EXPECT_TRUE(says(contents(out), "batch=1 kv_len=256 rows=equal")) << contents(out);
}

// Ranks that share a file of records.
TEST(TuneFaults, ProcessesWithOneFileChooseTheSameWhateverTheirCachesHold) {
  const TempFolder folder;
  const std::string out = folder / "tuning.txt";
  ASSERT_EQ(run_splitkv({"tune", kSmall, "--target", "cpu", "--batch", "4", "--kv-len", "512",
                         "--rows", "equal", "--candidates", "4", "--budget", "40", "--out", out})
                .status,
            0);
  const auto run = [&](const std::string& cache) {
    auto environment = with_cache(cache);
    environment.push_back("SPLITKV_TUNING_FILE=" + out);
    const Finished ran = run_splitkv({"run", kSmall, "--target", "cpu", "--batch", "4", "--kv-len",
                                      "512", "--repeat", "1", "--check"},
                                     environment);
    EXPECT_EQ(ran.status, 0) << ran.out << ran.err;
    return ran.out;
  };
  const std::string full = run(folder / "full");
  EXPECT_TRUE(says(line_of(full, "why"), "tuned, exact match: " + out)) << full;
  EXPECT_TRUE(says(line_of(run(folder / "full"), "compile"), "found on disk"));
  const Problem problem = *parse_problem(kSmall);
  const Target target = *resolve_cpu_target("cpu", 0);
  const auto chosen = parse_schedule(line_of(full, "schedule"));
  ASSERT_TRUE(chosen.ok()) << full;
  const std::string entry = "/kernels/" + kernel_digest(problem, *chosen, target) + ".kernel";
  const std::string bytes = contents(folder / ("full" + entry));
  ASSERT_GT(bytes.size(), 1000u);
  for (const char* kind : {"half", "corrupt", "empty"}) {
    run(folder / kind);  // makes the folder, with an entry to be spoiled
    std::string spoiled = bytes;
    if (std::string(kind) == "half") spoiled.resize(bytes.size() / 2);
    if (std::string(kind) == "corrupt") spoiled[bytes.size() / 2] ^= 1;
    if (std::string(kind) == "empty") spoiled.clear();
    overwrite(folder / (kind + entry), spoiled);
    const std::string out_of_it = run(folder / kind);
    for (const char* label : {"schedule", "why"}) {
      EXPECT_EQ(line_of(out_of_it, label), line_of(full, label)) << kind;
    }
    EXPECT_FALSE(says(line_of(out_of_it, "compile"), "found on disk")) << kind;
  }
}

}  // namespace
