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

// fp64: the same, by functions that take either.
std::vector<double> evaluate_double(Emit emit, std::vector<double> x, const char* target = "cpu") {
  x.resize((x.size() + kLanes - 1) / kLanes * kLanes, 1.0);
  const VectorFunction function(
      target, kLanes,
      [&](ir::Writer& w, const ir::Value& in, const ir::Value& out, const ir::Value& first) {
        const ir::Type type{ir::Element::f64, kLanes};
        const ir::Value value = w.load(type, w.element(in, ir::f64, first, "in.at"), 8, "x");
        w.store(emit(w, value), w.element(out, ir::f64, first, "out.at"), 8);
      });
  std::vector<double> y(x.size());
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

// long double has eleven more bits than what is judged.
using Exact = long double (*)(long double);

void expect_double_within(Emit emit, Exact exact, const std::vector<double>& x, double ulps) {
  for (const char* target : {"cpu", "cpu:x86-64-v2"}) {
    const std::vector<double> y = evaluate_double(emit, x, target);
    long double worst = 0;
    double worst_x = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const long double wanted = exact(x[i]);
      const double size = std::max(std::fabs(double(wanted)), std::numeric_limits<double>::min());
      const long double ulp = std::nextafter(size, double(kInfinity)) - size;
      const long double error = std::fabs(y[i] - wanted) / ulp;
      if (!(error <= worst)) worst = error, worst_x = x[i];
    }
    EXPECT_LE(double(worst), ulps) << "at " << worst_x << " on " << target;
  }
}

std::vector<double> even_double_steps(double low, double high, int count) {
  std::vector<double> values;
  for (int i = 0; i <= count; ++i) values.push_back(low + (high - low) * i / count);
  return values;
}

// Positive doubles of every exponent, many mantissas each.
std::vector<double> every_double_exponent() {
  std::vector<double> values;
  for (uint64_t bits = 1; bits < 0x7ff0000000000000; bits += 0x000003a7b91c4d53) {
    values.push_back(std::bit_cast<double>(bits));
  }
  return values;
}

TEST(CpuMathDouble, ExpIsWithinFourUlpOverItsRange) {
  const auto exact = [](long double x) { return std::exp(x); };
  expect_double_within(emit_exp, +exact, even_double_steps(-708.39, 709.78, 200000), 4);
  expect_double_within(emit_exp, +exact, even_double_steps(-1, 1, 100001), 4);
  const auto y =
      evaluate_double(emit_exp, {-double(kInfinity), -1.7e308, -709, 0, -0.0, 709.79, 1.7e308,
                                 double(kInfinity), 709.782712893384, -708.396418532264, 5e-324});
  const std::vector<double> expected = {0, 0, 0, 1, 1, kInfinity, kInfinity, kInfinity};
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(y[i], expected[i]) << i;
  EXPECT_NEAR(y[8] / 1.7976931348622732e308, 1, 1e-15);
  EXPECT_NEAR(y[9] / 0x1p-1022, 1, 2e-13);  // that far the argument is from log(2^-1022)
  EXPECT_EQ(y[10], 1);
}

TEST(CpuMathDouble, LogIsWithinFourUlpOfEveryPositiveDouble) {
  const auto exact = [](long double x) { return std::log(x); };
  expect_double_within(emit_log, +exact, every_double_exponent(), 4);
  expect_double_within(emit_log, +exact, even_double_steps(0.5, 2, 100000), 4);
  expect_double_within(emit_log, +exact, {1 + 0x1p-52, 1 - 0x1p-53, 1 + 0x1p-30, 5e-324}, 4);
  const double inf = kInfinity;
  const auto y = evaluate_double(emit_log, {0, -0.0, 1, inf, -1, -inf, -1.7e308});
  EXPECT_EQ(y[0], -inf);
  EXPECT_EQ(y[1], -inf);
  EXPECT_EQ(y[2], 0);
  EXPECT_EQ(y[3], inf);
  for (const size_t i : {4, 5, 6}) EXPECT_TRUE(std::isnan(y[i])) << i;
}

TEST(CpuMathDouble, TanhIsWithinFourUlpOfAnyDouble) {
  const auto exact = [](long double x) { return std::tanh(x); };
  expect_double_within(emit_tanh, +exact, even_double_steps(-22, 22, 200000), 4);
  expect_double_within(emit_tanh, +exact, even_double_steps(-0.7, 0.7, 100001), 4);
  expect_double_within(emit_tanh, +exact, every_double_exponent(), 4);
  const double inf = kInfinity;
  const auto y = evaluate_double(emit_tanh, {inf, -inf, 1.7e308, -1.7e308, -0.0, 5e-324});
  const std::vector<double> expected = {1, -1, 1, -1, 0, 5e-324};
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(y[i], expected[i]) << i;
  EXPECT_TRUE(std::signbit(y[4]));
}

TEST(CpuMathDouble, SigmoidIsWithinFourUlpOfAnyDouble) {
  const auto exact = [](long double x) { return 1 / (1 + std::exp(-x)); };
  expect_double_within(emit_sigmoid, +exact, even_double_steps(-708, 40, 200000), 4);
  const double inf = kInfinity;
  const auto y = evaluate_double(emit_sigmoid, {inf, -inf, 1.7e308, -1.7e308, 0});
  const std::vector<double> expected = {1, 0, 1, 0, 0.5};
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(y[i], expected[i]) << i;
}

// A function of LLVM's own would be one call a lane.
TEST(CpuMathDouble, IsWrittenWithoutCalls) {
  for (Emit emit : {emit_exp, emit_log, emit_tanh, emit_sigmoid}) {
    ir::Writer w;
    const ir::Type type{ir::Element::f64, kLanes};
    const auto p = w.begin_function("", "f", {{type, "x", ""}});
    emit(w, p[0]);
    w.end_function();
    const std::string text = w.finish("nounwind");
    for (const char* called : {"llvm.exp", "llvm.log", "llvm.pow", "sitofp", "x float"}) {
      EXPECT_EQ(text.find(called), std::string::npos) << called;
    }
  }
}

}  // namespace
}  // namespace splitkv::test
