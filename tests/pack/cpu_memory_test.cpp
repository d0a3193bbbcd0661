// Many prepares in little memory: how many compile at once follows from what they may take, and all
// of them end.
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <set>

#include "tests/pack/pack_case.hpp"

using namespace splitkv;
using namespace splitkv::pack_test;
using namespace splitkv::testing_support;

namespace {

// Of this process, in bytes.
uint64_t address_space() {
  std::ifstream file("/proc/self/statm");
  uint64_t pages = 0;
  file >> pages;
  return pages * uint64_t(sysconf(_SC_PAGESIZE));
}

// Two hundred kernels, each its own.
std::vector<std::pair<std::string, std::string>> specs() {
  std::vector<std::pair<std::string, std::string>> list;
  for (const int dim : {16, 32}) {
    for (const char* heads : {"1", "2", "4/2", "6/2", "8/2"}) {
      for (const char* words : {"", " softcap=20", " lse=natural", " alibi=on", " mask=none"}) {
        for (const int unroll : {1, 2}) {
          for (const char* partition : {"fixed splits=2", "flat blocks=4"}) {
            list.emplace_back(
                fmt::format("attention q=fp32 kv=fp32 heads={} dim={}{}", heads, dim, words),
                fmt::format("unroll={} partition={}", unroll, partition));
          }
        }
      }
    }
  }
  return list;
}

TEST(PrepareMany, TwoHundredEndInAnAddressSpaceThatIsLimited) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers take more address space than the limit";
#endif
  const auto list = specs();
  ASSERT_EQ(list.size(), 200u);
  std::vector<splitkv_prepare_item> items;
  for (const auto& [problem, schedule] : list) {
    splitkv_prepare_item item = SPLITKV_INIT(splitkv_prepare_item);
    item.problem = problem.c_str();
    item.schedule = schedule.c_str();
    items.push_back(item);
  }
  const RuntimeOwner runtime = open_runtime();
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  rlimit limited = before;
  limited.rlim_cur = address_space() + (rlim_t(2) << 30);
  ASSERT_EQ(setrlimit(RLIMIT_AS, &limited), 0);
  const Answer answer = answer_of([&](splitkv_message* m) {
    return splitkv_prepare_many(runtime.get(), "cpu", items.data(), items.size(), nullptr, m);
  });
  EXPECT_EQ(setrlimit(RLIMIT_AS, &before), 0);
  EXPECT_TRUE(answer.ok()) << answer;
  std::set<std::string> keys;
  for (const splitkv_prepare_item& item : items) {
    ASSERT_EQ(item.status, SPLITKV_OK) << item.problem << " | " << item.schedule;
    keys.insert(info_of(item.kernel).key);
    splitkv_release(item.kernel);
  }
  EXPECT_EQ(keys.size(), 200u);
  EXPECT_EQ(statistics_of(runtime.get()).compiles, 200u);
}

}  // namespace
