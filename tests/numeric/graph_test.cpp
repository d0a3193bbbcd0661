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
constexpr int heads = 4;
constexpr int dim = 64;
// Of the plain family all is fp32; tensor cores take 16-bit operands.
std::string problem_text(std::string_view schedule) {
  const bool mma = schedule.find("family=mma") != std::string_view::npos;
  return fmt::format("attention {} out=fp32 heads=4/2 dim=64 kv_layout=paged:16:nhd lse=natural",
                     mma ? "q=bf16" : "q=fp32");
}

// Lengths that rows are replayed with: none, one key, edges of pages and tiles, long.
const std::vector<int32_t> menu = {0,   1,   2,   15,  16,  17,  63,  64,  65,  100, 127,
                                   128, 129, 200, 255, 256, 257, 300, 511, 512, 600, 777};

#define EXPECT_CUDA(call) EXPECT_EQ(driver_.call, cuda::kSuccess) << #call

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

// Everything a run points at, placed once; only the lengths change between replays.
struct Placed {
  Buffer q, k, v, pages, kv_len, out, lse, scratch, state;
};

Buffer reserved(tool::DeviceMemory& memory, size_t bytes) {
  auto buffer = memory.allocate(bytes);
  EXPECT_TRUE(buffer.ok());
  return std::move(*buffer);
}

Placed place_all(tool::DeviceMemory& memory, const tool::Inputs& full, const tool::KvImage& image,
                 const splitkv_buffer_sizes& sizes) {
  return {placed(memory, full.q),
          placed(memory, image.k),
          placed(memory, image.v),
          placed(memory, image.page_table),
          placed(memory, std::vector<int32_t>(batch, 2)),
          reserved(memory, size_t(batch) * heads * dim * 4),
          reserved(memory, size_t(batch) * heads * 4),
          reserved(memory, sizes.scratch_bytes),
          reserved(memory, sizes.state_bytes)};
}

splitkv_args args_of(const Placed& on_device, const tool::KvImage& image) {
  auto args = sized<splitkv_args>();
  args.batch = batch;
  args.q = on_device.q.data();
  args.out = on_device.out.data();
  args.lse = static_cast<float*>(on_device.lse.data());
  args.kv_len = static_cast<const int32_t*>(on_device.kv_len.data());
  args.page_table = static_cast<const int32_t*>(on_device.pages.data());
  args.page_table_stride = image.page_table_stride;
  args.scratch = on_device.scratch.data();
  args.scratch_bytes = on_device.scratch.bytes();
  args.state = on_device.state.data();
  args.state_bytes = on_device.state.bytes();
  return args;
}

// A stream and one captured run on it.
class CapturedRun {
 public:
  CapturedRun(const cuda::Driver& driver, const Kernel& kernel, const Binding& binding,
              const splitkv_args& args)
      : driver_(driver) {
    EXPECT_CUDA(cuStreamSynchronize(nullptr));  // what poisons the state has ended
    EXPECT_CUDA(cuStreamCreate(&stream_, cuda::kStreamNonBlocking));
    if (args.state_bytes > 0) kernel.state_init(args.state, args.state_bytes, stream_);
    EXPECT_CUDA(cuStreamBeginCapture(stream_, cuda::kCaptureModeThreadLocal));
    kernel.run(binding, args, stream_);
    EXPECT_CUDA(cuStreamEndCapture(stream_, &graph_));
    EXPECT_CUDA(cuGraphInstantiateWithFlags(&replay_, graph_, 0));
  }
  ~CapturedRun() {
    driver_.cuGraphExecDestroy(replay_);
    driver_.cuGraphDestroy(graph_);
    driver_.cuStreamDestroy(stream_);
  }
  CapturedRun(const CapturedRun&) = delete;
  CapturedRun& operator=(const CapturedRun&) = delete;

  void replay() {
    EXPECT_CUDA(cuStreamSynchronize(nullptr));
    EXPECT_CUDA(cuGraphLaunch(replay_, stream_));
    EXPECT_CUDA(cuStreamSynchronize(stream_));
  }

 private:
  const cuda::Driver& driver_;
  cuda::CUstream stream_ = nullptr;
  cuda::CUgraph graph_ = nullptr;
  cuda::CUgraphExec replay_ = nullptr;
};

// Compares what lies on the device with the table's rows.
reference::Accuracy judge(tool::DeviceMemory& memory, const Placed& on_device, const Table& table,
                          const std::vector<size_t>& choice, const Problem& problem) {
  std::vector<float> out(size_t(batch) * heads * dim), lse(size_t(batch) * heads);
  EXPECT_TRUE(memory.copy_out(out.data(), on_device.out, out.size() * 4).ok());
  EXPECT_TRUE(memory.copy_out(lse.data(), on_device.lse, lse.size() * 4).ok());
  std::vector<double> out_wanted, lse_wanted;
  for (size_t row = 0; row < batch; ++row) {
    const auto o = table.out[choice[row]].begin() + int64_t(row) * heads * dim;
    const auto l = table.lse[choice[row]].begin() + int64_t(row) * heads;
    out_wanted.insert(out_wanted.end(), o, o + heads * dim);
    lse_wanted.insert(lse_wanted.end(), l, l + heads);
  }
  const std::vector<double> out_now(out.begin(), out.end()), lse_now(lse.begin(), lse.end());
  return reference::compare({out_now, out_wanted, lse_now, lse_wanted, dim},
                            tool::tolerance_of(problem, false));
}

