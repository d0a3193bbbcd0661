// The reference's own evaluator of user expressions: values worked out by hand, and the library's
// parser and evaluator beside it on the same texts.
#include "tools/reference/expression.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>

#include "compiler/score.hpp"
#include "compiler/text.hpp"

namespace splitkv {
namespace {

double value(const std::string& text, std::vector<double> named = {7, -3, 0.5}) {
  return reference::Expression(text, {"a", "b", "c"}).evaluate(named);
}

TEST(ReferenceExpression, FollowsTheUsualPrecedence) {
  EXPECT_EQ(value("1+2*3"), 7);
  EXPECT_EQ(value("(1+2)*3"), 9);
  EXPECT_EQ(value("10-4-3"), 3);
  EXPECT_EQ(value("12/2/3"), 2);
  EXPECT_EQ(value("-a+b"), -10);
  EXPECT_EQ(value("2*-b"), 6);
  EXPECT_EQ(value("1+1==2"), 1);
  EXPECT_EQ(value("1<2==1"), 1);
  EXPECT_EQ(value("0&&0||1"), 1);
  EXPECT_EQ(value("1||0&&0"), 1);
  EXPECT_EQ(value("!0&&1"), 1);
  EXPECT_EQ(value("!(a<b)"), 1);
  EXPECT_EQ(value("1.5e2*c"), 75);
}

TEST(ReferenceExpression, DividesWholeNumbersDownwards) {
  EXPECT_EQ(value("a//2"), 3);
  EXPECT_EQ(value("b//2"), -2);
  EXPECT_EQ(value("b%2"), 1);
  EXPECT_EQ(value("b//3"), -1);
  EXPECT_EQ(value("b%3"), 0);
  EXPECT_EQ(value("-1//64"), -1);
  EXPECT_EQ(value("a%4*2"), 6);
  EXPECT_THROW(value("c//2"), std::invalid_argument);
}

TEST(ReferenceExpression, KnowsItsFunctions) {
  EXPECT_EQ(value("max(a,b)-min(a,b)"), 10);
  EXPECT_EQ(value("abs(b)"), 3);
  EXPECT_EQ(value("select(a>b,1,2)"), 1);
  EXPECT_EQ(value("select(a>b&&c>1,1,2)"), 2);
  EXPECT_DOUBLE_EQ(value("sigmoid(0)"), 0.5);
  EXPECT_DOUBLE_EQ(value("log(exp(c))"), 0.5);
  EXPECT_DOUBLE_EQ(value("tanh(c)"), std::tanh(0.5));
}

TEST(ReferenceExpression, RefusesWhatIsNone) {
  for (const char* text : {"", "1+", "(1", "d", "max(1)", "tanh(1,2)", "1 + 2", "a b",
                           "select(1,2)", "1)", "*a", "foo(1)"}) {
    EXPECT_THROW(value(text), std::invalid_argument) << text;
  }
}

// Two parsers and two evaluators, written apart: what they agree on is what the text says.
TEST(ReferenceExpression, AgreesWithTheLibraryOnTheSameText) {
  const char* const texts[] = {
      "score-abs(query_pos-key_pos)*slope",
      "score*2-1/(1+key_pos)",
      "min(score,10)+max(-score,0)/2",
      "tanh(score/20)*20+log(1+exp(-score))",
      "select(key_pos<4||query_pos-key_pos<=8&&head!=1,score,-1e4)",
      "score+select((query_pos//16)==(key_pos//16),0,-3)",
      "score-sigmoid(score)*((kv_len-key_pos)%7)",
      "-score*-2+-3*(score-(1-score))",
      "score+(batch+1)*head-key_pos%5//2",
      "select(!(key_pos>=query_pos),score,score-1)",
  };
  for (const char* text : texts) {
    const auto problem =
        parse_problem(std::string("q=fp32 heads=4 dim=16 params=slope:scalar score=") + text);
    ASSERT_TRUE(problem.ok()) << problem.error().message;
    const reference::Expression own(
        text, {"score", "query_pos", "key_pos", "kv_len", "head", "batch", "slope"});
    for (int i = 0; i < 200; ++i) {
      ScoreInputs inputs;
      inputs.score = 0.37 * (i % 23) - 4;
      inputs.query_pos = i % 41 - 5;
      inputs.key_pos = i * 7 % 50;
      inputs.kv_len = i % 41 + 1;
      inputs.q_head = i % 4;
      inputs.batch = i % 3;
      inputs.params = {0.25};
      const double expected =
          own.evaluate(std::vector<double>{inputs.score, inputs.query_pos, inputs.key_pos,
                                           inputs.kv_len, inputs.q_head, inputs.batch, 0.25});
      ASSERT_NEAR(evaluate(problem->score_mod, inputs), expected, 1e-9 * (1 + std::abs(expected)))
          << text << " at " << i;
    }
  }
}

}  // namespace
}  // namespace splitkv
