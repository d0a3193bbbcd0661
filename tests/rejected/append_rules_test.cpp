// One case for each rule of what an append is made for, and what the offered word does.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "compiler/append.hpp"
#include "compiler/text.hpp"

namespace splitkv {
namespace {

struct Case {
  const char* rule;
  const char* problem;
  DType type;
  AppendPlaces places;
  const char *field, *value, *fits;
};

const std::vector<Case> cases = {
    {"append_type_is_floating", "q=bf16 kv=e4m3 heads=1 dim=64", DType::e4m3, AppendPlaces::slots,
     "type", "e4m3", "type=bf16"},
    {"append_type_is_floating", "q=bf16 kv=int8 heads=1 dim=64", DType::int8, AppendPlaces::rows,
     "type", "int8", "type=bf16"},
    {"append_rows_are_contiguous", "q=bf16 heads=1 dim=64 positions=strided", DType::bf16,
     AppendPlaces::rows, "places", "rows", "places=slots"},
};

TEST(AppendRules, EachRefusesByNameFieldAndValueAndItsOfferFits) {
  for (const Case& c : cases) {
    SCOPED_TRACE(c.rule);
    const Problem problem = parse_problem(c.problem).value();
    const auto refusal = verify_append(problem, c.type, c.places);
    ASSERT_TRUE(refusal);
    EXPECT_EQ(refusal->rule, c.rule);
    EXPECT_EQ(refusal->field, c.field);
    EXPECT_EQ(refusal->value, c.value);
    EXPECT_EQ(refusal->fits, c.fits);
    const bool type = refusal->field == "type";
    const std::string offer = refusal->fits.substr(refusal->fits.find('=') + 1);
    EXPECT_FALSE(verify_append(problem, type ? dtype_from_name(offer).value() : c.type,
                               type ? c.places : append_places_from_name(offer).value()));
  }
}

TEST(AppendRules, EveryRuleHasACase) {
  std::set<std::string> with_case;
  for (const Case& c : cases) with_case.insert(c.rule);
  for (const AppendRule& rule : append_rules()) EXPECT_TRUE(with_case.contains(rule.name));
  EXPECT_EQ(with_case.size(), append_rules().size());
}

TEST(AppendRules, WhatIsLegalIsNotRefused) {
  for (const char* problem :
       {"q=bf16 kv=e4m3 heads=1 dim=64 kv_scale=token", "q=fp32 heads=4/2 dim=46 align=4"}) {
    for (const DType type : {DType::fp32, DType::fp16, DType::bf16}) {
      for (const AppendPlaces places : {AppendPlaces::slots, AppendPlaces::rows}) {
        EXPECT_FALSE(verify_append(parse_problem(problem).value(), type, places));
      }
    }
  }
  EXPECT_FALSE(verify_append(parse_problem("q=bf16 heads=1 dim=64 positions=strided").value(),
                             DType::bf16, AppendPlaces::slots));
}

}  // namespace
}  // namespace splitkv
