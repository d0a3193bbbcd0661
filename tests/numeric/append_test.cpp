// New keys and values in the cache: every byte of it, against a reference that shares no code with
// the library.
#include <fmt/format.h>
#include <gtest/gtest.h>
#ifdef __unix__
#include <sys/mman.h>
#endif

#include <cmath>
#include <limits>

#include "tests/numeric/append_case.hpp"
#include "tests/numeric/test_device.hpp"

namespace splitkv {
namespace {

using testing_support::AppendCase;
using testing_support::AppendForm;
using testing_support::test_device;
using testing_support::TokenPlace;
using testing_support::TokenPlaces;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

bool on_cpu() { return test_device().rfind("cpu", 0) == 0; }

// Tokens a block of what the case was made of.
int64_t tokens_a_block(const AppendCase& c, const AppendForm& form) {
  return is_paged(c.problem()) ? c.problem().kv_layout.page_size : form.capacity;
}

TokenPlaces places_of_slots(const std::vector<int64_t>& slots, int64_t a_block) {
  TokenPlaces places;
  for (const int64_t slot : slots) {
    places.push_back(slot < 0 ? TokenPlace{} : TokenPlace{slot / a_block, slot % a_block});
  }
  return places;
}

// Runs with slots for K (and V's own, if any) and expects every byte.
void append_by_slots(AppendCase& c, const AppendForm& form, const std::vector<int64_t>& slots,
                     const std::vector<int64_t>& v_slots = {}) {
  const int64_t a_block = tokens_a_block(c, form);
  c.args.slots = c.place(slots);
  if (!v_slots.empty()) c.args.v_slots = c.place(v_slots);
  if (!is_paged(c.problem())) c.args.slots_a_row = form.capacity;
  ASSERT_EQ(c.run(), "");
  c.expect_written(places_of_slots(slots, a_block), places_of_slots(v_slots, a_block));
}

struct Layout {
  const char* words;
  int64_t blocks, capacity;
};
const Layout kLayouts[] = {{"kv_layout=bhtd", 2, 24},
                           {"kv_layout=bthd", 2, 24},
                           {"kv_layout=paged:16:nhd", 3, 0},
                           {"kv_layout=paged:3:hnd", 16, 0},
                           {"kv_layout=paged:1:nhd", 48, 0}};
const char* const kStored[] = {"fp32", "fp16", "bf16", "e4m3", "e5m2", "int8"};
const char* const kScales[] = {"none", "tensor", "head", "token", "inline"};
const char* const kTypes[] = {"fp32", "fp16", "bf16"};

// Dims that fill no vector, rows of 132 bytes, and rows that end within one.
const char* const kDims[] = {"46/72", "100", "128", "72/40"};
const char* const kByteDims[] = {"128", "100", "44/72", "128/8"};

TEST(Append, StoresEveryTypeScaleAndLayout) {
  int done = 0;
  for (const char* stored : kStored) {
    for (const char* scale : kScales) {
      for (const Layout& layout : kLayouts) {
        AppendForm form;
        const bool byte = std::string(stored).size() == 4 && stored[0] != 'f' && stored[0] != 'b';
        form.problem = fmt::format("q=bf16 kv={} heads=6/3 dim={} kv_scale={} {} align=4", stored,
                                   (byte ? kByteDims : kDims)[done % 4], scale, layout.words);
        form.type = kTypes[done % 3];
        form.tokens = 7;
        form.blocks = layout.blocks;
        form.capacity = layout.capacity;
        form.spaced = done % 5 == 0;
        form.new_gap = done % 2 == 0 ? 0 : done % 7;
        if (on_cpu() && done % 3 == 2) form.device = "cpu:x86-64-v2";
        SCOPED_TRACE(form.problem + " of " + form.type);
        ++done;
        AppendCase c(form);
        append_by_slots(c, form, {47, 0, -1, 16, 15, 23, 24});
      }
    }
  }
}

TEST(Append, KAndVMayDiffer) {
  for (const char* words :
       {"k=e4m3 v=bf16 k_scale=token", "k=fp16 v=int8 v_scale=inline dim=64/132",
        "k=int8 v=e5m2 k_scale=head v_scale=token dim=132/68", "k=fp32 v=e4m3 v_scale=tensor"}) {
    AppendForm form;
    form.problem = fmt::format("q=fp32 heads=4/2 align=4 kv_layout=paged:16:hnd {}{}", words,
                               std::string(words).find("dim=") < 99 ? "" : " dim=64");
    form.tokens = 5;
    SCOPED_TRACE(form.problem);
    AppendCase c(form);
    append_by_slots(c, form, {3, 63, 16, -7, 40});
  }
}

TEST(Append, VWithinKIsWrittenWithIt) {
  for (const char* words : {"kv=bf16", "kv=e4m3 kv_scale=tensor", "kv=int8 kv_scale=inline",
                            "kv=e4m3 kv_scale=token"}) {
    AppendForm form;
    form.problem = fmt::format(
        "q=bf16 heads=16/1 dim=576/512 v_in_k=on kv_layout=paged:16:nhd align=4 {}", words);
    form.tokens = 4;
    SCOPED_TRACE(form.problem);
    AppendCase c(form);
    append_by_slots(c, form, {5, 6, 48, 0});
  }
}

TEST(Append, KAndVMayLieInOneBuffer) {
  for (const char* words : {"kv=bf16 kv_layout=paged:16:nhd", "kv=e4m3 kv_layout=paged:3:hnd",
                            "kv=int8 kv_scale=inline kv_layout=bthd"}) {
    AppendForm form;
    form.problem = fmt::format("q=bf16 heads=4/2 dim=64 align=4 {}", words);
    form.tokens = 6;
    form.interleaved = true;
    SCOPED_TRACE(form.problem);
    AppendCase c(form);
    append_by_slots(c, form, {0, 1, 2, 3, -1, 11});
  }
}

TEST(Append, KAndVMayHavePagesOfTheirOwn) {
  AppendForm form;
  form.problem =
      "q=bf16 kv=e4m3 kv_scale=token heads=4/2 dim=64 kv_layout=paged:16:nhd "
      "page_tables=separate";
  form.tokens = 5;
  AppendCase c(form);
  append_by_slots(c, form, {3, 62, -1, 17, 33}, {40, -1, 12, 0, 63});
}

TEST(Append, AnyAlignmentClassAndStrideOfNewRows) {
  for (const int align : {2, 4, 8, 16}) {
    for (const char* type : kTypes) {
      for (const int64_t gap : {0, 1, 2, 4}) {
        AppendForm form;
        form.problem = fmt::format("q=bf16 kv=bf16 heads=4/2 dim=64/72 align={}", align);
        form.type = type;
        form.tokens = 3;
        form.new_gap = gap;
        SCOPED_TRACE(fmt::format("{} {} gap {}", form.problem, type, gap));
        AppendCase c(form);
        append_by_slots(c, form, {30, 8, 95});
      }
    }
  }
}

// ---- what numbers become ------------------------------------------------------------------------

// Every value, both signs, in rows of one head.
void expect_values(const std::string& words, std::vector<float> values, const char* type,
                   const std::vector<float>& given = {}) {
  const size_t positive = values.size();
  for (size_t i = 0; i < positive; ++i) values.push_back(-values[i]);
  constexpr size_t kDim = 256;
  AppendForm form;
  form.problem = fmt::format("q=bf16 heads=1/1 dim={} align=4 {}", kDim, words);
  form.type = type;
  form.tokens = int64_t((values.size() + kDim - 1) / kDim);
  form.blocks = 1;
  form.capacity = form.tokens;
  SCOPED_TRACE(form.problem);
  AppendCase c(form);
  values.resize(size_t(form.tokens) * kDim, 0.0f);
  c.k_new = c.v_new = values;
  if (!given.empty()) c.given_scales = given;
  std::vector<int64_t> slots;
  for (int64_t i = 0; i < form.tokens; ++i) slots.push_back(i);
  append_by_slots(c, form, slots);
}

// Numbers that a type holds, halfway between them, and beside both.
std::vector<float> around_codes(DType type) {
  const int codes = size_bytes(type) == 1 ? 0x80 : 0x7c00;
  const int step = size_bytes(type) == 1 ? 1 : 37;
  std::vector<float> values;
  for (int code = 0; code + 1 < codes; code += step) {
    const double low = testing_support::reference_value(type, uint32_t(code));
    const double high = testing_support::reference_value(type, uint32_t(code) + 1);
    if (!std::isfinite(low) || !std::isfinite(high)) continue;
    for (const double x : {low, (low + high) / 2}) {
      const float value = float(x);
      values.insert(values.end(),
                    {value, std::nextafter(value, kInfinity), std::nextafter(value, 0.0f)});
    }
  }
  return values;
}

const std::pair<const char*, DType> kRounded[] = {{"fp16", DType::fp16},
                                                  {"bf16", DType::bf16},
                                                  {"e4m3", DType::e4m3},
                                                  {"e5m2", DType::e5m2},
                                                  {"int8", DType::int8}};

TEST(Append, RoundsToNearestWithTiesToEven) {
  for (const auto& [stored, type] : kRounded) {
    expect_values(fmt::format("kv={}", stored), around_codes(type), "fp32");
  }
}

TEST(Append, FiniteNumbersSaturateAndInfinitiesStayWhereTheyCan) {
  const std::vector<float> values = {447.9f, 448,    463.99f, 464,      465,       1e4f,   57344,
                                     57345,  61439,  61440,   61441,    65504,     65519,  65520,
                                     65521,  1e6f,   3e38f,   3.39e38f, 3.4e38f,   126.5f, 127,
                                     127.5f, 128,    128.5f,  129,      kInfinity, NAN,    1e-45f,
                                     1e-40f, 1e-38f, 6e-8f,   2.9e-8f,  3e-8f,     0.0f};
  for (const char* stored : kStored) {
    expect_values(fmt::format("kv={}", stored), values, "fp32");
    // A finite number whose quotient is too large for fp32 as well.
    for (const float scale : {1e-6f, 1.0f, 0.3f, 700.0f}) {
      expect_values(fmt::format("kv={} kv_scale=tensor", stored), values, "fp32", {scale});
    }
  }
}

TEST(Append, ScalesOfRowsAreMadeOfTheirFiniteNumbers) {
  for (const char* stored : kStored) {
    for (const char* scale : {"token", "inline"}) {
      for (const std::vector<float>& values : {std::vector<float>{0.0f, 0.0f},
                                               {1.0f, 3.0f, kInfinity},
                                               {2.0f, 0.5f, NAN},
                                               {kInfinity},
                                               {NAN},
                                               {1e-45f, 3e-45f},
                                               {1e-38f, 1e-39f},
                                               {3.4e38f, 1.0f},
                                               {448.0f, 1.0f, 127.0f}}) {
        expect_values(fmt::format("kv={} kv_scale={}", stored, scale), values, "fp32");
      }
    }
  }
}

// What attention makes of a row lies within half a step of the type of what was appended.
TEST(Append, WhatIsReadIsCloseToWhatWasAppended) {
  struct Step {
    const char* stored;
    double relative, of_largest;
  };
  for (const Step& step :
       {Step{"e4m3", 1.0 / 16, 1.0 / 448 / 1024}, Step{"e5m2", 1.0 / 8, 1.0 / 57344 / 131072},
        Step{"int8", 0, 0.5 / 127}}) {
    for (const char* scale : {"token", "inline"}) {
      AppendForm form;
      form.problem = fmt::format(
          "q=fp32 kv={} heads=2/2 dim=128 align=4 kv_scale={} "
          "kv_layout=paged:16:nhd",
          step.stored, scale);
      form.type = "fp32";
      form.tokens = 20;
      SCOPED_TRACE(form.problem);
      AppendCase c(form);
      std::vector<int64_t> slots;
      for (int64_t i = 0; i < form.tokens; ++i) slots.push_back(63 - i);
      append_by_slots(c, form, slots);
      for (int64_t token = 0; token < form.tokens; ++token) {
        const TokenPlace at{(63 - token) / 16, (63 - token) % 16};
        for (int64_t head = 0; head < 2; ++head) {
          const auto row = c.k_new.begin() + (token * 2 + head) * 128;
          double largest = 0;
          for (int64_t i = 0; i < 128; ++i) largest = std::max(largest, double(std::abs(row[i])));
          for (int64_t i = 0; i < 128; ++i) {
            const double room = 1e-6 * largest + std::abs(row[i]) * step.relative +
                                largest * step.of_largest * 1.0001;
            ASSERT_NEAR(c.read(false, at, head, i), row[i], room) << token << " " << i;
          }
        }
      }
    }
  }
}

// ---- counts and guards
// ---------------------------------------------------------------------------

TEST(Append, TokensFromTheDevicesCountOnAreLeftOut) {
  for (const int32_t count : {0, 1, 3, 5, 99, -1}) {
    AppendForm form;
    form.problem = "q=bf16 kv=e4m3 kv_scale=token heads=2/2 dim=64 kv_layout=paged:16:nhd";
    form.tokens = 5;
    AppendCase c(form);
    c.args.token_count = c.place(std::vector<int32_t>{count});
    std::vector<int64_t> slots = {3, 4, 60, 10, 11};
    c.args.slots = c.place(slots);
    ASSERT_EQ(c.run(), "");
    for (int64_t i = std::max(count, 0); i < 5; ++i) slots[size_t(i)] = -1;
    c.expect_written(places_of_slots(slots, 16));
  }
}

TEST(Append, ManyTokensOfManyRows) {
  AppendForm form;
  form.problem = "q=bf16 kv=bf16 heads=8/8 dim=64 kv_layout=paged:16:nhd";
  form.tokens = 777;
  form.blocks = 64;
  AppendCase c(form);
  std::vector<int64_t> slots;
  for (int64_t i = 0; i < form.tokens; ++i) slots.push_back((i * 601) % 1024);
  append_by_slots(c, form, slots);
}

TEST(Append, ASlotOutOfRangeIsToldAndNotWritten) {
  AppendForm form;
  form.problem = "q=bf16 kv=bf16 heads=2/2 dim=64 kv_layout=paged:16:nhd checked=on";
  form.tokens = 4;
  AppendCase c(form);
  c.args.slots = c.place(std::vector<int64_t>{3, 1 << 20, 5, -1});
  c.args.slot_count = 64;
  const std::string failure = c.run();
  c.expect_written({{0, 3}, {}, {0, 5}, {}});
  const std::string polled = c.poll();
  EXPECT_NE(polled.find("slots[1]=1048576"), std::string::npos) << polled;
  EXPECT_EQ(failure, on_cpu() ? polled : "");
  EXPECT_EQ(c.poll(), "") << "a fault is told once";
}

// ---- addresses ----------------------------------------------------------------------------------

// Much memory of which little is touched.
class Sparse {
 public:
  Sparse(tool::DeviceMemory& memory, size_t bytes) : bytes_(bytes) {
#ifdef __unix__
    if (on_cpu()) {
      data_ = static_cast<char*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
      return;
    }
#endif
    buffer_ = std::move(*memory.allocate(bytes));
    data_ = static_cast<char*>(buffer_.data());
  }
  ~Sparse() {
#ifdef __unix__
    if (on_cpu()) munmap(data_, bytes_);
#endif
  }
  Sparse(const Sparse&) = delete;
  Sparse& operator=(const Sparse&) = delete;

