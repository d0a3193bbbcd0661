// Many prepares at once: as one after the other, each kernel compiled once, failures by item.
#include <atomic>
#include <mutex>

#include "tests/pack/pack_case.hpp"

using namespace splitkv;
using namespace splitkv::pack_test;
using namespace splitkv::testing_support;
using splitkv::cli_test::Folder;

namespace {

constexpr const char* kProblem = "attention q=fp32 kv=fp32 heads=4/2 dim=32 lse=natural";
constexpr const char* kWide = "attention q=fp32 kv=fp32 heads=4/2 dim=64 lse=natural";

struct Items {
  std::vector<splitkv_prepare_item> list;

  ~Items() {
    for (const splitkv_prepare_item& item : list) splitkv_release(item.kernel);
  }
  void add(const char* problem, const char* schedule = nullptr) {
    splitkv_prepare_item item = SPLITKV_INIT(splitkv_prepare_item);
    item.problem = problem;
    item.schedule = schedule;
    item.status = SPLITKV_INTERNAL;
    list.push_back(item);
  }
  Answer prepare(splitkv_runtime* runtime, const splitkv_many_options* options = nullptr) {
    return answer_of([&](splitkv_message* m) {
      return splitkv_prepare_many(runtime, "cpu", list.data(), list.size(), options, m);
    });
  }
};

splitkv_plan plan_of(splitkv_runtime* runtime, const Items& items,
                     const splitkv_many_options* options = nullptr) {
  splitkv_plan plan = SPLITKV_INIT(splitkv_plan);
  const Answer answer = answer_of([&](splitkv_message* m) {
    return splitkv_plan_many(runtime, "cpu", items.list.data(), items.list.size(), options, &plan,
                             m);
  });
  EXPECT_TRUE(answer.ok()) << answer;
  return plan;
}

TEST(PrepareMany, GivesWhatSinglePreparesGiveAndCompilesEachOnce) {
  Items items;
  const std::pair<const char*, const char*> wanted[] = {
      {kProblem, nullptr},
      {kProblem, "tile=32 partition=fixed splits=2"},
      {kWide, "partition=fixed splits=3 reduce=kernel"},
      {kProblem, "tile=32 partition=fixed splits=9"},  // the second's kernel
      {kProblem, nullptr},
      {kWide, "partition=fixed splits=3 reduce=kernel"}};
  for (const auto& [problem, schedule] : wanted) items.add(problem, schedule);
  const RuntimeOwner runtime = open_runtime(), single = open_runtime();
  splitkv_many_options options = SPLITKV_INIT(splitkv_many_options);
  options.workers = 4;
  const Answer answer = items.prepare(runtime.get(), &options);
  ASSERT_TRUE(answer.ok()) << answer;
  EXPECT_EQ(statistics_of(runtime.get()).compiles, 3u);
  EXPECT_EQ(statistics_of(runtime.get()).memory_hits, 3u);
  for (size_t i = 0; i < items.list.size(); ++i) {
    ASSERT_EQ(items.list[i].status, SPLITKV_OK);
    KernelOwner alone;
    ASSERT_TRUE(prepare(single.get(), "cpu", wanted[i].first, wanted[i].second, &alone).ok());
    const splitkv_kernel_info a = info_of(items.list[i].kernel), b = info_of(alone.get());
    EXPECT_STREQ(a.key, b.key) << i;
    EXPECT_STREQ(a.schedule, b.schedule) << i;
    EXPECT_STREQ(a.why, b.why) << i;
    EXPECT_STREQ(a.source, b.source) << i;
  }
  DecodeCase step({100, 0, 7, 333});
  ASSERT_TRUE(step.attach(items.list[3].kernel).ok());
  ASSERT_EQ(splitkv_run(items.list[3].kernel, &step.binding, &step.args, nullptr, nullptr),
            SPLITKV_OK);
  EXPECT_LT(errors_of(step).out, 1e-5);
}

TEST(PrepareMany, ReportsEachFailureWithItsItem) {
  Items items;
  char text[512] = "";
  splitkv_message message = SPLITKV_INIT(splitkv_message);
  message.text = text;
  message.capacity = sizeof(text);
  items.add(kProblem);
  items.add("attention q=fp32 dim=32");
  items.add(kProblem, "tile=3");
  items.add(kWide);
  items.list[1].message = &message;
  const RuntimeOwner runtime = open_runtime();
  const Answer answer = items.prepare(runtime.get());
  EXPECT_EQ(answer.status, SPLITKV_INVALID_ARGUMENT) << answer;
  EXPECT_TRUE(answer.says("2 of 4 items are not prepared; the first is items[1]: ")) << answer;
  EXPECT_EQ(items.list[0].status, SPLITKV_OK);
  EXPECT_EQ(items.list[1].status, SPLITKV_INVALID_ARGUMENT);
  EXPECT_EQ(items.list[2].status, SPLITKV_UNSUPPORTED);
  EXPECT_EQ(items.list[3].status, SPLITKV_OK);
  EXPECT_EQ(items.list[1].kernel, nullptr);
  EXPECT_NE(items.list[3].kernel, nullptr);
  EXPECT_NE(std::string(text).find("heads"), std::string::npos) << text;
  EXPECT_TRUE(answer.says(text)) << answer;
}

TEST(PrepareMany, SharesAFailureAmongItemsOfAKernel) {
  Items items;
  for (int i = 0; i < 3; ++i) items.add(kProblem, "partition=fixed splits=2");
  const LoggedRuntime logged(SPLITKV_NO_JIT);
  const Answer answer = items.prepare(logged.get());
  EXPECT_EQ(answer.status, SPLITKV_NOT_PREPARED) << answer;
  for (const splitkv_prepare_item& item : items.list) {
    EXPECT_EQ(item.status, SPLITKV_NOT_PREPARED);
  }
}

TEST(PrepareMany, TellsItsProgressAndCanBeCancelled) {
  struct Told {
    std::vector<int64_t> done;
    int64_t stop_at = 100;
  } told;
  splitkv_many_options options = SPLITKV_INIT(splitkv_many_options);
  options.workers = 1;
  options.user = &told;
  options.progress = [](void* user, const splitkv_progress* progress) -> int32_t {
    Told& self = *static_cast<Told*>(user);
    EXPECT_EQ(progress->items, 3);
    EXPECT_GE(progress->seconds_left, 0);
    self.done.push_back(progress->done);
    return progress->done >= self.stop_at ? 1 : 0;
  };
  const auto filled = [](Items& items) {
    for (const char* schedule : {"tile=32 splits=2", "tile=64 splits=2", "tile=128 splits=2"}) {
      items.add(kProblem, schedule);
    }
  };
  {
    Items items;
    filled(items);
    ASSERT_TRUE(items.prepare(open_runtime().get(), &options).ok());
    EXPECT_EQ(told.done, (std::vector<int64_t>{0, 1, 2, 3}));
  }
  Items items;
  filled(items);
  told = {{}, 1};
  const RuntimeOwner runtime = open_runtime();
  const Answer answer = items.prepare(runtime.get(), &options);
  EXPECT_EQ(answer.status, SPLITKV_NOT_PREPARED) << answer;
  EXPECT_TRUE(answer.says("cancelled")) << answer;
  EXPECT_EQ(items.list[0].status, SPLITKV_OK);
  EXPECT_EQ(items.list[1].status, SPLITKV_NOT_PREPARED);
  EXPECT_EQ(items.list[2].kernel, nullptr);
  EXPECT_EQ(statistics_of(runtime.get()).compiles, 1u);
  Items none;
  filled(none);
  told = {{}, 0};
  EXPECT_EQ(none.prepare(runtime.get(), &options).status, SPLITKV_NOT_PREPARED);
  EXPECT_EQ(told.done, std::vector<int64_t>{0});
}

TEST(PlanMany, SaysWhatIsThereAndCompilesNothing) {
  const Folder folder;
  const std::string path = folder.file("kernels.pack"), cache = folder.file("cache");
  ASSERT_EQ(make_pack(path, {kWide, "--arch", "cpu", "--schedule", "splits=2"}).status, 0);
  const Variable disk_on("SPLITKV_NO_DISK", nullptr);
  KernelOwner kernel;
  {
    const LoggedRuntime earlier(0, cache.c_str());
    ASSERT_TRUE(prepare(earlier.get(), "cpu", kProblem, "tile=32 splits=2", &kernel).ok());
  }
  const LoggedRuntime logged(0, cache.c_str(), path.c_str());
  ASSERT_TRUE(prepare(logged.get(), "cpu", kProblem, "tile=64 splits=2", &kernel).ok());
  Items items;
  items.add(kWide, "splits=2");              // in the pack
  items.add(kProblem, "tile=32 splits=2");   // on disk
  items.add(kProblem, "tile=64 splits=2");   // in memory
  items.add(kProblem, "tile=128 splits=2");  // nowhere
  items.add(kProblem, "tile=128 splits=3");  // the same
  items.add("attention q=fp32");             // nothing at all
  const splitkv_plan plan = plan_of(logged.get(), items);
  EXPECT_EQ(plan.items, 6);
  EXPECT_EQ(plan.refused, 1);
  EXPECT_EQ(plan.kernels, 4);
  EXPECT_EQ(plan.in_packs, 1);
  EXPECT_EQ(plan.on_disk, 1);
  EXPECT_EQ(plan.in_memory, 1);
  EXPECT_EQ(plan.to_compile, 1);
  EXPECT_EQ(plan.workers, 1);
  EXPECT_GT(plan.seconds, 0);
  EXPECT_GT(plan.memory_bytes, 0u);
  EXPECT_EQ(statistics_of(logged.get()).compiles, 1u);
  EXPECT_EQ(items.list[0].status, SPLITKV_INTERNAL);  // read only
}

TEST(PrepareMany, RefusesACallThatCannotBeRead) {
  const RuntimeOwner runtime = open_runtime();
  const auto refused = [](const Answer& answer, const std::string& words) {
    EXPECT_EQ(answer.status, SPLITKV_INVALID_ARGUMENT);
    EXPECT_TRUE(answer.says(words)) << answer;
  };
  Items items;
  items.add(kProblem);
  items.add(kProblem);
  refused(items.prepare(nullptr), "runtime is NULL");
  items.list[1].size = 0;
  refused(items.prepare(runtime.get()), "items[1].size=0 differs from items[0].size=");
  items.list[0].size = 8;
  refused(items.prepare(runtime.get()), "items[0].size=8 is no size of this struct");
  items.list[0].size = items.list[1].size = sizeof(splitkv_prepare_item);
  items.list[1].problem = nullptr;
  refused(items.prepare(runtime.get()), "items[1].problem is NULL");
  items.list[1].problem = kProblem;
  splitkv_workload workload = SPLITKV_INIT(splitkv_workload);
  workload.batch = -1;
  items.list[1].workload = &workload;
  refused(items.prepare(runtime.get()), "items[1]: workload.batch=-1");
  items.list[1].workload = nullptr;
  splitkv_message unsized = {};
  items.list[1].message = &unsized;
  refused(items.prepare(runtime.get()), "items[1].message->size=0");
  items.list[1].message = nullptr;
  splitkv_many_options options = SPLITKV_INIT(splitkv_many_options);
  options.workers = -1;
  refused(items.prepare(runtime.get(), &options), "options.workers=-1");
  EXPECT_EQ(items.list[0].status, SPLITKV_INTERNAL);  // as they were
  Items none;
  EXPECT_TRUE(none.prepare(runtime.get()).ok());
  refused(answer_of([&](splitkv_message* m) {
            return splitkv_prepare_many(runtime.get(), "cpu", nullptr, 2, nullptr, m);
          }),
          "items is NULL");
}

}  // namespace
