// deterministic=on: a row's bits are its own, wherever it lies, whatever lies beside it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>

#include "compiler/text.hpp"
#include "tests/numeric/test_device.hpp"
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
Bits row_at(Runtime& runtime, const Problem& problem, std::vector<int32_t> lengths, int64_t place,
            int repeat) {
  tool::Inputs inputs = tool::generate_inputs(problem, lengths, 5);
  for (std::vector<std::byte>* tensor : {&inputs.q, &inputs.k, &inputs.v}) {
    exchange(*tensor, inputs.batch, 0, place);
  }
  std::swap(inputs.kv_len[0], inputs.kv_len[size_t(place)]);
  const auto execution = tool::execute(
      runtime, {.device = test_device(), .repeat = repeat, .seed = 5}, problem, inputs);
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

class DeterministicRow : public testing::TestWithParam<const char*> {};

TEST_P(DeterministicRow, HasTheSameBitsInEveryBatchAtEveryPlace) {
  const auto problem =
      parse_problem(fmt::format("attention heads=4/2 lse=natural deterministic=on {}", GetParam()));
  ASSERT_TRUE(problem.ok()) << problem.error().message;
  Runtime runtime;
  const int32_t length = 777;
  const Bits alone = row_at(runtime, *problem, {length}, 0, 20);
  ASSERT_FALSE(alone.out.empty());
  for (const int batch : {2, 3, 5, 8, 16, 31, 64, 128}) {
    for (const int64_t place : {int64_t(0), int64_t(batch) / 2, int64_t(batch) - 1}) {
      SCOPED_TRACE(fmt::format("batch {}, place {}", batch, place));
      std::vector<int32_t> lengths(static_cast<size_t>(batch));
      for (int i = 0; i < batch; ++i) lengths[size_t(i)] = i * 131 % 900;
      lengths[0] = length;
      EXPECT_TRUE(row_at(runtime, *problem, lengths, place, 2) == alone);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Problems, DeterministicRow,
                         testing::Values("q=bf16 dim=64", "q=fp32 dim=32 merge=lse",
                                         "q=fp16 dim=64 kv_layout=paged:16:nhd merge=lse",
                                         "q=bf16 dim=64 query_len=3 window=300"));

}  // namespace
}  // namespace splitkv
