// Faults planted one at a time in the emitted KV writer: in addresses, places, scales, saturation
// and rounding. The comparison of every byte with the reference must notice each.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <span>

#include "codegen/append_source.hpp"
#include "compiler/text.hpp"
#include "runtime/append_launch.hpp"
#include "runtime/platform.hpp"
#include "tests/mutation/planted.hpp"
#include "tests/numeric/append_case.hpp"
#include "tests/numeric/test_device.hpp"

namespace splitkv {
namespace {

using testing_support::AppendCase;
using testing_support::AppendForm;
using testing_support::TokenPlaces;

struct AppendMutant {
  const char* name;
  const char* problem;
  const char* places;
  const char* from;
  const char* to;
};

const char* const kPlain = "q=bf16 kv=e4m3 heads=4/2 dim=64 kv_layout=paged:16:nhd";
const char* const kToken = "q=bf16 kv=e4m3 kv_scale=token heads=4/2 dim=64 kv_layout=paged:16:nhd";
const char* const kInline =
    "q=bf16 kv=int8 kv_scale=inline heads=4/2 dim=64 kv_layout=paged:16:hnd align=4";
const char* const kHead = "q=bf16 kv=int8 kv_scale=head heads=4/2 dim=64 kv_layout=paged:16:nhd";
const char* const kHalf = "q=bf16 kv=fp16 heads=4/2 dim=64 kv_layout=paged:16:nhd";

const AppendMutant llvm_mutants[] = {
    {"the place in the block is left out", kPlain, "slots", "mul i64 %place, %k.token.stride",
     "mul i64 0, %k.token.stride"},
    {"pages are half as long", kPlain, "slots", "urem i64 %slot, 16", "urem i64 %slot, 8"},
    {"the device's count is not looked at", kPlain, "rows",
     "select i1 %smaller, i64 %end_token, i64 %tokens",
     "select i1 %smaller, i64 %end_token, i64 %end_token"},
    {"all tokens of a row stand at its first", kPlain, "rows", "add i64 %kv_len.before.1, %number",
     "add i64 %kv_len.before.1, 0"},
    {"V's heads read K's new rows' first", kPlain, "slots", "mul i64 %v.head, %v.new.head.stride",
     "mul i64 0, %v.new.head.stride"},
    {"infinities take part in scales", kToken, "slots", "fcmp ole <4 x float> %size,",
     "fcmp ord <4 x float> %size,"},
    {"the limit is another type's", kToken, "slots", "fdiv float %largest, 448.0",
     "fdiv float %largest, 127.0"},
    {"the scale is not written", kToken, "slots", "store float %scale.or.1, ptr %k.scale.row",
     "store float 1.0, ptr %k.scale.row"},
    {"a row of zeros has a scale of 2", kToken, "slots", "float 1.0, float %scale.made",
     "float 2.0, float %scale.made"},
    {"NaN goes unnoticed in int8", kInline, "slots", "fcmp ogt float %missing, 0.0",
     "fcmp ogt float %missing, 2.0"},
    {"head 0's scale serves all", kHead, "slots", "ptr %k.scales, i64 %k.head",
     "ptr %k.scales, i64 0"},
    {"ties go up", kPlain, "slots", "add <4 x i32> %rounded, %last.kept",
     "add <4 x i32> %rounded, splat (i32 1)"},
    {"too large numbers are not held", kPlain, "slots",
     "splat (float 448.0), <4 x float> %clamped.below",
     "splat (float 480.0), <4 x float> %clamped.below"},
    {"infinities saturate in fp16", kHalf, "slots",
     "select <4 x i1> %is.finite, <4 x float> %clamped, <4 x float> %new",
     "select <4 x i1> %is.finite, <4 x float> %clamped, <4 x float> %clamped"},
    {"subnormals are cut off", kPlain, "slots",
     "fadd <4 x float> %size.value, splat (float 16384.0)",
     "fadd <4 x float> %size.value, splat (float 32768.0)"},
};

const AppendMutant cuda_mutants[] = {
    {"the place in the block is left out", kPlain, "slots",
     "at.token * (OfV ? args.v_stride_token : args.k_stride_token)",
     "0 * (OfV ? args.v_stride_token : args.k_stride_token)"},
    {"pages are half as long", kPlain, "slots", "slot % a_block", "slot % (a_block / 2)"},
    {"the device's count is not looked at", kPlain, "rows",
     "tokens = smaller(tokens, i64(*args.token_count))", "tokens = larger(tokens, tokens)"},
    {"all tokens of a row stand at its first", kPlain, "rows", "length - at.count + at.number",
     "length - at.count"},
    {"V's heads lie on K's", kPlain, "slots", "token, row - C.kv_heads, lane", "token, 0, lane"},
    {"slots below 0 are slot 0", kPlain, "slots", "if (slot < 0) return {0, 0, false}",
     "if (slot < 0) return {0, 0, true}"},
    {"infinities take part in scales", kToken, "slots", "if (size <= largest_float) largest",
     "if (size == size) largest"},
    {"the scale is not written", kToken, "slots", "if (lane == 0) *place = scale",
     "if (lane == 32) *place = scale"},
    {"a row of zeros has the smallest scale", kToken, "slots", "if (largest == 0.0f) return 1.0f",
     "if (largest == 1e-30f) return 1.0f"},
    {"a lane's largest is the row's", kToken, "slots",
     "largest = fmaxf(largest, __shfl_xor_sync(all_lanes, largest, offset))",
     "largest = fmaxf(largest, largest)"},
    {"NaN goes unnoticed in int8", kInline, "slots", "if (__any_sync(all_lanes, has_nan))",
     "if (__all_sync(all_lanes, has_nan))"},
    {"head 0's scale serves all", kHead, "slots", "scale = scales[head]", "scale = scales[0]"},
    {"nothing is divided", kHead, "slots", "Divides ? __fdiv_rn(value, scale) : value",
     "Divides ? value : value"},
    {"infinities saturate in fp16", kHalf, "slots",
     "size_bytes(To) == 1 || fabsf(value) <= largest_float", "true"},
    {"finite numbers become infinite", kHalf, "slots",
     "size_bytes(To) == 1 || fabsf(value) <= largest_float", "false"},
};

// What the fault does to numbers of every kind; empty: nothing, with or without it.
class Planted {
 public:
  explicit Planted(const std::string& device) : device_(device) {
#ifdef SPLITKV_HAS_CUDA
    if (device.rfind("cuda", 0) == 0) platform_ = make_cuda_platform(services_);
#endif
#ifdef SPLITKV_HAS_CPU
    if (device.rfind("cpu", 0) == 0) platform_ = make_cpu_platform(services_);
#endif
  }

