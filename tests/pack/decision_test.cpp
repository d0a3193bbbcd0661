// A decision as bytes: whole or refused, and only for what it was made for.
#include "runtime/decision.hpp"

#include <gtest/gtest.h>

#include "compiler/default_schedule.hpp"
#include "compiler/text.hpp"
#include "runtime/splitkv.h"

using namespace splitkv;

namespace {

const Problem kProblem = *parse_problem("attention q=bf16 kv=bf16 heads=32/8 dim=128");
const Target kTarget = *parse_target("cuda:sm_90a");

Decision made() {
  const ScheduleChoice choice = default_schedule(kProblem, {8, 8192}, kTarget);
  return {splitkv_version(), print(kProblem), decision_arch(kTarget), print(choice.schedule),
          choice.why};
}

Error refusal_of(const Decision& decision, const Problem& problem = kProblem,
                 const Target& target = kTarget) {
  const Result<Schedule> schedule = decided_schedule(decision, problem, target);
  return schedule ? Error{Status::ok, "taken"} : schedule.error();
}

void expect_says(const Error& error, const std::string& words) {
  EXPECT_NE(error.message.find(words), std::string::npos) << error.message;
}

TEST(DecisionBytes, AreReadAsTheyWereWritten) {
  const Result<Decision> read = decode_decision(encode_decision(made()));
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(*read, made());
  const Result<Schedule> schedule = decided_schedule(*read, kProblem, kTarget);
  ASSERT_TRUE(schedule.ok()) << schedule.error().message;
  EXPECT_EQ(print(*schedule), made().schedule);
}

TEST(DecisionBytes, CutOrChangedAnywhereAreRefused) {
  const std::string whole = encode_decision(made());
  for (size_t length = 0; length < whole.size(); ++length) {
    ASSERT_FALSE(decode_decision(whole.substr(0, length)).ok()) << length;
  }
  for (size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    std::string turned = whole;
    turned[bit / 8] = char(turned[bit / 8] ^ (1 << bit % 8));
    ASSERT_FALSE(decode_decision(turned).ok()) << "bit " << bit;
  }
  EXPECT_FALSE(decode_decision(whole + "x").ok());
  EXPECT_EQ(decode_decision("").error().status, Status::invalid_argument);
}

TEST(DecisionBytes, WithReasonsOfSeveralLinesStayWhole) {
  Decision decision = made();
  decision.why = "one\nsum=two";
  const Result<Decision> read = decode_decision(encode_decision(decision));
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->why, "one sum=two");
}

TEST(ADecision, IsRefusedForAnotherProblemArchitectureOrVersion) {
  EXPECT_EQ(refusal_of(made()).status, Status::ok);
  const Problem other = *parse_problem("attention q=bf16 kv=bf16 heads=32/8 dim=64");
  const Error problem = refusal_of(made(), other);
  EXPECT_EQ(problem.status, Status::invalid_argument);
  expect_says(problem, "problem=" + print(kProblem));
  expect_says(problem, "problem=" + print(other));
  const Error arch = refusal_of(made(), kProblem, *parse_target("cuda:sm_80"));
  EXPECT_EQ(arch.status, Status::invalid_argument);
  expect_says(arch, "arch=cuda:sm_90a, and here it is arch=cuda:sm_80");
  Decision old = made();
  old.version = "0.0.1";
  const Error version = refusal_of(old);
  EXPECT_EQ(version.status, Status::invalid_argument);
  expect_says(version, std::string("splitkv=0.0.1, and here it is splitkv=") + splitkv_version());
}

// The size of the machine does not matter: all ranks of one architecture use the schedule.
TEST(ADecision, IsTakenOnADeviceOfAnotherSize) {
  Target smaller = kTarget;
  smaller.sm_count = 66;
  smaller.l2_bytes /= 2;
  EXPECT_EQ(refusal_of(made(), kProblem, smaller).status, Status::ok);
}

TEST(ADecision, IsHeldAgainstTheRules) {
  Decision decision = made();
  decision.schedule = "schedule family=simt tile=64 rows=4 warps=4096 partition=fixed splits=2";
  EXPECT_NE(refusal_of(decision).status, Status::ok);
  decision.schedule = "gibberish";
  EXPECT_EQ(refusal_of(decision).status, Status::invalid_argument);
}

}  // namespace