std::vector<std::byte> bits(tool::DeviceMemory& memory, const Placed& on_device) {
  const size_t out_bytes = on_device.out.bytes();
  std::vector<std::byte> bytes(out_bytes + on_device.lse.bytes());
  EXPECT_TRUE(memory.copy_out(bytes.data(), on_device.out, out_bytes).ok());
  EXPECT_TRUE(memory.copy_out(bytes.data() + out_bytes, on_device.lse, on_device.lse.bytes()).ok());
  return bytes;
}

// Clusters and programmatic launches are not on every GPU.
bool runs_here(const std::string& schedule) {
  const bool asks = schedule.find("cluster=") != std::string::npos ||
                    schedule.find("pdl=on") != std::string::npos;
  return !asks || testing_support::has_clusters(testing_support::test_target());
}

class GraphReplay : public testing::TestWithParam<const char*> {};

TEST_P(GraphReplay, StaysRightWhileLengthsChange) {
  const std::string device = testing_support::test_device();
  if (device.rfind("cuda", 0) != 0) GTEST_SKIP() << "SPLITKV_TEST_DEVICE names no GPU";
  const auto driver = cuda::driver();
  ASSERT_TRUE(driver.ok()) << driver.error().message;
  auto memory = tool::open_device_memory(device);
  ASSERT_TRUE(memory.ok()) << memory.error().message;

  const std::string text = problem_text(GetParam());
  const Problem problem = *parse_problem(text);
  if (!runs_here(GetParam())) GTEST_SKIP() << device << " has no clusters";
  const tool::Inputs full =
      tool::generate_inputs(problem, std::vector<int32_t>(batch, menu.back()), 7);
  const Table table = expected_table(problem, full);
  const tool::KvImage image = tool::lay_out(problem, full, 7);
  Runtime runtime;
  const Kernel kernel = runtime.prepare(device, text, {batch, menu.back()}, GetParam());
  const Placed on_device = place_all(**memory, full, image, kernel.sizes(batch));
  splitkv_tensors tensors = kernel.dense_strides(full.capacity);
  tensors.k = on_device.k.data();
  tensors.v = on_device.v.data();
  const Binding binding = kernel.bind(tensors);
  const splitkv_args args = args_of(on_device, image);
  CapturedRun captured(**driver, kernel, binding, args);

  const char* wanted = std::getenv("SPLITKV_REPLAYS");
  const int replays = wanted != nullptr ? std::atoi(wanted) : 2000;
  std::mt19937_64 engine(3);
  for (int i = 0; i < replays; ++i) {
    std::vector<int32_t> lengths;
    std::vector<size_t> choice;
    for (int row = 0; row < batch; ++row) {
      choice.push_back(engine() % menu.size());
      lengths.push_back(menu[choice.back()]);
    }
    ASSERT_TRUE((*memory)->copy_in(on_device.kv_len, lengths.data(), lengths.size() * 4).ok());
    ASSERT_TRUE((*memory)->poison(on_device.out).ok());
    ASSERT_TRUE((*memory)->poison(on_device.lse).ok());
    captured.replay();
    const auto accuracy = judge(**memory, on_device, table, choice, problem);
    ASSERT_TRUE(accuracy.ok()) << "replay " << i << " lengths " << lengths[0] << "," << lengths[1]
                               << "," << lengths[2] << "," << lengths[3] << " error "
                               << accuracy.out_relative_l2;
    if (i % 100 != 0) continue;
    // The same run outside the graph gives the same bits.
    const std::vector<std::byte> replayed = bits(**memory, on_device);
    ASSERT_TRUE((*memory)->poison(on_device.out).ok());
    ASSERT_TRUE((*memory)->poison(on_device.lse).ok());
    kernel.run(binding, args);
    ASSERT_EQ(bits(**memory, on_device), replayed) << "replay " << i;
  }
  std::printf("%d replays of %s\n", replays, GetParam());
}

INSTANTIATE_TEST_SUITE_P(
    Schedules, GraphReplay,
    testing::Values(
        "partition=fixed splits=5 tile=32 reduce=kernel",
        "partition=fixed splits=5 tile=32 reduce=last_block",
        "partition=strided splits=5 tile=32 reduce=kernel",
        "partition=strided splits=5 tile=32 reduce=last_block merge=lse",
        "partition=flat blocks=13 tile=32 reduce=kernel merge=lse",
        "partition=flat blocks=13 tile=32 reduce=last_block",
        "family=mma partition=fixed splits=5 tile=64 warps=4 reduce=kernel",
        "family=mma partition=strided splits=5 tile=64 warps=4 reduce=last_block",
        "family=mma partition=flat blocks=13 tile=64 warps=4 reduce=last_block",
        "partition=fixed splits=4 tile=32 reduce=cluster cluster=4",
        "partition=strided splits=12 tile=32 reduce=cluster cluster=4 merge=lse",
        "family=mma partition=fixed splits=8 tile=64 warps=4 reduce=cluster cluster=8 pdl=on",
        "family=mma partition=strided splits=6 tile=64 warps=4 reduce=cluster cluster=2 pdl=on",
        "partition=fixed splits=5 tile=32 reduce=kernel pdl=on",
        "family=mma partition=flat blocks=13 tile=64 warps=4 loads=tensor reduce=last_block",
        "family=mma partition=fixed splits=8 tile=64 warps=4 loads=tensor reduce=cluster "
        "cluster=4 pdl=on",
        "family=mma partition=flat blocks=13 tile=64 warps=4 reduce=last_block pdl=on"));

}  // namespace
}  // namespace splitkv