  std::string differences(const AppendMutant& mutant, bool with_fault) {
    AppendForm form;
    form.problem = mutant.problem;
    form.places = mutant.places;
    form.type = "fp32";
    form.tokens = 7;
    form.device = device_;
    AppendCase c(form);
    spoil(c);
    const TokenPlaces places = form.places == "rows" ? by_rows(c) : by_slots(c);
    std::string failure;
    EXPECT_EQ(c.run([&](const splitkv_binding& binding, const splitkv_append_args& args) {
      failure = go(form, mutant, with_fault, c, binding, args);
    }),
              "");
    EXPECT_EQ(failure, "") << "a planted fault must compile and run to prove anything";
    return c.differences(places);
  }

 private:
  static constexpr float kInfinity = std::numeric_limits<float>::infinity();

  // Ties, numbers beyond every type, subnormals, infinities, a NaN and a row of zeros.
  static void spoil(AppendCase& c) {
    for (std::vector<float>* rows : {&c.k_new, &c.v_new}) {
      const float few[] = {1.0625f, 1.1875f, 1e9f, -1e9f, 470.0f, 0.002f, 0.003f, 100000.0f};
      std::copy(std::begin(few), std::end(few), rows->begin());
      (*rows)[64] = kInfinity;
      (*rows)[65] = -kInfinity;
      (*rows)[128 + 40] = NAN;
      std::fill_n(rows->begin() + 192, 64, 0.0f);
    }
  }

