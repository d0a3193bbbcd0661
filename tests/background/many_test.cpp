// Two hundred kernels at once in a process that may not have much memory.
#include <sys/resource.h>

#include "runtime/splitkv_deploy.hpp"
#include "tests/background/job_case.hpp"

using namespace splitkv;

namespace {

constexpr int kItems = 200;
constexpr uint64_t kMiB = uint64_t(1) << 20;
// Of addresses, which threads' stacks and arenas take more of than memory.
constexpr uint64_t kMost = 768 * kMiB;

// Distinct kernels: softcap is a constant of the code.
std::vector<PrepareItem> items() {
  std::vector<PrepareItem> items;
  for (int i = 0; i < kItems; ++i) {
    items.push_back({"attention q=fp32 kv=fp32 heads=2/1 dim=16 softcap=" + std::to_string(i + 1),
                     {},
                     "tile=32 rows=1 unroll=1 splits=2"});
  }
  return items;
}

// 0 where all went as it must.
int prepare_within_the_limit() {
  rlimit limit{kMost, kMost};
  if (setrlimit(RLIMIT_AS, &limit) != 0) return 1;
  Runtime runtime;
  ManyOptions options;
  options.memory_bytes = 300 * kMiB;
  int64_t told = 0;
  options.progress = [&](const splitkv_progress& progress) {
    told = progress.done;
    return true;
  };
  const splitkv_plan plan = plan_many(runtime, "cpu", items(), options);
  if (plan.kernels != kItems || plan.to_compile != kItems) return 2;
  if (plan.workers > 2 || plan.memory_bytes > options.memory_bytes) return 3;
  const std::vector<PreparedItem> prepared = prepare_many(runtime, "cpu", items(), options);
  for (const PreparedItem& item : prepared) {
    if (item.status == SPLITKV_OK && item.kernel) continue;
    std::fprintf(stderr, "%s\n", item.message.c_str());
    return 4;
  }
  if (runtime.statistics().compiles != kItems || told != kItems) return 5;
  return 0;
}

TEST(PrepareManyUnderALimit, TwoHundredKernelsAreDone) {
  EXPECT_EXIT(std::_Exit(prepare_within_the_limit()), testing::ExitedWithCode(0), "");
}

}  // namespace
