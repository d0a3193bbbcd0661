// One tiny case for each way in which a text fails to parse. The message names the word, its value
// and what would work.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "compiler/target.hpp"
#include "compiler/text.hpp"

namespace splitkv {
namespace {

struct Case {
  std::string text;
  std::string message;
};

TEST(ParseErrors, OfAProblem) {
  const std::vector<Case> cases = {
      {"", "q=: the word is missing; q=bf16 would work"},
      {"attention kv=bf16 heads=1 dim=64", "q=: the word is missing; q=bf16 would work"},
      {"q=bf16 dim=64", "heads=: the word is missing; heads=32/8 would work"},
      {"q=bf16 heads=1", "dim=: the word is missing; dim=128 would work"},
      {"q=bf16 hedas=1 dim=64", "hedas=1: attention has no word \"hedas\"; the closest is heads="},
      {"q=bf16 heads=1 dim=64 windw=4",
       "windw=4: attention has no word \"windw\"; the closest is window="},
      {"q=bf16 heads=1 dim=64 splitkv",
       "splitkv: attention has no word \"splitkv\"; the closest is sink="},
      {"q=bf16 heads=1 dim",
       "dim: the word has no value; D (dim=128), QK/V (dim=192/128) would work"},
      {"q=bf16 heads=1 dim=64 dim=64", "dim=64: the word is given twice; one dim= would work"},
      {"q=float32 heads=1 dim=64",
       "q=float32: the value is not understood; fp32, fp16, bf16 would work"},
      {"q=BF16 heads=1 dim=64", "q=BF16: the value is not understood; fp32, fp16, bf16 would work"},
      {"q=bf16 heads=8/ dim=64",
       "heads=8/: the value is not understood; Q/KV (heads=32/8), N (heads=32) would work"},
      {"q=bf16 heads=1/2/3 dim=64",
       "heads=1/2/3: the value is not understood; Q/KV (heads=32/8), N (heads=32) would work"},
      {"q=bf16 heads=1 dim=",
       "dim=: the value is not understood; D (dim=128), QK/V (dim=192/128) would work"},
      {"q=bf16 heads=1 dim=64x",
       "dim=64x: the value is not understood; D (dim=128), QK/V (dim=192/128) would work"},
      {"q=bf16 heads=1 dim=99999999999",
       "dim=99999999999: the value is not understood; D (dim=128), QK/V (dim=192/128) would work"},
      {"q=bf16 heads=1 dim=64 scale=fast",
       "scale=fast: the value is not understood; a number (scale=0.125) would work"},
      {"q=bf16 heads=1 dim=64 scale=1e999",
       "scale=1e999: the value is not understood; a number (scale=0.125) would work"},
      {"q=bf16 heads=1 dim=64 window=4.5",
       "window=4.5: the value is not understood; a whole number of keys (window=4096) would work"},
      {"q=bf16 heads=1 dim=64 kv_layout=paged",
       "kv_layout=paged: the value is not understood; bhtd, bthd, paged:P:nhd, paged:P:hnd "
       "(kv_layout=paged:16:nhd) would work"},
      {"q=bf16 heads=1 dim=64 kv_layout=paged:16",
       "kv_layout=paged:16: the value is not understood; bhtd, bthd, paged:P:nhd, paged:P:hnd "
       "(kv_layout=paged:16:nhd) would work"},
      {"q=bf16 heads=1 dim=64 kv_layout=paged:x:nhd",
       "kv_layout=paged:x:nhd: the value is not understood; bhtd, bthd, paged:P:nhd, paged:P:hnd "
       "(kv_layout=paged:16:nhd) would work"},
      {"q=bf16 heads=1 dim=64 lse=base10",
       "lse=base10: the value is not understood; none, natural, base2 would work"},
      {"q=bf16 heads=1 dim=64 merge=best",
       "merge=best: the value is not understood; auto, mlo, lse would work"},
      {"q=bf16 heads=1 dim=64 deterministic=yes",
       "deterministic=yes: the value is not understood; on, off would work"},
      {"q=bf16 kv=bf16 v=fp16 heads=1 dim=64",
       "v=: kv= already names this type; kv= alone, or k= and v=, would work"},
      {"q=bf16 kv=fp4 heads=1 dim=64",
       "kv=fp4: the value is not understood; fp32, fp16, bf16, e4m3, e5m2, int8 would work"},
      {"q=bf16 out=all heads=1 dim=64",
       "out=all: the value is not understood; fp32, fp16, bf16, partial would work"},
      {"q=bf16 heads=1 dim=64 kv_scale=token v_scale=head",
       "v_scale=: kv_scale= already names this scale; kv_scale= alone, or k_scale= and v_scale=, "
       "would work"},
      {"q=bf16 heads=1 dim=64 params=a",
       "params=a: the value is not understood; NAME:scalar, NAME:head, NAME:row, several with "
       "commas (params=slope:head) would work"},
      {"q=bf16 heads=1 dim=64 params=a:head,",
       "params=a:head,: the value is not understood; NAME:scalar, NAME:head, NAME:row, several "
       "with commas (params=slope:head) would work"},
      {"q=bf16 heads=1 dim=64 score=",
       "score=: the value is not understood; an expression (score=score+slope*key_pos) would work"},
      {"q=bf16 heads=1 dim=64 mask=full",
       "mask=full: the value is not understood; causal, none, tree would work"},
      {"q=bf16 k=bf16 heads=1 dim=64",
       "v=: the word is missing; kv= alone, or k= and v=, would work"},
  };
  for (const Case& c : cases) {
    const Result<Problem> parsed = parse_problem(c.text);
    ASSERT_FALSE(parsed.ok()) << c.text;
    EXPECT_EQ(parsed.error().status, Status::invalid_argument);
    EXPECT_EQ(parsed.error().message, c.message);
  }
}

TEST(ParseErrors, OfAnExpressionNameTheCharacter) {
  const std::string nested(200, '(');
  std::string sum = "1";
  for (int i = 0; i < 200; ++i) sum += "+1";
  const std::vector<Case> cases = {
      {"score=score+", "character 7: an operand is missing; a number, a name or ( would work"},
      {"score=*2", "character 1: an operand is missing; a number, a name or ( would work"},
      {"score=score#2",
       "character 6: what follows is not understood; an operator such as + or && would work"},
      {"score=(score", "character 7: the parenthesis is not closed; ) would work"},
      {"score=score)",
       "character 6: what follows is not understood; an operator such as + or && "
       "would work"},
      {"score=scores*2",
       "character 1: the name \"scores\" means nothing here; score, query_pos, key_pos, kv_len, "
       "head, batch, bet, or a name given by params= would work"},
      {"where=score>2",
       "character 1: the name \"score\" means nothing here; query_pos, key_pos, kv_len, head, "
       "batch, bet, or a name given by params= would work"},
      {"where=tanh", "character 5: tanh is a function; tanh( would work"},
      {"where=min(head)", "character 9: min takes 2 operands; a comma and the next one would work"},
      {"where=abs(head,1)", "character 9: abs takes 1 operand(s); ) would work"},
      {"where=select(1,2)",
       "character 11: select takes 3 operands; a comma and the next one would work"},
      {"where=1e999<key_pos", "character 1: the number is not understood; 0.5 or 1e-3 would work"},
      {"where=.<key_pos", "character 1: the number is not understood; 0.5 or 1e-3 would work"},
      {"where=2key_pos",
       "character 2: what follows is not understood; an operator such as + or && would work"},
      {"where=key_pos=3",
       "character 8: what follows is not understood; an operator such as + or && would work"},
      {"where=" + nested,
       "character 101: operations are nested more than 100 deep; fewer parentheses would work"},
      {"where=" + sum,
       "character 258: the expression has more than 256 numbers, names and "
       "operators; a shorter one would work"},
  };
  for (const Case& c : cases) {
    const Result<Problem> parsed = parse_problem("q=bf16 heads=1 dim=64 params=bet:row " + c.text);
    ASSERT_FALSE(parsed.ok()) << c.text;
    EXPECT_EQ(parsed.error().status, Status::invalid_argument);
    EXPECT_EQ(parsed.error().message, c.text + ": " + c.message);
  }
}

TEST(ParseErrors, OfASchedule) {
  const std::vector<Case> cases = {
      {"schedule tiel=64", "tiel=64: schedule has no word \"tiel\"; the closest is tile="},
      {"family=wmma",
       "family=wmma: the value is not understood; simt, mma, wgmma, vector would work"},
      {"tile=big",
       "tile=big: the value is not understood; a whole number of keys (tile=64) would work"},
      {"partition=even",
       "partition=even: the value is not understood; fixed, flat, strided would work"},
      {"reduce=tree",
       "reduce=tree: the value is not understood; kernel, last_block, cluster would work"},
      {"cluster=two",
       "cluster=two: the value is not understood; a whole number of blocks (cluster=4) would work"},
      {"partials=fp16", "partials=fp16: the value is not understood; fp32, bf16 would work"},
      {"pdl=yes", "pdl=yes: the value is not understood; on, off would work"},
      {"splits=7 splits=8", "splits=8: the word is given twice; one splits= would work"},
      {"splits", "splits: the word has no value; a whole number (splits=7) would work"},
      {"attention splits=7",
       "attention: schedule has no word \"attention\"; the closest is partition="},
  };
  for (const Case& c : cases) {
    const Result<Schedule> parsed = parse_schedule(c.text);
    ASSERT_FALSE(parsed.ok()) << c.text;
    EXPECT_EQ(parsed.error().status, Status::invalid_argument);
    EXPECT_EQ(parsed.error().message, c.message);
  }
}

TEST(ParseErrors, OfATarget) {
  const std::vector<Case> cases = {
      {"cuda:sm_75", "cuda:sm_80, cuda:sm_86, cuda:sm_89, cuda:sm_90a"},
      {"cuda:", "cuda:sm_80"},
      {"cuda", "cuda:ARCH (cuda:sm_90a) or cpu:NAME (cpu:x86-64-v3) would work"},
      {"tpu:v5", "cuda:ARCH (cuda:sm_90a) or cpu:NAME (cpu:x86-64-v3) would work"},
      {"", "cuda:ARCH (cuda:sm_90a) or cpu:NAME (cpu:x86-64-v3) would work"},
      {"cpu", "cpu:x86-64-v3 or cpu:host:256 would work"},
      {"cpu:", "cpu:x86-64-v3 would work"},
      {"cpu:zen9", "cpu:zen9:256 would work"},
      {"cpu:x86-64-v3:100", "cpu:x86-64-v3:128, :256 or :512 would work"},
      {"cpu:x86-64-v3:", "cpu:x86-64-v3:128, :256 or :512 would work"},
  };
  for (const Case& c : cases) {
    const Result<Target> parsed = parse_target(c.text);
    ASSERT_FALSE(parsed.ok()) << c.text;
    EXPECT_EQ(parsed.error().status, Status::invalid_argument);
    EXPECT_TRUE(parsed.error().message.starts_with("target=" + c.text.substr(0, 3)))
        << parsed.error().message;
    EXPECT_NE(parsed.error().message.find(c.message), std::string::npos) << parsed.error().message;
  }
}

}  // namespace
}  // namespace splitkv
