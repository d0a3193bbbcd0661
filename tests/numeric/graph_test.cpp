// A captured run replayed with other lengths: pointers and the schedule froze at capture, the
// lengths on the device did not. Needs a GPU.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "compiler/text.hpp"
#include "runtime/cuda/symbols.hpp"
#include "runtime/splitkv.hpp"
#include "tests/numeric/test_device.hpp"
#include "tools/splitkv/device_memory.hpp"
#include "tools/splitkv/inputs.hpp"
#include "tools/splitkv/kv_image.hpp"
#include "tools/splitkv/verdict.hpp"

namespace splitkv {
namespace {

using tool::Buffer;

constexpr int batch = 4;
constexpr const char* problem_text =
    "attention q=fp32 kv=fp32 heads=4/2 dim=64 kv_layout=paged:16:nhd lse=natural";

// Lengths that rows are replayed with: none, one key, edges of pages and tiles, long.
const std::vector<int32_t> menu = {0,   1,   2,   15,  16,  17,  63,  64,  65,  100, 127,
                                   128, 129, 200, 255, 256, 257, 300, 511, 512, 600, 777};

#define ASSERT_CUDA(call) ASSERT_EQ(driver.call, cuda::kSuccess) << #call

// The expected out and lse of every (row, length of the menu).
struct Table {
  std::vector<std::vector<double>> out;  // [length of the menu] of [batch, heads, dim]
  std::vector<std::vector<double>> lse;
};

Table expected_table(const Problem& problem, const tool::Inputs& full) {
  Table table;
  for (int32_t length : menu) {
    tool::Inputs inputs = full;
    inputs.kv_len.assign(batch, length);
    const tool::Expected expected = tool::expect_from_reference(problem, inputs);
    table.out.push_back(expected.out);
    table.lse.push_back(expected.lse);
  }
  return table;
}

template <class T>
Buffer placed(tool::DeviceMemory& memory, const std::vector<T>& values) {
  auto buffer = memory.allocate(values.size() * sizeof(T));
  EXPECT_TRUE(buffer.ok());
  EXPECT_TRUE(memory.copy_in(*buffer, values.data(), values.size() * sizeof(T)).ok());
  return std::move(*buffer);
}

class GraphReplay : public testing::TestWithParam<const char*> {};

TEST_P(GraphReplay, StaysRightWhileLengthsChange) {
  const std::string device = testing_support::test_device();
  if (device.rfind("cuda", 0) != 0) GTEST_SKIP() << "SPLITKV_TEST_DEVICE names no GPU";
  const auto opened = cuda::driver();
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  const cuda::Driver& driver = **opened;
  auto memory = tool::open_device_memory(device);
  ASSERT_TRUE(memory.ok()) << memory.error().message;

  const Problem problem = *parse_problem(problem_text);
  const tool::Inputs full =
      tool::generate_inputs(problem, std::vector<int32_t>(batch, menu.back()), 7);
  const Table table = expected_table(problem, full);
  const tool::KvImage image = tool::lay_out(problem, full, 7);

  Runtime runtime;
  const Kernel kernel = runtime.prepare(device, problem_text, {batch, menu.back()}, GetParam());
  const auto sizes = kernel.sizes(batch);
  const Buffer q = placed(**memory, full.q), k = placed(**memory, image.k),
               v = placed(**memory, image.v);
  const Buffer pages = placed(**memory, image.page_table);
  const Buffer kv_len = placed(**memory, std::vector<int32_t>(batch, 2));
  Buffer out = std::move(*(*memory)->allocate(size_t(batch) * 4 * 64 * 4));
  Buffer lse = std::move(*(*memory)->allocate(size_t(batch) * 4 * 4));
  Buffer scratch = std::move(*(*memory)->allocate(sizes.scratch_bytes));
  Buffer state = std::move(*(*memory)->allocate(sizes.state_bytes));

  splitkv_tensors tensors = kernel.dense_strides(full.capacity);
  tensors.k = k.data();
  tensors.v = v.data();
  const Binding binding = kernel.bind(tensors);
  auto args = sized<splitkv_args>();
  args.batch = batch;
  args.q = q.data();
  args.out = out.data();
  args.lse = static_cast<float*>(lse.data());
  args.kv_len = static_cast<const int32_t*>(kv_len.data());
  args.page_table = static_cast<const int32_t*>(pages.data());
  args.page_table_stride = image.page_table_stride;
  args.scratch = sizes.scratch_bytes ? scratch.data() : nullptr;
  args.scratch_bytes = sizes.scratch_bytes;
  args.state = sizes.state_bytes ? state.data() : nullptr;
  args.state_bytes = sizes.state_bytes;

  cuda::CUstream stream = nullptr;
  ASSERT_CUDA(cuStreamCreate(&stream, cuda::kStreamNonBlocking));
  if (sizes.state_bytes > 0) kernel.state_init(state.data(), sizes.state_bytes, stream);
  ASSERT_CUDA(cuStreamBeginCapture(stream, cuda::kCaptureModeThreadLocal));
  kernel.run(binding, args, stream);
  cuda::CUgraph graph = nullptr;
  ASSERT_CUDA(cuStreamEndCapture(stream, &graph));
  cuda::CUgraphExec replay = nullptr;
  ASSERT_CUDA(cuGraphInstantiateWithFlags(&replay, graph, 0));

  const char* wanted = std::getenv("SPLITKV_REPLAYS");
  const int replays = wanted != nullptr ? std::atoi(wanted) : 2000;
  std::mt19937_64 engine(3);
  std::vector<float> got(size_t(batch) * 4 * 64), got_lse(size_t(batch) * 4);
  for (int i = 0; i < replays; ++i) {
    std::vector<int32_t> lengths;
    std::vector<size_t> choice;
    for (int row = 0; row < batch; ++row) {
      choice.push_back(engine() % menu.size());
      lengths.push_back(menu[choice.back()]);
    }
    ASSERT_TRUE((*memory)->copy_in(kv_len, lengths.data(), lengths.size() * 4).ok());
    ASSERT_TRUE((*memory)->poison(out).ok());
    ASSERT_TRUE((*memory)->poison(lse).ok());
    ASSERT_CUDA(cuStreamSynchronize(nullptr));
    ASSERT_CUDA(cuGraphLaunch(replay, stream));
    ASSERT_CUDA(cuStreamSynchronize(stream));
    ASSERT_TRUE((*memory)->copy_out(got.data(), out, got.size() * 4).ok());
    ASSERT_TRUE((*memory)->copy_out(got_lse.data(), lse, got_lse.size() * 4).ok());

    std::vector<double> out_now(got.begin(), got.end()), lse_now(got_lse.begin(), got_lse.end());
    std::vector<double> out_wanted, lse_wanted;
    for (size_t row = 0; row < batch; ++row) {
      const auto& o = table.out[choice[row]];
      const auto& l = table.lse[choice[row]];
      out_wanted.insert(out_wanted.end(), o.begin() + row * 256, o.begin() + (row + 1) * 256);
      lse_wanted.insert(lse_wanted.end(), l.begin() + row * 4, l.begin() + (row + 1) * 4);
    }
    const auto accuracy = reference::compare({out_now, out_wanted, lse_now, lse_wanted, 64},
                                             reference::Tolerance{1e-5, 1e-5, 4});
    ASSERT_TRUE(accuracy.ok()) << "replay " << i << " lengths " << lengths[0] << "," << lengths[1]
                               << "," << lengths[2] << "," << lengths[3] << " error "
                               << accuracy.out_relative_l2;
  }
  std::printf("%d replays of %s\n", replays, GetParam());
  driver.cuGraphExecDestroy(replay);
  driver.cuGraphDestroy(graph);
  driver.cuStreamDestroy(stream);
}

INSTANTIATE_TEST_SUITE_P(
    Schedules, GraphReplay,
    testing::Values("partition=fixed splits=5 tile=32 reduce=kernel",
                    "partition=fixed splits=5 tile=32 reduce=last_block",
                    "partition=strided splits=5 tile=32 reduce=kernel",
                    "partition=strided splits=5 tile=32 reduce=last_block merge=lse",
                    "partition=flat blocks=13 tile=32 reduce=kernel merge=lse",
                    "partition=flat blocks=13 tile=32 reduce=last_block"));

}  // namespace
}  // namespace splitkv
