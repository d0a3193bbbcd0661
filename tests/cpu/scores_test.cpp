// What happens to scores: ALiBi, bias, expressions and predicates of the user, sinks; and outputs
// that are partials.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/cpu/kernel_case.hpp"

namespace splitkv::test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

const char* const kSchedules[] = {
    "schedule family=vector tile=16 rows=3 warps=1 partition=fixed splits=1",
    "schedule family=vector tile=16 rows=2 warps=1 partition=fixed splits=7 reduce=last_block "
    "merge=lse",
    "schedule family=vector tile=16 rows=4 warps=1 partition=strided splits=3 merge=mlo",
    "schedule family=vector tile=16 rows=3 warps=1 partition=flat blocks=13 merge=lse",
};

void expect_right_in_all(KernelCase test) {
  for (const char* types : {" q=fp32 kv=fp32", " q=bf16 kv=bf16"}) {
    KernelCase typed = test;
    typed.problem = "attention heads=4/2 dim=24" + std::string(types) + " " + test.problem;
    for (const char* schedule : kSchedules) {
      typed.schedule = schedule;
      expect_right(typed);
    }
  }
}

TEST(CpuScores, AlibiAndBias) {
  for (const char* words : {"alibi=on", "bias=fp32", "bias=fp16", "alibi=on bias=fp32 softcap=2",
                            "bias=fp16 window=20", "bias=fp32 query_len=3 mask=none"}) {
    expect_right_in_all({std::string("lse=natural ") + words, ""});
  }
}

TEST(CpuScores, ExpressionsOfTheUser) {
  KernelCase test{"lse=base2 params=a:scalar,b:head,c:row score=a*tanh(score*b)+c*(head-batch)",
                  ""};
  test.score = [](double score, const Pair& at) {
    return at.params[0] * std::tanh(score * at.params[1]) + at.params[2] * (at.head - at.batch);
  };
  expect_right_in_all(test);
  test.problem = "lse=natural score=select(key_pos%3==1,sigmoid(score),-log(1+exp(min(score,9))))";
  test.score = [](double score, const Pair& at) {
    return at.key_pos % 3 == 1 ? 1 / (1 + std::exp(-score)) : -std::log(1 + std::exp(score));
  };
  expect_right_in_all(test);
  test.problem = "lse=natural score=score+(query_pos-key_pos)//5*0.125-max(abs(score),0.5)";
  test.score = [](double score, const Pair& at) {
    return score + double((at.query_pos - at.key_pos) / 5) * 0.125 - std::max(std::abs(score), 0.5);
  };
  expect_right_in_all(test);
  test.problem = "lse=natural alibi=on params=t:head score=score/t+kv_len*0.001";
  test.score = [](double score, const Pair& at) {
    return score / at.params[0] + double(at.kv_len) * 0.001;
  };
  expect_right_in_all(test);
}

// An fp32 function is wrong by 2^-24 of its value: beside factors like these, by more than fp32's
// accuracy contract of 1e-5.
TEST(CpuScores, OfAllFp32HaveFunctionsOfFp64) {
  struct Magnified {
    const char* words;
    std::function<double(double)> score;
  };
  const Magnified cases[] = {
      {"score=30000*tanh(score+1)", [](double s) { return 30000 * std::tanh(s + 1); }},
      {"score=8000*exp(score)", [](double s) { return 8000 * std::exp(s); }},
      {"score=20000*log(3+score*score)", [](double s) { return 20000 * std::log(3 + s * s); }},
      {"score=40000*sigmoid(score)", [](double s) { return 40000 / (1 + std::exp(-s)); }},
  };
  for (const Magnified& magnified : cases) {
    KernelCase test{
        std::string("attention q=fp32 kv=fp32 heads=4/2 dim=24 lse=natural ") + magnified.words,
        kSchedules[2]};
    test.score = [&](double score, const Pair&) { return magnified.score(score); };
    test.q_size = 0.002;  // scores so close that many keys have weight
    SCOPED_TRACE(magnified.words);
    expect_right(test);
  }
}

