// Where keys lie: page lists found through offsets, and batch rows more than 2^31 elements apart.
#include <gtest/gtest.h>
#ifdef __unix__
#include <sys/mman.h>
#include <unistd.h>
#endif

#include <cstring>
#include <string>
#include <vector>

#include "compiler/text.hpp"
#include "runtime/splitkv.hpp"
#include "tests/numeric/test_device.hpp"
#include "tools/splitkv/device_memory.hpp"
#include "tools/splitkv/kv_image.hpp"
#include "tools/splitkv/verdict.hpp"

namespace splitkv {
namespace {

using tool::Buffer;

// One run of a problem on tensors that the test placed itself.
class Step {
 public:
  // family: "", or words of a schedule before the rest of it.
  Step(const std::string& problem, const std::vector<int32_t>& kv_len,
       const std::string& family = "")
      : problem_(*parse_problem(problem)),
        inputs_(tool::generate_inputs(problem_, kv_len, 21)),
        memory_(std::move(*tool::open_device_memory(testing_support::test_device()))),
        kernel_(runtime_.prepare(
            testing_support::test_device(), problem, {},
            family + "partition=flat blocks=5 reduce=last_block warps=1 tile=16")) {}

  const tool::Inputs& inputs() const { return inputs_; }
  void make_v_like_k() { inputs_.v = inputs_.k; }
  const Problem& problem() const { return problem_; }
  const Kernel& kernel() const { return kernel_; }

  Buffer reserve(size_t bytes) { return std::move(*memory_->allocate(bytes)); }
  void copy(const Buffer& to, const void* from, size_t bytes, size_t at = 0) {
    ASSERT_TRUE(memory_->copy_in(to, from, bytes, at).ok());
  }
  template <class T>
  Buffer place(const std::vector<T>& values) {
    Buffer buffer = reserve(values.size() * sizeof(T));
    copy(buffer, values.data(), values.size() * sizeof(T));
    return buffer;
  }

  // `args`: page table fields, if any; the rest is filled in here.
  void expect_right(const splitkv_tensors& tensors, splitkv_args args) {
    const int64_t rows = inputs_.batch * problem_.q_heads;
    const Buffer q = place(inputs_.q), kv_len = place(inputs_.kv_len);
    const Buffer out = reserve(size_t(rows * problem_.dim_v) * sizeof(float));
    const Buffer lse = reserve(size_t(rows) * sizeof(float));
    const auto sizes = kernel_.sizes(inputs_.batch);
    const Buffer scratch = reserve(sizes.scratch_bytes), state = reserve(sizes.state_bytes);
    kernel_.state_init(state.data(), sizes.state_bytes);
    args.batch = inputs_.batch;
    args.q = q.data();
    args.out = out.data();
    args.lse = static_cast<float*>(lse.data());
    args.kv_len = static_cast<const int32_t*>(kv_len.data());
    args.scratch = scratch.data();
    args.scratch_bytes = sizes.scratch_bytes;
    args.state = state.data();
    args.state_bytes = sizes.state_bytes;
    kernel_.run(kernel_.bind(tensors), args);

    tool::Execution execution;
    execution.out.resize(size_t(rows * problem_.dim_v));
    execution.lse.resize(size_t(rows));
    ASSERT_TRUE(memory_->copy_out(execution.out.data(), out, out.bytes()).ok());
    ASSERT_TRUE(memory_->copy_out(execution.lse.data(), lse, lse.bytes()).ok());
    const tool::Expected expected = tool::expect_from_reference(problem_, inputs_);
    const auto accuracy =
        tool::judge(problem_, execution, expected, tool::tolerance_of(problem_, false));
    EXPECT_TRUE(accuracy.ok()) << accuracy.out_relative_l2 << ", lse " << accuracy.lse_error;
  }

