// The emulated device computes, and can fail: what a kernel does wrong is reported by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "tests/emulator/kernel_case.hpp"

namespace splitkv {
namespace {

using testing::HasSubstr;
using testing_support::Ran;
using testing_support::run;

// Copies 16 bytes of `in` to shared memory and reads them; `wait` stands between.
std::string copying(const std::string& wait) {
  return R"(  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, 16;" ::"r"(place + 16 * i),
               "l"(in) : "memory");
  asm volatile("cp.async.commit_group;" ::: "memory");
)" + wait +
         "  out[i] = shared[4 * i];";
}

TEST(Emulator, LanesAndWarpsMeet) {
  const Ran ran = run({.body = R"(  float sum = float(i);
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
  if (i % 32 == 0) shared[i / 32] = sum;
  __syncthreads();
  out[i] = shared[0] + shared[1];)",
                       .threads = 64});
  EXPECT_EQ(ran.refusal, "");
  EXPECT_EQ(ran.out, std::vector<float>(64, 63 * 64 / 2));
}

TEST(Emulator, ACopyIsThereOnceItIsWaitedFor) {
  const Ran ran =
      run({.body = copying("  asm volatile(\"cp.async.wait_group 0;\" ::: \"memory\");\n"),
           .shared_floats = 128});
  EXPECT_EQ(ran.refusal, "");
  EXPECT_EQ(ran.out[7], 1.0f);
}

TEST(Emulator, ACopyThatNobodyWaitsForIsPoison) {
  for (const char* wait : {"", "  asm volatile(\"cp.async.wait_group 1;\" ::: \"memory\");\n"}) {
    const Ran ran = run({.body = copying(wait), .shared_floats = 128});
    EXPECT_EQ(ran.refusal, "");
    EXPECT_TRUE(std::isnan(ran.out[7])) << wait;
  }
}

TEST(Emulator, AStoreBeyondSharedMemoryIsReported) {
  const Ran ran = run({.body = R"(  asm volatile("st.shared.u32 [%0], %1;" ::"r"(place + 4 * i),
               "r"(0) : "memory");)",
                       .shared_floats = 31});
  EXPECT_THAT(ran.refusal, HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS"));
  EXPECT_THAT(ran.refusal, HasSubstr("st.shared.u32 of 4 bytes at byte 124 of 124 bytes"));
  EXPECT_THAT(ran.refusal, HasSubstr("by thread 31 of block 0"));
}

TEST(Emulator, PlainAccessesBeyondSharedMemoryAreReported) {
  EXPECT_THAT(run({.body = "  shared[4096 + i] = 0.0f;"}).refusal,
              HasSubstr("beyond the end of the shared memory of block 0"));
  EXPECT_THAT(run({.body = "  shared[64] = 0.0f;"}).refusal,
              HasSubstr("a write 0 bytes beyond the end of the shared memory of block 0"));
}

TEST(Emulator, AccessesOutsideAnAllocationAreReported) {
  EXPECT_THAT(run({.body = "  out[i] = in[100000 + i];"}).refusal,
              HasSubstr("an access 399744 bytes beyond the end of an allocation of 256 bytes"));
  EXPECT_THAT(run({.body = "  out[64 + i] = 0.0f;"}).refusal,
              HasSubstr("beyond the end of an allocation of 256 bytes"));
  EXPECT_THAT(run({.body = "  out[i - 1] = 0.0f;"}).refusal,
              HasSubstr("4 bytes before the beginning of an allocation of 256 bytes"));
}

TEST(Emulator, AccessesThatAreNotAlignedAreReported) {
  const Ran ran = run({.body = R"(  float x, y;
  asm volatile("ld.global.cg.v2.f32 {%0, %1}, [%2];" : "=f"(x), "=f"(y) : "l"(in + 1));
  out[i] = x + y;)"});
  EXPECT_THAT(ran.refusal, HasSubstr("CUDA_ERROR_MISALIGNED_ADDRESS"));
}

TEST(Emulator, ABarrierThatSomeNeverReachIsADeadlock) {
  const Ran ran = run({.body = "  if (i < 32) __syncthreads();", .threads = 64});
  EXPECT_THAT(ran.refusal, HasSubstr("CUDA_ERROR_LAUNCH_FAILED"));
  EXPECT_THAT(ran.refusal, HasSubstr("deadlock in small"));
  EXPECT_THAT(ran.refusal, HasSubstr("lanes ffffffff wait for barrier 0 of 64 threads"));
}

TEST(Emulator, LanesThatMeetInDifferentInstructionsAreReported) {
  const Ran ran = run({.body = R"(  if (i < 16) __syncwarp();
  else out[i] = __shfl_sync(0xffffffffu, 1.0f, 0);)"});
  EXPECT_THAT(ran.refusal, HasSubstr("lanes of a warp meet in"));
}

// Warps run one after another, every other launch from the last to the first.
TEST(Emulator, AMissingBarrierShowsInOneOfTwoOrders) {
  const testing_support::SmallKernel kernel = {
      .body = "  shared[i] = 1.0f;\n  __syncwarp();\n  out[i] = shared[63 - i];", .threads = 64};
  EXPECT_TRUE(std::isnan(run(kernel, 1).out[0]));
  EXPECT_TRUE(std::isnan(run(kernel, 2).out[63]));
}

TEST(Emulator, BytesThatNeverComeAreADeadlock) {
  const Ran ran = run({.body = R"(  if (i != 0) return;
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(place) : "memory");
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(place), "r"(64)
               : "memory");
  unsigned ended;
  asm volatile("{\n.reg .pred ended;\n"
               "mbarrier.try_wait.parity.shared::cta.b64 ended, [%1], %2;\n"
               "selp.u32 %0, 1, 0, ended;\n}" : "=r"(ended) : "r"(place), "r"(0) : "memory");)"});
  EXPECT_THAT(ran.refusal, HasSubstr("for which 0 arrivals and 64 bytes are missing"));
}

TEST(Emulator, ABarrierThatIsOverwrittenIsReported) {
  const Ran ran = run({.body = R"(  if (i != 0) return;
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(place) : "memory");
  shared[0] = 1.0f;
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(place) : "memory");)"});
  EXPECT_THAT(ran.refusal, HasSubstr("where an mbarrier was overwritten"));
}

TEST(Emulator, AnInstructionThatItDoesNotKnowIsRefusedByName) {
  const Ran ran = run({.body = "  if (i > 100) asm volatile(\"tanh.approx.f32 %0, %1;\" : "
                               "\"=f\"(out[0]) : \"f\"(in[0]));"});
  EXPECT_THAT(ran.refusal, HasSubstr("unknown instruction of PTX: tanh.approx.f32"));
}

TEST(Emulator, TheCompilersErrorsAreTheLog) {
  const Ran ran = run({.body = "  out[i] = missing_function(i);"});
  EXPECT_THAT(ran.refusal, HasSubstr("NVRTC_ERROR_COMPILATION"));
  EXPECT_THAT(ran.refusal, HasSubstr("missing_function"));
}

TEST(Emulator, AStackThatOverflowsIsReported) {
  const Ran ran = run({.body = R"(  volatile float large[40000];
  large[0] = in[0];
  out[i] = large[0];)"});
  EXPECT_THAT(ran.refusal, HasSubstr("beyond the stack of a thread"));
}

}  // namespace
}  // namespace splitkv