  char* data() const { return data_; }

 private:
  tool::Buffer buffer_;
  char* data_ = nullptr;
  size_t bytes_;
};

// 8-bit pages of 16 KiB: the last ones begin beyond 2^31 elements.
TEST(Append, PagesMayLieMoreThan2To31ElementsApart) {
  AppendForm form;
  form.problem = "q=bf16 kv=e4m3 kv_scale=head heads=8/8 dim=128 kv_layout=paged:16:nhd";
  form.tokens = 3;
  AppendCase c(form);
  const std::vector<int64_t> slots = {131072 * 16, 139999 * 16 + 5, 131071 * 16 + 15};
  c.args.slots = c.place(std::vector<int64_t>(3, -1));
  ASSERT_EQ(c.run(), "");  // with this case's own cache, which places the rest
  c.expect_written(TokenPlaces(3));

  constexpr size_t kPage = 16 * 8 * 128;
  const Sparse k(c.memory(), 140000 * kPage), v(c.memory(), 140000 * kPage);
  c.args.slots = c.place(slots);
  splitkv_binding binding = c.binding();
  binding.tensors.k = k.data();
  binding.tensors.v = v.data();
  c.appender().append(binding, c.args);
  for (size_t token = 0; token < slots.size(); ++token) {
    const size_t at = size_t(slots[token]) * 8 * 128;
    for (const bool of_v : {false, true}) {
      std::vector<unsigned char> row(8 * 128);
      const tool::Buffer view(nullptr, (of_v ? v : k).data() + at, row.size());
      ASSERT_TRUE(c.memory().copy_out(row.data(), view, row.size()).ok());
      for (size_t i = 0; i < row.size(); ++i) {
        const float value = (of_v ? c.v_new : c.k_new)[token * row.size() + i];
        ASSERT_EQ(row[i],
                  testing_support::reference_bits(DType::e4m3, value, &c.given_scales[i / 128]))
            << token << " " << i;
      }
    }
  }
}

}  // namespace
}  // namespace splitkv
