#include "compiler/text.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "compiler/score.hpp"
#include "compiler/text_expr.hpp"
#include "tests/unit/random_values.hpp"

namespace splitkv {
namespace {

using namespace testing_support;

TEST(Text, EveryProblemReadsBackAsItself) {
  Engine engine(1);
  for (int i = 0; i < 5000; ++i) {
    const Problem problem = random_problem(engine);
    const std::string text = print(problem);
    const Result<Problem> again = parse_problem(text);
    ASSERT_TRUE(again.ok()) << text << "\n" << again.error().message;
    ASSERT_EQ(*again, problem) << text;
    ASSERT_EQ(print(*again), text);
  }
}

TEST(Text, EveryScheduleReadsBackAsItselfWhateverTheBase) {
  Engine engine(2);
  for (int i = 0; i < 5000; ++i) {
    const Schedule schedule = any_schedule(engine);
    const std::string text = print(schedule);
    const Result<Schedule> again = parse_schedule(text);
    ASSERT_TRUE(again.ok()) << text << "\n" << again.error().message;
    ASSERT_EQ(*again, schedule) << text;
    const Result<Schedule> over_another = parse_schedule(text, any_schedule(engine));
    ASSERT_TRUE(over_another.ok());
    ASSERT_EQ(*over_another, schedule) << text;
  }
}

TEST(Text, EveryDoubleReadsBackBitForBit) {
  Engine engine(3);
  for (int i = 0; i < 5000; ++i) {
    const double value = std::bit_cast<double>(engine());
    if (std::isnan(value)) continue;
    Problem problem;
    problem.scale = value;
    problem.softcap = -value;
    const Result<Problem> again = parse_problem(print(problem));
    ASSERT_TRUE(again.ok()) << print(problem);
    ASSERT_EQ(*again, problem) << print(problem);
  }
}

TEST(Text, PrintsWordsInOneOrderWithoutDefaults) {
  const auto canonical = [](std::string_view text) { return print(parse_problem(text).value()); };
  EXPECT_EQ(canonical("dim=128 heads=32/8 q=bf16"), "attention q=bf16 kv=bf16 heads=32/8 dim=128");
  EXPECT_EQ(canonical("attention  align=16 merge=auto lse=none deterministic=off dim=64/64 "
                      "kv_layout=bhtd window=0 softcap=0 query_len=1 heads=4/4 out=fp16 q=fp16"),
            "attention q=fp16 kv=fp16 heads=4 dim=64");
  EXPECT_EQ(
      canonical("align=4 deterministic=on merge=lse lse=base2 window=9 softcap=30.5 scale=0.1 "
                "kv_layout=paged:16:hnd dim=192/128 heads=16/1 out=fp32 v=bf16 k=fp16 q=fp32"),
      "attention q=fp32 k=fp16 v=bf16 heads=16/1 dim=192/128 kv_layout=paged:16:hnd scale=0.1 "
      "softcap=30.5 window=9 lse=base2 merge=lse deterministic=on align=4");
  EXPECT_EQ(print(parse_schedule("rows=2").value()),
            "schedule family=simt tile=64 rows=2 partition=fixed splits=1");
  EXPECT_EQ(
      print(parse_schedule("blocks=7 merge=mlo reduce=last_block unroll=8").value()),
      "schedule family=simt tile=64 rows=4 unroll=8 partition=flat blocks=7 reduce=last_block "
      "merge=mlo");
}

TEST(Text, EveryWordHasItsPlace) {
  const std::string text =
      "attention q=bf16 k=e4m3 v=int8 out=partial heads=16/1 dim=576/512 q_rope=64 query_len=4 "
      "kv_layout=paged:16:nhd page_tables=separate k_scale=token v_scale=inline scale=0.1 "
      "softcap=30 alibi=on bias=fp16 params=a:scalar,b_2:head,c:row score=score+a*b_2 mask=tree "
      "window=9 chunk=64 where=key_pos<c positions=strided lse=base2 merge=lse deterministic=on "
      "align=4 checked=on";
  const Problem problem = parse_problem(text).value();
  EXPECT_EQ(print(problem), text);
  EXPECT_EQ(problem.out_dtype, DType::fp32);
  EXPECT_EQ(problem.params[1], (Param{"b_2", ParamScope::head}));
  const std::string mla =
      "attention q=bf16 kv=bf16 heads=16/1 dim=576/512 v_in_k=on kv_scale=head mask=none sink=on";
  EXPECT_EQ(print(parse_problem(mla).value()), mla);
  const std::string mma =
      "schedule family=mma tile=64 rows=4 unroll=1 stages=3 partition=fixed splits=1";
  EXPECT_EQ(print(parse_schedule(mma).value()), mma);
  const std::string tensor =
      "schedule family=mma tile=64 rows=4 unroll=1 stages=3 loads=tensor partition=fixed splits=1";
  EXPECT_EQ(print(parse_schedule(tensor).value()), tensor);
  EXPECT_EQ(parse_schedule(mma + " loads=copy").value(), parse_schedule(mma).value());
  const std::string cluster =
      "schedule family=simt tile=32 rows=2 warps=8 unroll=2 partition=strided splits=8 "
      "reduce=cluster cluster=4 partials=bf16 merge=lse pdl=on";
  const Schedule schedule = parse_schedule(cluster).value();
  EXPECT_EQ(print(schedule), cluster);
  EXPECT_EQ(schedule.reduce, Reduce::cluster);
  EXPECT_EQ(schedule.cluster, 4);
  EXPECT_EQ(schedule.partial_dtype, DType::bf16);
  EXPECT_TRUE(schedule.pdl);
  EXPECT_EQ(parse_schedule("cluster=1 partials=fp32 pdl=off").value(), Schedule{});
}

TEST(Text, ExpressionsMayUseNamesThatLaterWordsGive) {
  EXPECT_EQ(print(parse_problem("score=score*a params=a:head q=bf16 heads=2 dim=64").value()),
            "attention q=bf16 kv=bf16 heads=2 dim=64 params=a:head score=score*a");
}

TEST(Text, ExpressionsPrintWithTheFewestParenthesesInOneSpelling) {
  const std::vector<Param> params = {{"slope", ParamScope::head}};
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"((score))", "score"},
      {"score-(1-head)", "score-(1-head)"},
      {"(score-1)-head", "score-1-head"},
      {"score*(1+slope)", "score*(1+slope)"},
      {"(score*2)+slope", "score*2+slope"},
      {"score>1", "1<score"},
      {"score>=1", "1<=score"},
      {"!(score==1)", "score!=1"},
      {"!score==1", "!score==1"},
      {"!(score!=1)", "!(score!=1)"},
      {"-(2)", "-2"},
      {"--2", "2"},
      {"-2*score", "-2*score"},
      {"-(score*2)", "-(score*2)"},
      {"score--2", "score--2"},
      {"score-(-slope)", "score--slope"},
      {"(1<2)<3", "1<2<3"},
      {"1<(2<3)", "1<(2<3)"},
      {"head&&(batch||kv_len)", "head&&(batch||kv_len)"},
      {"(head&&batch)||kv_len", "head&&batch||kv_len"},
      {"(key_pos//3)*3", "key_pos//3*3"},
      {"key_pos//(3*3)", "key_pos//(3*3)"},
      {"key_pos%7/2", "key_pos%7/2"},
      {"select((score<0),min(score,1),max(abs(score),0.50))",
       "select(score<0,min(score,1),max(abs(score),0.5))"},
      {"sigmoid(tanh(exp(log(1e-3))))", "sigmoid(tanh(exp(log(0.001))))"},
      {"1e20+1E+2", "1e+20+100"},
  };
  for (const auto& [text, canonical] : cases) {
    const Result<ScoreExpr> parsed = parse_expression(text, params, true);
    ASSERT_TRUE(parsed.ok()) << text << ": " << parsed.error().message;
    EXPECT_EQ(print_expression(*parsed, params), canonical);
    EXPECT_EQ(parse_expression(canonical, params, true).value(), *parsed) << text;
  }
}

