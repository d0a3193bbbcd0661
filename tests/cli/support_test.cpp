// The support matrix in docs/ is what the tool prints.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "tests/cli/process.hpp"

namespace splitkv::cli_test {
namespace {

TEST(Show, ListsTheSupportMatrixThatTheDocumentsHold) {
  const Finished listed = run_splitkv({"show", "--list"});
  ASSERT_EQ(listed.status, 0) << listed.err;
  std::ifstream stream(SPLITKV_TEST_DOCS "/support.md", std::ios::binary);
  const std::string held(std::istreambuf_iterator<char>(stream), {});
  EXPECT_EQ(held, listed.out) << "splitkv show --list >docs/support.md brings it up to date";
}

TEST(Show, ListsWhatEveryTargetTakesAndWhichRuleRefuses) {
  const std::string page = run_splitkv({"show", "--list"}).out;
  for (const char* row :
       {"| `kv=e4m3` | simt, mma | simt, mma; not wgmma: `wgmma_takes_one_16_bit_type` | vector |",
        "| `dim=101` | no: `head_dims_are_even` | no: `head_dims_are_even` | no: "
        "`head_dims_are_even` |",
        "| `align=2` | simt; not mma: `mma_copies_words` | simt; not mma: `mma_copies_words`; not "
        "wgmma: `wgmma_copies_16_bytes` | vector |"})
    EXPECT_NE(page.find(row), std::string::npos) << row;
}

}  // namespace
}  // namespace splitkv::cli_test