TEST(CpuScores, PredicatesOfTheUser) {
  KernelCase test{"lse=natural query_len=3 where=key_pos<4||key_pos>query_pos-9", ""};
  test.where = [](const Pair& at) { return at.key_pos < 4 || at.key_pos > at.query_pos - 9; };
  expect_right_in_all(test);
  test.problem = "lse=natural mask=none where=(key_pos-7)//16==query_pos//16&&!(key_pos%5==2)";
  test.where = [](const Pair& at) {
    const auto down = [](int64_t x) { return int64_t(std::floor(double(x) / 16)); };
    return down(at.key_pos - 7) == down(at.query_pos) && at.key_pos % 5 != 2;
  };
  expect_right_in_all(test);
  test.problem = "lse=natural params=p:row,g:head where=key_pos*0.01<=p+g&&head!=2";
  test.where = [](const Pair& at) {
    return double(at.key_pos) * 0.01 <= at.params[0] + at.params[1] && at.head != 2;
  };
  expect_right_in_all(test);
  test.problem = "lse=natural where=(key_pos-kv_len)%7!=3&&select(head<2,key_pos>10,key_pos>=50)";
  test.where = [](const Pair& at) {
    const int64_t rest = ((at.key_pos - at.kv_len) % 7 + 7) % 7;
    return rest != 3 && (at.head < 2 ? at.key_pos > 10 : at.key_pos >= 50);
  };
  expect_right_in_all(test);
}

TEST(CpuScores, SinksJoinOnce) {
  for (const char* words : {"", " window=9", " softcap=3", " query_len=3"}) {
    for (const char* lse : {"lse=natural", "lse=base2"}) {
      expect_right_in_all({std::string("sink=on ") + lse + words, ""});
    }
  }
}

TEST(CpuScores, SinksOfAnySize) {
  for (float sink : {-kInfinity, -3e38f, -200.0f, 0.0f, 60.0f}) {
    KernelCase test{"sink=on lse=natural", ""};
    test.sinks.assign(4, sink);
    expect_right_in_all(test);
  }
  // In the reference a sink of 3e38 leaves o = 0 exactly, and its own value as the sum.
  KernelCase test{"sink=on lse=natural", ""};
  test.sinks.assign(4, 3e38f);
  expect_right_in_all(test);
}

TEST(CpuScores, ASinkOf3e38IsTheSum) {
  for (const char* schedule : kSchedules) {
    KernelCase test{"attention q=fp32 kv=fp32 heads=2 dim=8 sink=on lse=natural", schedule};
    test.sinks = {3e38f, -3e38f};
    const CaseOutcome outcome = run_case(test);
    for (size_t row = 0; row < test.kv_lens.size(); ++row) {
      EXPECT_EQ(outcome.actual.lse[2 * row], double(3e38f));
      for (int d = 0; d < 8; ++d) EXPECT_EQ(outcome.actual.out[row * 16 + d], 0);
    }
    EXPECT_EQ(outcome.actual.lse[2 * 1 + 1], double(-3e38f));  // a row without keys
  }
}

TEST(CpuScores, OutputsThatArePartials) {
  for (const char* merge : {"merge=mlo", "merge=lse", "merge=auto"}) {
    for (const char* lse : {"lse=none", "lse=natural", "lse=base2"}) {
      for (const char* more : {"", " query_len=3", " query_len=3 mask=none bias=fp32"}) {
        for (const char* schedule : kSchedules) {
          std::string text = schedule;  // the problem's word decides where it has one
          if (std::string(merge) != "merge=auto") {
            const size_t at = text.find(" merge=");
            if (at != std::string::npos) text.resize(at);
          }
          expect_right({std::string("attention q=fp32 kv=fp32 heads=4/2 dim=24 out=partial ") +
                            merge + " " + lse + more,
                        text});
        }
      }
    }
  }
}

}  // namespace
}  // namespace splitkv::test