TEST(Text, ExpressionsHaveThePrecedenceOfC) {
  const auto value = [](const char* text) {
    return evaluate(parse_expression(text, {}, false).value(), {});
  };
  EXPECT_EQ(value("1+2*3-4/2"), 5);
  EXPECT_EQ(value("10-3-2"), 5);
  EXPECT_EQ(value("1||0&&0"), 1);
  EXPECT_EQ(value("1==2<3"), 1);
  EXPECT_EQ(value("-7//2"), -4);
  EXPECT_EQ(value("-7%4"), 1);
  EXPECT_EQ(value("!0+1"), 2);
  EXPECT_EQ(value("select(2>1,3,4)"), 3);
}

TEST(Text, TypesOfKVAndOutFollowQUnlessNamed) {
  const Problem problem = parse_problem("q=fp16 heads=2 dim=64").value();
  EXPECT_EQ(problem.k_dtype, DType::fp16);
  EXPECT_EQ(problem.v_dtype, DType::fp16);
  EXPECT_EQ(problem.out_dtype, DType::fp16);
  const Problem mixed = parse_problem("out=fp32 kv=bf16 q=fp16 heads=2 dim=64").value();
  EXPECT_EQ(mixed.k_dtype, DType::bf16);
  EXPECT_EQ(mixed.v_dtype, DType::bf16);
  EXPECT_EQ(mixed.out_dtype, DType::fp32);
}

