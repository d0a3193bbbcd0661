// The polynomials against libm in double, over the whole range of fp32 exponents.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "codegen/llvm/math.hpp"
#include "tests/cpu/vector_function.hpp"

namespace splitkv::test {
namespace {

constexpr int kLanes = 8;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

using Emit = ir::Value (*)(ir::Writer&, ir::Value);

std::vector<float> evaluate(Emit emit, std::vector<float> x, const char* target = "cpu") {
  x.resize((x.size() + kLanes - 1) / kLanes * kLanes, 1.0f);
  const VectorFunction function(
      target, kLanes,
      [&](ir::Writer& w, const ir::Value& in, const ir::Value& out, const ir::Value& first) {
        const ir::Type type{ir::Element::f32, kLanes};
        const ir::Value value = w.load(type, w.element(in, ir::f32, first, "in.at"), 4, "x");
        w.store(emit(w, value), w.element(out, ir::f32, first, "out.at"), 4);
      });
  std::vector<float> y(x.size());
  function(x.data(), y.data(), x.size());
  return y;
}

std::vector<float> even_steps(double low, double high, int count) {
  std::vector<float> values;
  for (int i = 0; i <= count; ++i) values.push_back(float(low + (high - low) * i / count));
  return values;
}

// Positive floats of every exponent.
std::vector<float> every_exponent() {
  std::vector<float> values;
  for (uint32_t bits = 1; bits < 0x7f800000; bits += 9973)
    values.push_back(std::bit_cast<float>(bits));
  return values;
}

double ulp_of(double value) {
  const float size = std::max(std::fabs(float(value)), std::numeric_limits<float>::min());
  return double(std::nextafter(size, kInfinity)) - size;
}

void expect_within(Emit emit, double (*expected)(double), const std::vector<float>& x, double ulps,
                   const char* target = "cpu") {
  const std::vector<float> y = evaluate(emit, x, target);
  double worst = 0;
  float worst_x = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double exact = expected(x[i]);
    const double error = std::fabs(y[i] - exact) / ulp_of(exact);
    if (!(error <= worst)) worst = error, worst_x = x[i];
  }
  EXPECT_LE(worst, ulps) << "at " << worst_x;
}

using namespace llvm_codegen;

double exp2_of(double x) { return std::exp2(x); }
double exp_of(double x) { return std::exp(x); }
double log2_of(double x) { return std::log2(x); }
double log_of(double x) { return std::log(x); }
double tanh_of(double x) { return std::tanh(x); }

TEST(CpuMath, PowersOfTwoAreWithinTwoUlpOverTheirRange) {
  for (const char* target : {"cpu", "cpu:x86-64-v2"}) {
    expect_within(emit_exp2, exp2_of, even_steps(-126, 127.99, 200000), 2, target);
    expect_within(emit_exp2_nonpositive, exp2_of, even_steps(-126, 0, 200000), 2, target);
    expect_within(emit_exp, exp_of, even_steps(-87.3, 88.7, 200000), 2, target);
  }
}

TEST(CpuMath, PowersOfTwoAreExactAtTheEdges) {
  for (Emit emit : {emit_exp2, emit_exp2_nonpositive}) {
    const auto y = evaluate(emit, {-kInfinity, 0, -0.0f, -1, -126, -127, -1e30f, -3.4e38f});
    const std::vector<float> expected = {0, 1, 1, 0.5f, 0x1p-126f, 0, 0, 0};
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(y[i], expected[i]) << i;
  }
  const auto y = evaluate(emit_exp2, {128, 1e30f, kInfinity, 127, 10});
  EXPECT_EQ(y[0], kInfinity);
  EXPECT_EQ(y[1], kInfinity);
  EXPECT_EQ(y[2], kInfinity);
  EXPECT_EQ(y[3], 0x1p127f);
  EXPECT_EQ(y[4], 1024);
}

TEST(CpuMath, ExpOverflowsToInfinityAndUnderflowsToZero) {
  const auto y = evaluate(emit_exp, {-kInfinity, -200, 0, 89, kInfinity});
  EXPECT_EQ(y[0], 0);
  EXPECT_EQ(y[1], 0);
  EXPECT_EQ(y[2], 1);
  EXPECT_EQ(y[3], kInfinity);
  EXPECT_EQ(y[4], kInfinity);
}

TEST(CpuMath, LogarithmsAreWithinThreeUlpOfEveryPositiveFloat) {
  for (const char* target : {"cpu", "cpu:x86-64-v2"}) {
    expect_within(emit_log2, log2_of, every_exponent(), 3, target);
    expect_within(emit_log, log_of, every_exponent(), 3, target);
    expect_within(emit_log2, log2_of, even_steps(0.5, 2, 100000), 3, target);
  }
}

TEST(CpuMath, LogarithmsAreExactAtTheEdges) {
  for (Emit emit : {emit_log2, emit_log}) {
    const auto y = evaluate(emit, {0, -0.0f, 1, kInfinity, -1, -kInfinity});
    EXPECT_EQ(y[0], -kInfinity);
    EXPECT_EQ(y[1], -kInfinity);
    EXPECT_EQ(y[2], 0);
    EXPECT_EQ(y[3], kInfinity);
    EXPECT_TRUE(std::isnan(y[4]));
    EXPECT_TRUE(std::isnan(y[5]));
  }
}

TEST(CpuMath, TanhKeepsItsRelativeAccuracyNearZeroAndIsSafeForAnyFloat) {
  for (const char* target : {"cpu", "cpu:x86-64-v2"}) {
    expect_within(emit_tanh, tanh_of, even_steps(-12, 12, 200000), 3, target);
    expect_within(emit_tanh, tanh_of, every_exponent(), 3, target);
  }
  const auto y = evaluate(emit_tanh, {kInfinity, -kInfinity, 3.4e38f, -3.4e38f, -0.0f});
  EXPECT_EQ(y[0], 1);
  EXPECT_EQ(y[1], -1);
  EXPECT_EQ(y[2], 1);
  EXPECT_EQ(y[3], -1);
  EXPECT_TRUE(std::signbit(y[4]));
}

TEST(CpuMath, SigmoidIsAccurateAndSafeForAnyFloat) {
  const auto sigmoid_of = [](double x) { return 1 / (1 + std::exp(-x)); };
  for (const char* target : {"cpu", "cpu:x86-64-v2"}) {
    expect_within(emit_sigmoid, +sigmoid_of, even_steps(-87, 40, 200000), 4, target);
  }
  const auto y = evaluate(emit_sigmoid, {kInfinity, -kInfinity, 3.4e38f, -3.4e38f, 0});
  EXPECT_EQ(y[0], 1);
  EXPECT_EQ(y[1], 0);
  EXPECT_EQ(y[2], 1);
  EXPECT_EQ(y[3], 0);
  EXPECT_EQ(y[4], 0.5f);
}

}  // namespace
}  // namespace splitkv::test
