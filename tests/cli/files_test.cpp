// Tensors from files: results are written, expected values are compared, and a disturbed value
// fails.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>

#include "tests/cli/process.hpp"
#include "tools/splitkv/npy.hpp"

namespace splitkv::cli_test {
namespace {

#ifdef SPLITKV_HAS_CPU

// Two rows of 4 heads on 2 kv heads; the second row has 3 of 5 tokens, the others NaN.
class Files : public testing::Test {
 protected:
  static constexpr int64_t kDim = 8, kTokens = 5;

  void SetUp() override {
    std::vector<float> q(2 * 4 * kDim), k(2 * 2 * kTokens * kDim), v(k.size());
    for (size_t i = 0; i < q.size(); ++i) q[i] = std::sin(float(i));
    for (size_t i = 0; i < k.size(); ++i) {
      const bool real = i < k.size() / 2 || int64_t(i) / kDim % kTokens < 3;
      k[i] = real ? std::cos(float(i)) : std::numeric_limits<float>::quiet_NaN();
      v[i] = real ? std::sin(2 * float(i)) : std::numeric_limits<float>::infinity();
    }
    write("q.npy", {2, 4, kDim}, q);
    write("k.npy", {2, 2, kTokens, kDim}, k);
    write("v.npy", {2, 2, kTokens, kDim}, v);
    // [5, 3] as int32.
    const std::string header = "{'descr': '<i4', 'fortran_order': False, 'shape': (2,), }\n";
    std::ofstream(folder_.file("l.npy"), std::ios::binary)
        << "\x93NUMPY\x01" << '\0' << char(header.size()) << '\0' << header
        << std::string("\5\0\0\0\3\0\0\0", 8);
  }

  void write(const std::string& name, const std::vector<int64_t>& shape,
             const std::vector<float>& values) {
    ASSERT_TRUE(tool::write_npy(folder_.file(name), shape, values).ok());
  }

  Finished run(const std::string& words, const std::vector<std::string>& rest) {
    std::vector<std::string> arguments = {
        "run",       "attention q=fp32 kv=fp32 heads=4/2 dim=8 lse=natural" + words,
        "--q",       folder_.file("q.npy"),
        "--k",       folder_.file("k.npy"),
        "--v",       folder_.file("v.npy"),
        "--kv-lens", folder_.file("l.npy"),
        "--target",  "cpu",
        "--repeat",  "1"};
    arguments.insert(arguments.end(), rest.begin(), rest.end());
    return run_splitkv(arguments);
  }

  Finished expect(const std::string& words, const std::string& out, const std::string& lse) {
    return run(words, {"--expect-out", folder_.file(out), "--expect-lse", folder_.file(lse)});
  }

  Folder folder_;
};

TEST_F(Files, AreWrittenAndFoundEqualAgainInEveryLayout) {
  const Finished first =
      run("", {"--check", "--out", folder_.file("o.npy"), "--lse", folder_.file("s.npy")});
  ASSERT_EQ(first.status, 0) << first.out << first.err;
  const auto out = tool::read_npy_floats(folder_.file("o.npy"));
  const auto lse = tool::read_npy_floats(folder_.file("s.npy"));
  ASSERT_TRUE(out.ok() && lse.ok());
  EXPECT_EQ(out->shape, (std::vector<int64_t>{2, 4, kDim}));
  EXPECT_EQ(lse->shape, (std::vector<int64_t>{2, 4}));
  for (const char* layout :
       {" kv_layout=bthd", " kv_layout=paged:2:nhd", " kv_layout=paged:3:hnd"}) {
    const Finished again = expect(layout, "o.npy", "s.npy");
    EXPECT_EQ(again.status, 0) << layout << again.out << again.err;
    EXPECT_NE(again.out.find("\ncheck     ok"), std::string::npos) << again.out;
  }
}

TEST_F(Files, FailWhenOneExpectedValueIsDisturbed) {
  ASSERT_EQ(run("", {"--out", folder_.file("o.npy"), "--lse", folder_.file("s.npy")}).status, 0);
  auto out = tool::read_npy_floats(folder_.file("o.npy"));
  auto lse = tool::read_npy_floats(folder_.file("s.npy"));
  ASSERT_TRUE(out.ok() && lse.ok());

  out->values[5 * kDim + 3] += 1e-4f;
  write("o_off.npy", out->shape, out->values);
  const Finished wrong_out = expect("", "o_off.npy", "s.npy");
  EXPECT_EQ(wrong_out.status, 1) << wrong_out.out;
  EXPECT_NE(wrong_out.out.find("check     FAIL"), std::string::npos) << wrong_out.out;
  EXPECT_NE(wrong_out.out.find("(row 5)"), std::string::npos) << wrong_out.out;
  EXPECT_NE(wrong_out.out.find("out is beyond its tolerance"), std::string::npos);

  lse->values[6] += 1e-4f;
  write("s_off.npy", lse->shape, lse->values);
  const Finished wrong_lse = expect("", "o.npy", "s_off.npy");
  EXPECT_EQ(wrong_lse.status, 1) << wrong_lse.out;
  EXPECT_NE(wrong_lse.out.find("lse is beyond its tolerance"), std::string::npos);
  EXPECT_EQ(wrong_lse.out.find("out is beyond its tolerance"), std::string::npos);

  lse->values[6] = std::numeric_limits<float>::quiet_NaN();
  write("s_nan.npy", lse->shape, lse->values);
  EXPECT_EQ(expect("", "o.npy", "s_nan.npy").status, 1);
}

TEST_F(Files, OfOtherLengthsGiveOtherResults) {
  ASSERT_EQ(run("", {"--out", folder_.file("o.npy"), "--lse", folder_.file("s.npy")}).status, 0);
  EXPECT_EQ(expect(" window=2", "o.npy", "s.npy").status, 1);
  EXPECT_EQ(expect(" softcap=1", "o.npy", "s.npy").status, 1);
  EXPECT_EQ(expect(" scale=0.1", "o.npy", "s.npy").status, 1);
}

#endif

}  // namespace
}  // namespace splitkv::cli_test
