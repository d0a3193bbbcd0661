// deterministic=on: a row's bits are its own, wherever it lies, whatever lies beside it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "compiler/text.hpp"
#include "tests/numeric/contract.hpp"
#include "tools/splitkv/execute.hpp"
#include "tools/splitkv/inputs.hpp"

namespace splitkv {
namespace {

using testing_support::test_device;

struct Bits {
  std::vector<float> out, lse;  // of one batch row

  bool operator==(const Bits& other) const {
    return std::memcmp(out.data(), other.out.data(), out.size() * 4) == 0 &&
           std::memcmp(lse.data(), other.lse.data(), lse.size() * 4) == 0;
  }
};

// Exchanges the data of two batch rows of a dense [batch, ...] tensor.
void exchange(std::vector<std::byte>& tensor, int64_t batch, int64_t a, int64_t b) {
  const int64_t bytes = int64_t(tensor.size()) / batch;
  if (a == b) return;
  std::swap_ranges(tensor.begin() + a * bytes, tensor.begin() + (a + 1) * bytes,
                   tensor.begin() + b * bytes);
}

// The row that is generated first, in a batch of `lengths`, run at place `place`.
Bits row_at(Runtime& runtime, const Problem& problem, const std::string& schedule,
            std::vector<int32_t> lengths, int64_t place, int repeat) {
  tool::Inputs inputs = tool::generate_inputs(problem, lengths, 5);
  for (std::vector<std::byte>* tensor : {&inputs.q, &inputs.k, &inputs.v, &inputs.bias}) {
    exchange(*tensor, inputs.batch, 0, place);
  }
  std::swap(inputs.kv_len[0], inputs.kv_len[size_t(place)]);
  const auto execution =
      tool::execute(runtime, {test_device(), schedule, repeat, 5}, problem, inputs);
  EXPECT_TRUE(execution.ok()) << execution.error().message;
  if (!execution) return {};
  EXPECT_TRUE(execution->repeatable) << "the bits changed from run to run";
  const auto part = [&](const std::vector<float>& all) {
    const size_t row = all.size() / size_t(inputs.batch);
    return std::vector<float>(all.begin() + int64_t(row) * place,
                              all.begin() + int64_t(row) * (place + 1));
  };
  return {part(execution->out), part(execution->lse)};
}

// Words of a problem, and after a bar those of a schedule; without it the library chooses.
class DeterministicRow : public testing::TestWithParam<const char*> {};

TEST_P(DeterministicRow, HasTheSameBitsInEveryBatchAtEveryPlace) {
  const std::string words = GetParam();
  const size_t bar = std::min(words.find('|'), words.size());
  const std::string schedule = words.substr(std::min(bar + 1, words.size()));
  const auto problem = parse_problem(
      fmt::format("attention heads=4/2 lse=natural deterministic=on {}", words.substr(0, bar)));
  ASSERT_TRUE(problem.ok()) << problem.error().message;
  if (!schedule.empty() && !testing_support::has_clusters(testing_support::test_target())) {
    GTEST_SKIP() << test_device() << " has no clusters";
  }
  Runtime runtime;
  const int32_t length = 777;
  testing_support::expect_right(print(*problem), schedule, {length});
  const Bits alone =
      row_at(runtime, *problem, schedule, {length}, 0, testing_support::is_emulated() ? 4 : 20);
  ASSERT_FALSE(alone.out.empty());
  // The emulated device takes a minute for all of them.
  const std::vector<int> batches = testing_support::is_emulated()
                                       ? std::vector<int>{2, 5, 31}
                                       : std::vector<int>{2, 3, 5, 8, 16, 31, 64, 128};
  for (const int batch : batches) {
    for (const int64_t place : {int64_t(0), int64_t(batch) / 2, int64_t(batch) - 1}) {
      SCOPED_TRACE(fmt::format("batch {}, place {}", batch, place));
      std::vector<int32_t> lengths(static_cast<size_t>(batch));
      for (int i = 0; i < batch; ++i) lengths[size_t(i)] = i * 131 % 900;
      lengths[0] = length;
      EXPECT_TRUE(row_at(runtime, *problem, schedule, lengths, place, 2) == alone);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Problems, DeterministicRow,
    testing::Values("q=bf16 dim=64 merge=mlo", "q=fp32 dim=32 merge=lse",
                    "q=fp16 dim=64 kv_layout=paged:16:nhd merge=lse window=100",
                    "q=bf16 dim=64 query_len=3 window=300", "q=bf16 dim=64 alibi=on sink=on",
                    "q=bf16 dim=64 kv=e4m3 kv_scale=head", "q=bf16 dim=64 bias=fp16",
                    "q=bf16 dim=64|partition=fixed splits=4 reduce=cluster cluster=4",
                    "q=fp32 dim=32 merge=lse|partition=strided splits=8 reduce=cluster cluster=8",
                    "q=bf16 dim=64 sink=on|partition=fixed splits=12 reduce=cluster "
                    "cluster=4 partials=bf16",
                    "q=bf16 dim=64 window=300|family=mma tile=64 warps=4 rows=4 unroll=1 stages=2 "
                    "loads=tensor partition=fixed splits=5 reduce=last_block",
                    "q=fp32 dim=46 align=8|partition=strided splits=8 tile=32 reduce=cluster "
                    "cluster=2 pdl=on",
                    "q=bf16 dim=64|partition=fixed splits=5 reduce=kernel pdl=on partials=bf16",
                    "q=bf16 dim=64|partition=fixed splits=5 reduce=last_block pdl=on"));

}  // namespace
}  // namespace splitkv