TEST(Text, SomeWordsOfAScheduleKeepTheRestOfTheBase) {
  Schedule base;
  base.warps = 8;
  base.splits = 3;
  Schedule expected = base;
  expected.splits = 7;
  EXPECT_EQ(parse_schedule("splits=7", base).value(), expected);
  expected = base;
  expected.partition = Partition::strided;
  EXPECT_EQ(parse_schedule("partition=strided", base).value(), expected);
  EXPECT_EQ(parse_schedule("", base).value(), base);
}

TEST(Text, AnotherFamilyBringsWhatItNeedsUnlessTheTextSaysIt) {
  const Schedule mma = parse_schedule("family=mma tile=128").value();
  EXPECT_EQ(mma.unroll, 1);
  EXPECT_EQ(mma.stages, 2);
  EXPECT_EQ(parse_schedule("family=mma unroll=4 stages=1").value().unroll, 4);
  EXPECT_EQ(parse_schedule("family=mma unroll=4 stages=1").value().stages, 1);
  const Schedule simt = parse_schedule("family=simt", mma).value();
  EXPECT_EQ(simt.unroll, 4);
  EXPECT_EQ(simt.stages, 1);
  EXPECT_EQ(simt.tile_kv, 128);
  EXPECT_EQ(parse_schedule("family=vector", mma).value().warps, 1);
  const Schedule wgmma = parse_schedule("family=wgmma", mma).value();
  EXPECT_EQ(print(wgmma),
            "schedule family=wgmma tile=64 rows=4 warps=8 unroll=1 stages=2 loads=tensor "
            "partition=fixed splits=1");
  EXPECT_EQ(parse_schedule("family=wgmma tile=128 loads=copy", mma).value().loads, Loads::copy);
  EXPECT_EQ(print(parse_schedule("family=mma", wgmma).value()),
            "schedule family=mma tile=64 rows=4 unroll=1 stages=2 partition=fixed splits=1");
  EXPECT_EQ(parse_schedule("family=mma splits=2", mma).value().stages, 2);
}

TEST(Text, AWordOfTheOtherPartitionChangesThePartitionAndDropsWhatWasItsOwn) {
  Schedule flat;
  flat.partition = Partition::flat;
  flat.blocks = 64;
  Schedule fixed;
  fixed.splits = 7;
  EXPECT_EQ(parse_schedule("splits=7", flat).value(), fixed);
  EXPECT_EQ(parse_schedule("blocks=64", fixed).value(), flat);
  EXPECT_EQ(parse_schedule("partition=flat blocks=64", fixed).value(), flat);
  EXPECT_EQ(parse_schedule("partition=fixed splits=7", flat).value(), fixed);
}

TEST(Text, AWordOfClustersBringsOrEndsThem) {
  Schedule fixed;
  fixed.splits = 8;
  fixed.reduce = Reduce::last_block;
  Schedule clusters = fixed;
  clusters.reduce = Reduce::cluster;
  clusters.cluster = 4;
  EXPECT_EQ(parse_schedule("cluster=4", fixed).value(), clusters);
  EXPECT_EQ(parse_schedule("reduce=cluster cluster=4", fixed).value(), clusters);
  EXPECT_EQ(parse_schedule("reduce=cluster", clusters).value(), clusters);
  EXPECT_EQ(parse_schedule("splits=8", clusters).value(), clusters);
  EXPECT_EQ(parse_schedule("cluster=1", clusters).value(), fixed);
  EXPECT_EQ(parse_schedule("cluster=1", fixed).value(), fixed);
  EXPECT_EQ(parse_schedule("reduce=last_block", clusters).value(), fixed);
  Schedule flat = fixed;
  flat.partition = Partition::flat;
  flat.splits = 1;
  flat.blocks = 64;
  EXPECT_EQ(parse_schedule("blocks=64", clusters).value(), flat);
  // What the text says itself stays, for the verifier to refuse.
  EXPECT_EQ(parse_schedule("blocks=64 cluster=2", clusters).value().cluster, 2);
  EXPECT_EQ(parse_schedule("reduce=kernel cluster=2", clusters).value().cluster, 2);
}

}  // namespace
}  // namespace splitkv
