// Masks and the key intervals recognised in them, against the definitions key by key.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "compiler/score.hpp"
#include "compiler/text.hpp"
#include "compiler/text_expr.hpp"
#include "tests/unit/random_values.hpp"

namespace splitkv {
namespace {

using namespace testing_support;

double at(const ScoreExpr& expr, double query, double key, double length, bool tree = true) {
  ScoreInputs inputs;
  inputs.query_pos = query;
  inputs.key_pos = key;
  inputs.kv_len = length;
  inputs.q_head = 2;
  inputs.batch = 1;
  inputs.tree_visible = tree ? 1 : 0;
  inputs.params = std::vector<double>(kMaxParams + 1, 3);
  return evaluate(expr, inputs);
}

Problem with_predicate(const std::string& text) {
  Problem problem;
  problem.mask = Mask::none;
  problem.predicate = parse_expression(text, {}, false).value();
  return problem;
}

TEST(Mask, IsTheWordsOfTheProblemKeyByKey) {
  Engine engine(1);
  for (int i = 0; i < 500; ++i) {
    Problem problem;
    problem.mask = one_of<Mask>(engine, {Mask::causal, Mask::none, Mask::tree});
    if (coin(engine)) problem.window = between(engine, 1, 20);
    if (coin(engine)) problem.chunk = between(engine, 1, 20);
    problem.query_len = between(engine, 1, 5);
    const ScoreExpr mask = mask_of(problem);
    const int length = between(engine, 1, 40);
    for (int query = length - 5; query < length; ++query)
      for (int key = 0; key < length; ++key) {
        const bool tree = coin(engine);
        bool sees = problem.mask != Mask::causal || key <= query;
        if (problem.mask == Mask::tree) sees = tree;
        if (problem.window != 0) sees = sees && key > query - problem.window;
        const int chunk_start =
            problem.chunk == 0 ? key
                               : int(std::floor(double(query) / problem.chunk)) * problem.chunk;
        sees = sees && key >= chunk_start;
        ASSERT_EQ(at(mask, query, key, length, tree), sees ? 1 : 0) << print(problem);
      }
  }
}

// Comparisons that are recognised, that are not, and whatever random expressions hold.
ScoreExpr random_predicate(Engine& engine) {
  const std::vector<std::string> forms = {
      "key_pos<{c}",
      "query_pos-key_pos<{c}",
      "key_pos>=query_pos//{c}*{c}",
      "key_pos//{c}==query_pos//{c}",
      "key_pos<max(query_pos-{c},{d})",
      "kv_len-key_pos<={c}",
      "key_pos%2==0",
      "key_pos<{c}||query_pos-key_pos<{d}",
      "!(key_pos<min(kv_len,{c}))",
      "!(key_pos-query_pos<=-{c})",
      "-key_pos<={c}-query_pos",
      "key_pos+query_pos>{c}",
      "key_pos*2<query_pos",
      "key_pos//{c}*{c}<query_pos",
      "key_pos//{c}<=query_pos//{d}-1",
      "key_pos!={c}",
      "key_pos==query_pos-{c}",
      "head<{c}",
      "key_pos<query_pos*{c}+{d}",
      "key_pos>query_pos*-{c}+{d}",
      "key_pos<query_pos%{c}",
      "key_pos<{c}.5",
      "(key_pos<{c})+(key_pos>{d})",
      "key_pos",
  };
  std::string text;
  for (int i = between(engine, 1, 3); i > 0; --i) {
    std::string form = one_of(engine, forms);
    for (const char* name : {"{c}", "{d}"})
      for (size_t place; (place = form.find(name)) != std::string::npos;)
        form.replace(place, 3, std::to_string(between(engine, 1, 30)));
    text += text.empty() ? "" : "&&";
    text += form.find("||") != std::string::npos ? "(" + form + ")" : form;
  }
  if (between(engine, 0, 5) == 0) return random_user_expr(engine, {}, false);
  return parse_expression(text, {}, false).value();
}

Problem random_mask(Engine& engine) {
  Problem problem;
  problem.mask = one_of<Mask>(engine, {Mask::causal, Mask::none, Mask::tree});
  if (between(engine, 0, 2) == 0) problem.window = between(engine, 1, 30);
  if (between(engine, 0, 2) == 0) problem.chunk = between(engine, 1, 30);
  if (between(engine, 0, 3) != 0) problem.predicate = random_predicate(engine);
  return problem;
}

TEST(KeyInterval, OfOneQuerySaysWithTheMaskWithinItExactlyWhatTheMaskSays) {
  Engine engine(2);
  int cut = 0;
  for (int i = 0; i < 6000; ++i) {
    const Problem problem = random_mask(engine);
    const ScoreExpr mask = mask_of(problem), within = mask_within_interval_of(problem);
    const KeyInterval interval = key_interval_of(problem);
    const int length = between(engine, 1, 70);
    const double first = at(interval.first, length - 1, 0, length);
    const double end = at(interval.end, length - 1, 0, length);
    ASSERT_TRUE(first >= 0 && end <= length) << print(problem);
    cut += first > 0 || end < length;
    for (int key = 0; key < length; ++key) {
      const bool inside = key >= first && key < end;
      const bool sees = inside && at(within, length - 1, key, length) != 0;
      ASSERT_EQ(at(mask, length - 1, key, length), sees ? 1 : 0) << print(problem) << " " << key;
    }
  }
  EXPECT_GT(cut, 2000);
}

TEST(KeyInterval, OfSeveralQueriesHoldsEveryKeyThatAnyOfThemSees) {
  Engine engine(3);
  for (int i = 0; i < 4000; ++i) {
    Problem problem = random_mask(engine);
    problem.query_len = between(engine, 2, 6);
    const int length = between(engine, 1, 60), queries = between(engine, 1, problem.query_len);
    const KeyInterval interval = key_interval_of(problem);
    const double first = at(interval.first, length - queries, 0, length);
    const double end = at(interval.end, length - 1, 0, length);
    const ScoreExpr mask = mask_of(problem), within = mask_within_interval_of(problem);
    for (int query = length - queries; query < length; ++query)
      for (int key = 0; key < length; ++key) {
        const bool inside = key >= first && key < end;
        const bool sees = at(mask, query, key, length) != 0;
        ASSERT_TRUE(inside || !sees) << print(problem) << " " << query << " " << key;
        if (inside) {
          ASSERT_EQ(at(within, query, key, length) != 0, sees) << print(problem);
        }
      }
  }
}

TEST(KeyInterval, OfNoMaskIsTheWholeRow) {
  Problem problem;
  problem.mask = Mask::none;
  EXPECT_TRUE(is_constant(key_interval_of(problem).first, 0));
  EXPECT_EQ(at(key_interval_of(problem).end, 9, 0, 10), 10);
  EXPECT_TRUE(is_constant(mask_of(problem), 1));
  EXPECT_TRUE(is_constant(mask_within_interval_of(Problem{}), 1)) << "causality of one query";
}

TEST(KeyInterval, IsAllOfAConjunctionOfBounds) {
  for (const char* text :
       {"key_pos<100", "100<key_pos", "query_pos-key_pos<256", "key_pos>=query_pos-255",
        "key_pos//64==query_pos//64", "key_pos>=query_pos//8*8&&key_pos<=query_pos",
        "key_pos<kv_len-4", "!(key_pos<query_pos-7)", "key_pos>max(query_pos-9,3)",
        "key_pos<min(query_pos*2+5,kv_len)", "key_pos==query_pos", "1&&key_pos<5"}) {
    Problem problem = with_predicate(text);
    EXPECT_TRUE(is_constant(mask_within_interval_of(problem), 1)) << text;
    problem.query_len = 2;
    EXPECT_FALSE(is_constant(mask_within_interval_of(problem), 1)) << text;
  }
}

TEST(KeyInterval, LeavesInTheMaskWhatIsNoBoundThatRises) {
  for (const char* text :
       {"key_pos%2==0", "key_pos<4||query_pos-key_pos<8", "key_pos*2<query_pos",
        "key_pos+query_pos>9", "key_pos<query_pos/2", "key_pos!=3", "head<key_pos",
        "key_pos<query_pos%7", "key_pos<9.5", "key_pos<head*4"}) {
    const Problem problem = with_predicate(text);
    EXPECT_TRUE(is_constant(key_interval_of(problem).first, 0)) << text;
    EXPECT_EQ(at(key_interval_of(problem).end, 99, 0, 100), 100) << text;
    EXPECT_FALSE(is_constant(mask_within_interval_of(problem), 1)) << text;
  }
}

TEST(KeyInterval, OfWhatUsersWriteStaysWithinTheRow) {
  const Problem far =
      with_predicate("key_pos>query_pos*1000000&&key_pos<query_pos*1000-2000000000");
  const double length = 0x1p31 - 1;
  EXPECT_EQ(at(key_interval_of(far).first, length - 1, 0, length), length);
  EXPECT_GE(at(key_interval_of(far).end, 0, 0, 1), 0);
}

TEST(KeyInterval, AWindowReachesBackFromTheFirstQuery) {
  Problem problem;
  problem.window = 17;
  problem.query_len = 4;
  EXPECT_EQ(at(key_interval_of(problem).first, 96, 0, 100), 80);
  EXPECT_EQ(at(key_interval_of(problem).end, 99, 0, 100), 100);
  EXPECT_EQ(at(key_interval_of(problem).first, 5, 0, 100), 0);
  problem.window = 0;
  problem.chunk = 32;
  EXPECT_EQ(at(key_interval_of(problem).first, 70, 0, 100), 64);
}

}  // namespace
}  // namespace splitkv
