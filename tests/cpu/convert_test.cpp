// Conversions in vectors against the exact host conversions, in hardware and in integer operations.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "codegen/llvm/convert.hpp"
#include "compiler/dtype.hpp"
#include "tests/cpu/vector_function.hpp"

namespace splitkv::test {
namespace {

constexpr int kLanes = 8;

VectorFunction widening(const char* target, DType dtype, bool native_half) {
  return VectorFunction(
      target, kLanes,
      [=](ir::Writer& w, const ir::Value& in, const ir::Value& out, const ir::Value& first) {
        const ir::Value value = llvm_codegen::emit_load_elements(
            w, dtype, native_half, w.element(in, ir::i16, first, "in.at"), kLanes, 2, "value");
        w.store(value, w.element(out, ir::f32, first, "out.at"), 4);
      });
}

VectorFunction narrowing(const char* target, DType dtype, bool native_half) {
  return VectorFunction(
      target, kLanes,
      [=](ir::Writer& w, const ir::Value& in, const ir::Value& out, const ir::Value& first) {
        const ir::Type type{ir::Element::f32, kLanes};
        const ir::Value value = w.load(type, w.element(in, ir::f32, first, "in.at"), 4, "value");
        llvm_codegen::emit_store_elements(w, dtype, native_half, value,
                                          w.element(out, ir::i16, first, "out.at"), 2);
      });
}

bool same(float a, float b) {
  return (std::isnan(a) && std::isnan(b)) ||
         std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

void expect_exact(const char* target, DType dtype, bool native_half) {
  SCOPED_TRACE(std::string(target) + " " + std::string(name(dtype)));
  std::vector<uint16_t> patterns(65536);
  for (size_t i = 0; i < patterns.size(); ++i) patterns[i] = uint16_t(i);
  std::vector<float> wide(patterns.size());
  widening(target, dtype, native_half)(patterns.data(), wide.data(), patterns.size());
  int wrong = 0;
  for (size_t i = 0; i < patterns.size(); ++i) {
    wrong += !same(wide[i], load_element(dtype, patterns.data(), int64_t(i)));
  }
  EXPECT_EQ(wrong, 0) << "of the widened patterns";

  // Every value, its neighbours in fp32, and the midpoints that tie.
  std::vector<float> values;
  for (size_t i = 0; i < patterns.size(); ++i) {
    const uint32_t bits = std::bit_cast<uint32_t>(wide[i]);
    const uint32_t half = dtype == DType::bf16 ? 0x8000 : 0x1000;
    for (uint32_t near : {bits, bits + half, bits + half - 1, bits + half + 1}) {
      values.push_back(std::bit_cast<float>(near));
    }
  }
  std::vector<uint16_t> narrow(values.size());
  narrowing(target, dtype, native_half)(values.data(), narrow.data(), values.size());
  wrong = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    uint16_t expected;
    store_element(dtype, &expected, 0, values[i]);
    wrong += !same(load_element(dtype, &narrow[i], 0), load_element(dtype, &expected, 0));
  }
  EXPECT_EQ(wrong, 0) << "of the narrowed values";
}

TEST(CpuConvert, IntegerOperationsRoundAsTheHostDoes) {
  for (const char* target : {"cpu", "cpu:x86-64-v2"}) {
    expect_exact(target, DType::bf16, false);
    expect_exact(target, DType::fp16, false);
  }
}

TEST(CpuConvert, HardwareHalvesRoundAsTheHostDoes) {
  if (resolve_cpu_target("cpu", 1)->vector_bits < 256) GTEST_SKIP() << "no F16C here";
  expect_exact("cpu", DType::fp16, true);
}

TEST(CpuConvert, BytesWidenExactly) {
  for (const char* target : {"cpu", "cpu:x86-64-v2"}) {
    for (DType dtype : {DType::e4m3, DType::e5m2, DType::int8}) {
      const bool native_half = resolve_cpu_target(target, 1)->vector_bits >= 256;
      const VectorFunction widen(
          target, kLanes,
          [=](ir::Writer& w, const ir::Value& in, const ir::Value& out, const ir::Value& first) {
            const ir::Value value = llvm_codegen::emit_load_elements(
                w, dtype, native_half, w.element(in, ir::i8, first, "in.at"), kLanes, 1, "value");
            w.store(value, w.element(out, ir::f32, first, "out.at"), 4);
          });
      std::vector<uint8_t> patterns(256);
      for (size_t i = 0; i < patterns.size(); ++i) patterns[i] = uint8_t(i);
      std::vector<float> wide(patterns.size());
      widen(patterns.data(), wide.data(), patterns.size());
      for (size_t i = 0; i < patterns.size(); ++i) {
        EXPECT_TRUE(same(wide[i], load_element(dtype, patterns.data(), int64_t(i))))
            << name(dtype) << " " << i;
      }
    }
  }
}

}  // namespace
}  // namespace splitkv::test