  static TokenPlaces by_slots(AppendCase& c) {
    c.args.slots = c.place(std::vector<int64_t>{47, 9, -1, 16, 15, 23, 24});
    return {{2, 15}, {0, 9}, {}, {1, 0}, {0, 15}, {1, 7}, {1, 8}};
  }

  static TokenPlaces by_rows(AppendCase& c) {
    c.args.batch = 2;
    c.args.q_offset = c.place(std::vector<int32_t>{0, 3, 7});
    c.args.kv_len = c.place(std::vector<int32_t>{19, 5});
    c.args.page_table = c.place(std::vector<int32_t>{3, 1, 2, 0});
    c.args.page_table_stride = 2;
    c.args.token_count = c.place(std::vector<int32_t>{6});
    return {{1, 0}, {1, 1}, {1, 2}, {2, 1}, {2, 2}, {2, 3}, {}};
  }

  std::string go(const AppendForm& form, const AppendMutant& mutant, bool with_fault,
                 const AppendCase& c, const splitkv_binding& binding,
                 const splitkv_append_args& args) {
    Problem problem = c.problem();
    problem.checked = Checked::off;
    const Result<Target> target = platform_->target_of(device_);
    if (!target) return target.error().message;
    PreparedAppend prepared;
    prepared.append = append_of(problem, DType::fp32, *append_places_from_name(form.places));
    prepared.target = *target;
    prepared.binding_id = binding.kernel_id;
    KernelSource source = emit_append(prepared.append, *target);
    if (with_fault) {
      const Outcome planted = testing_support::plant(source, mutant.from, mutant.to);
      if (!planted) return planted.error().message;
    }
    const Result<Loaded> loaded = platform_->load(
        {.device = device_, .target = *target, .source = source, .split_smem_bytes = 0});
    if (!loaded) return loaded.error().message;
    const Result<AppendArgs> launch = make_append(prepared, binding, args);
    if (!launch) return launch.error().message;
    const int64_t blocks = append_blocks(prepared.append, args.tokens);
    const Outcome ran = loaded->code->append(*launch, blocks, nullptr);
    return ran ? "" : ran.error().message;
  }

  std::string device_;
  Services services_{RuntimeOptions{}};
  std::unique_ptr<Platform> platform_;
};

void expect_all_caught(const std::string& device, std::span<const AppendMutant> mutants) {
  Planted planted(device);
  for (const AppendMutant& mutant : mutants) {
    SCOPED_TRACE(mutant.name);
    EXPECT_EQ(planted.differences(mutant, false), "") << "wrong without a planted fault";
    const std::string noticed = planted.differences(mutant, true);
    EXPECT_NE(noticed, "") << "not caught";
    std::printf("  %s  append  %s\n", noticed.empty() ? "MISSED" : "caught", mutant.name);
    std::fflush(stdout);
  }
}

TEST(AppendMutation, EveryFaultOfCudaFitsOnePlaceOfTheEmittedSource) {
  const Target target = *parse_target("cuda:sm_90a");
  for (const AppendMutant& mutant : cuda_mutants) {
    Problem problem = *parse_problem(mutant.problem);
    problem.checked = Checked::off;
    KernelSource source = emit_append(
        append_of(problem, DType::fp32, *append_places_from_name(mutant.places)), target);
    const Outcome planted = testing_support::plant(source, mutant.from, mutant.to);
    EXPECT_TRUE(planted.ok()) << mutant.name << ": " << planted.error().message;
  }
}

TEST(AppendMutation, EveryFaultPlantedInLlvmIrIsCaught) {
#ifndef SPLITKV_HAS_CPU
  GTEST_SKIP() << "built without the CPU target";
#else
  expect_all_caught("cpu:x86-64-v2", llvm_mutants);
#endif
}

TEST(AppendMutation, EveryFaultPlantedInCudaSourceIsCaught) {
  const std::string device = testing_support::test_device();
  if (device.rfind("cuda", 0) != 0) GTEST_SKIP() << "SPLITKV_TEST_DEVICE names no GPU";
  expect_all_caught(device, cuda_mutants);
}

}  // namespace
}  // namespace splitkv