 private:
  Runtime runtime_;
  Problem problem_;
  tool::Inputs inputs_;
  std::unique_ptr<tool::DeviceMemory> memory_;
  Kernel kernel_;
};

#ifdef __unix__
// Memory whose last byte is followed by a page that nobody may touch.
class Guarded {
 public:
  explicit Guarded(size_t bytes)
      : page_(size_t(sysconf(_SC_PAGESIZE))), length_((bytes + page_ - 1) / page_ * page_) {
    start_ = static_cast<char*>(
        mmap(nullptr, length_ + page_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mprotect(start_ + length_, page_, PROT_NONE);
    data_ = start_ + length_ - bytes;
  }
  ~Guarded() { munmap(start_, length_ + page_); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;

  char* data() const { return data_; }

 private:
  size_t page_, length_;
  char* start_ = nullptr;
  char* data_ = nullptr;
};
#endif

TEST(Addresses, PageListsAreFoundThroughOffsets) {
  Step step("q=bf16 out=fp32 heads=4/2 dim=64 kv_layout=paged:16:hnd lse=natural",
            {40, 0, 200, 17});
  const tool::KvImage image = tool::lay_out(step.problem(), step.inputs(), 4);
  // The rows' lists in reverse order, without the unused slots between them.
  std::vector<int32_t> lists;
  std::vector<int64_t> offsets(4);
  for (int row = 3; row >= 0; --row) {
    offsets[size_t(row)] = int64_t(lists.size());
    const auto list = image.page_table.begin() + row * image.page_table_stride;
    lists.insert(lists.end(), list, list + (step.inputs().kv_len[size_t(row)] + 15) / 16);
  }
  const Buffer k = step.place(image.k), v = step.place(image.v);
  const Buffer table = step.place(lists), starts = step.place(offsets);
  splitkv_tensors tensors = step.kernel().dense_strides(0);
  tensors.k = k.data();
  tensors.v = v.data();
  auto args = sized<splitkv_args>();
  args.page_table = static_cast<const int32_t*>(table.data());
  args.page_offset = static_cast<const int64_t*>(starts.data());
  step.expect_right(tensors, args);
}

// One buffer [blocks, layers, 2, page, heads, dim] (or heads before page) for all layers: each
// binds a pointer of its own and the same strides. All but the layer that runs is NaN.
TEST(Addresses, LayersMayShareEveryPage) {
  constexpr int64_t kLayers = 3;
  const bool on_cpu = testing_support::test_device().rfind("cpu", 0) == 0;
  const std::vector<std::string> families =
      on_cpu ? std::vector<std::string>{""}
             : std::vector<std::string>{"family=simt ", "family=mma "};
  for (const std::string& family : families) {
    for (const char* words : {"kv=bf16 kv_layout=paged:16:nhd", "kv=bf16 kv_layout=paged:3:hnd",
                              "kv=e4m3 kv_layout=paged:16:hnd"}) {
      Step step(std::string("q=bf16 out=fp32 heads=4/2 dim=64 lse=natural ") + words,
                {40, 0, 200, 17}, family);
      const tool::KvImage image = tool::lay_out(step.problem(), step.inputs(), 4);
      const size_t page_bytes = image.k.size() / size_t(image.page_count);
      ASSERT_EQ(image.v.size(), image.k.size());
      const Buffer table = step.place(image.page_table);
      for (int64_t layer = 0; layer < kLayers; ++layer) {
        SCOPED_TRACE(family + words + ", layer " + std::to_string(layer));
        std::vector<std::byte> cache(2 * size_t(kLayers) * image.k.size(), std::byte{0xff});
        const auto at = [&](int64_t page, int64_t layer_of, int64_t is_v) {
          return size_t((page * kLayers + layer_of) * 2 + is_v) * page_bytes;
        };
        for (int64_t page = 0; page < image.page_count; ++page) {
          const size_t from = size_t(page) * page_bytes;
          std::memcpy(&cache[at(page, layer, 0)], &image.k[from], page_bytes);
          std::memcpy(&cache[at(page, layer, 1)], &image.v[from], page_bytes);
        }
        const Buffer placed = step.place(cache);
        splitkv_tensors tensors = step.kernel().dense_strides(0);
        tensors.k = static_cast<const char*>(placed.data()) + at(0, layer, 0);
        tensors.v = static_cast<const char*>(placed.data()) + at(0, layer, 1);
        tensors.k_stride_block *= 2 * kLayers;
        tensors.v_stride_block *= 2 * kLayers;
        auto args = sized<splitkv_args>();
        args.page_table = static_cast<const int32_t*>(table.data());
        args.page_table_stride = image.page_table_stride;
        step.expect_right(tensors, args);
      }
    }
  }
}

TEST(Addresses, BatchRowsMayLieMoreThan2To31ElementsApart) {
  Step step("q=bf16 out=fp32 heads=2/1 dim=64 lse=natural", {40, 33});
  const int64_t apart = (int64_t(1) << 31) + 64;  // elements
  const size_t row_bytes = step.inputs().k.size() / 2;
  // Rows of K and of V in one allocation: the second rows lie 4 GiB behind the first.
  const Buffer cache = step.reserve(size_t(apart) * 2 + 2 * row_bytes);
  const auto place = [&](const std::vector<std::byte>& tensor, size_t at) {
    step.copy(cache, tensor.data(), row_bytes, at);
    step.copy(cache, tensor.data() + row_bytes, row_bytes, at + size_t(apart) * 2);
  };
  place(step.inputs().k, 0);
  place(step.inputs().v, row_bytes);
  splitkv_tensors tensors = step.kernel().dense_strides(step.inputs().capacity);
  tensors.k = cache.data();
  tensors.v = static_cast<const char*>(cache.data()) + row_bytes;
  tensors.k_stride_block = tensors.v_stride_block = apart;
  step.expect_right(tensors, sized<splitkv_args>());
}

// 8-bit pages of 16 KiB: the last one begins beyond 2^31 elements.
TEST(Addresses, PagesMayLieMoreThan2To31ElementsApart) {
  Step step("q=bf16 kv=e4m3 out=fp32 heads=8/8 dim=128 kv_layout=paged:16:nhd lse=natural",
            {64, 33});
  const std::vector<int32_t> far = {0, 131071, 131072, 139999, 65536, 131073, 139998};
  const tool::KvImage image = tool::lay_out(step.problem(), step.inputs(), 4);
  const size_t page_bytes = 16 * 8 * 128;
  const Buffer cache = step.reserve(size_t(140000) * page_bytes);
  std::vector<int32_t> table = image.page_table;
  size_t next = 0;
  for (int32_t& id : table) {
    if (id == tool::kPoisonPage) continue;
    const size_t from = size_t(id) * page_bytes;
    id = far[next++];
    step.copy(cache, &image.k[from], page_bytes, size_t(id) * page_bytes);
  }
  ASSERT_EQ(next, far.size());
  // V is what K is: one cache of 2.3 GB is enough.
  splitkv_tensors tensors = step.kernel().dense_strides(0);
  tensors.k = tensors.v = cache.data();
  const Buffer pages = step.place(table);
  auto args = sized<splitkv_args>();
  args.page_table = static_cast<const int32_t*>(pages.data());
  args.page_table_stride = image.page_table_stride;
  step.make_v_like_k();
  step.expect_right(tensors, args);
}

#ifdef __unix__
// The page list and the cache end where readable memory does.
TEST(Addresses, NothingIsReadBeyondThePagesOfARow) {
  if (testing_support::test_device().rfind("cpu", 0) != 0) {
    GTEST_SKIP() << "guard pages are the host's";
  }
  Step step("q=bf16 out=fp32 heads=4/2 dim=64 kv_layout=paged:16:hnd lse=natural", {17});
  const Guarded list(2 * sizeof(int32_t));
  const int32_t ids[] = {1, 0};
  std::memcpy(list.data(), ids, sizeof(ids));
  const size_t page_bytes = 2 * 16 * 64 * 2;
  const tool::KvImage image = tool::lay_out(step.problem(), step.inputs(), 4);
  const Guarded k(2 * page_bytes), v(2 * page_bytes);
  for (int slot = 0; slot < 2; ++slot) {
    const size_t from = size_t(image.page_table[size_t(slot)]) * page_bytes;
    std::memcpy(k.data() + size_t(ids[slot]) * page_bytes, &image.k[from], page_bytes);
    std::memcpy(v.data() + size_t(ids[slot]) * page_bytes, &image.v[from], page_bytes);
  }
  splitkv_tensors tensors = step.kernel().dense_strides(0);
  tensors.k = k.data();
  tensors.v = v.data();
  auto args = sized<splitkv_args>();
  args.page_table = reinterpret_cast<const int32_t*>(list.data());
  args.page_table_stride = 2;
  step.expect_right(tensors, args);
}

// Dense rows that end with the allocation, at every length around a tile.
TEST(Addresses, NothingIsReadBeyondTheLastKey) {
  if (testing_support::test_device().rfind("cpu", 0) != 0) {
    GTEST_SKIP() << "guard pages are the host's";
  }
  for (const int32_t length : {1, 7, 15, 16, 17, 33}) {
    Step step("q=bf16 out=fp32 heads=2/1 dim=64 lse=natural", {length});
    const Guarded k(step.inputs().k.size()), v(step.inputs().v.size());
    std::memcpy(k.data(), step.inputs().k.data(), step.inputs().k.size());
    std::memcpy(v.data(), step.inputs().v.data(), step.inputs().v.size());
    splitkv_tensors tensors = step.kernel().dense_strides(step.inputs().capacity);
    tensors.k = k.data();
    tensors.v = v.data();
    step.expect_right(tensors, sized<splitkv_args>());
  }
}
#endif

}  // namespace
}  // namespace splitkv
