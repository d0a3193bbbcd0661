// Bad input ends with status 2 and a message that names the field, its value and what would work.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/cli/process.hpp"
#include "tools/splitkv/npy.hpp"

namespace splitkv::cli_test {
namespace {

const std::string kGood = "attention q=fp32 kv=fp32 heads=4/2 dim=64";

struct Bad {
  std::vector<std::string> arguments;
  std::vector<std::string> named;  // what stderr must hold
};

void expect_refused(const Bad& bad) {
  const Finished finished = run_splitkv(bad.arguments);
  std::string line;
  for (const std::string& argument : bad.arguments) line += argument + " | ";
  EXPECT_EQ(finished.status, 2) << line << finished.err;
  for (const std::string& named : bad.named) {
    EXPECT_NE((finished.out + finished.err).find(named), std::string::npos)
        << line << "does not name " << named << " in: " << finished.err;
  }
  EXPECT_EQ(finished.err.find("terminate called"), std::string::npos) << finished.err;
}

TEST(BadInput, OfOptionsIsNamed) {
  const std::vector<Bad> cases = {
      {{}, {"a verb is missing", "doctor"}},
      {{"fly"}, {"fly"}},
      {{"run"}, {"problem is missing", "--model=DIR/config.json"}},
      {{"run", kGood}, {"--kv-len is missing", "--kv-len=8192"}},
      {{"run", kGood, "--kv-len", "many"}, {"--kv-len", "many"}},
      {{"run", kGood, "--kv-len", "-1"}, {"--kv-len=-1", "0 to 2147483647"}},
      {{"run", kGood, "--kv-len", "4294967296"}, {"--kv-len=4294967296", "2147483647"}},
      {{"run", kGood, "--kv-len", "1,2", "--batch", "3"}, {"--batch=3", "2 lengths"}},
      {{"run", kGood, "--kv-len", "1", "--batch", "-2"}, {"--batch=-2", "1 or more"}},
      {{"run", kGood, "--kv-len", "1", "--batch", "0"}, {"--batch=0", "1 or more"}},
      {{"run", kGood, "--kv-len", "1", "--repeat", "0"}, {"--repeat=0", "1 or more"}},
      {{"run", kGood, "--kv-len", "1", "--merge", "sum"}, {"--merge=sum", "mlo, lse"}},
      {{"run", kGood, "--kv-len", "1", "--target", "tpu"}, {"--target=tpu", "cpu", "cuda"}},
      {{"run", kGood, "--kv-len", "1", "--wings", "2"}, {"--wings"}},
      {{"run", kGood, "--kv-len", "1,,2"}, {"--kv-len=1,,2", "entry 2 is empty"}},
      {{"run", kGood, "--kv-len", "1,2,"}, {"--kv-len=1,2,", "entry 3 is empty"}},
      {{"run", kGood, "--kv-len=,1"}, {"--kv-len=,1", "entry 1 is empty"}},
      {{"run", kGood, "--kv-len", "1,2x"}, {"--kv-len=2x", "0 to 2147483647"}},
      {{"run", kGood, "--kv-len", "1", "--queries", "1,,1"}, {"--queries=1,,1", "entry 2"}},
      {{"run", kGood, "--kv-len", "1", "--merge", "mlo,"}, {"--merge=mlo,", "entry 2 is empty"}},
      {{"run", kGood, "--kv-len", "1", "--seed", "-1"}, {"--seed=-1", "18446744073709551615"}},
      {{"run", kGood, "--kv-len", "1", "--seed", "18446744073709551616"},
       {"--seed=18446744073709551616", "0 to 18446744073709551615"}},
      {{"run", kGood, "--kv-len", "1", "--seed", "1e3"}, {"--seed=1e3"}},
      {{"run", kGood, "--kv-len", "1", "--seed="}, {"--seed"}},
      {{"run", kGood, "--kv-len", "1", "--out", "o.npy", "--lse", "o.npy"},
       {"--lse=o.npy", "--out"}},
      {{"run", kGood, "--kv-len", "1", "--out", "o.npy", "--lse", "./x/../o.npy"},
       {"--lse=./x/../o.npy", "--out"}},
      {{"run", kGood, "--kv-len", "1", "--q", "q.npy"}, {"--k is missing"}},
      {{"run", kGood, "--kv-len", "1", "--kv-lens", "l.npy"}, {"--kv-lens=l.npy", "--kv-len"}},
      {{"show", kGood, "--batch", "0"}, {"--batch=0", "1 or more"}},
      {{"show", kGood, "--target", "cuda:sm_12"}, {"sm_12", "cuda:sm_90a"}},
      {{"show", kGood, "--target", "cpu:vax"}, {"vax"}},
      {{"emit"}, {"problem"}},
      {{"compile"}, {"problem"}},
  };
  for (const Bad& bad : cases) expect_refused(bad);
}

TEST(BadInput, OfProblemsIsNamedByEveryVerb) {
  const std::vector<Bad> problems = {
      {{"attention q=fp31 kv=fp32 heads=4 dim=64"}, {"q", "fp31", "fp32"}},
      {{"attention q=fp32 kv=fp32 heads=4/3 dim=64"}, {"heads", "4/3"}},
      {{"attention q=fp32 kv=fp32 heads=4 dim=65"}, {"dim", "65", "66"}},
      {{"attention q=fp32 kv=fp32 heads=4 dim=584"}, {"dim", "584", "576"}},
      {{"attention q=fp32 kv=fp32 heads=4 dim=64 colour=red"}, {"colour"}},
      {{"attention q=fp32 kv=fp32 heads=4 dim=64 query_len=65"}, {"query_len", "65", "64"}},
      {{"attention q=fp32 kv=fp32 heads=4 dim=64 window=-5"}, {"window", "-5"}},
      {{"attention q=fp32 kv=fp32 heads=0 dim=64"}, {"heads", "0"}},
      {{"attention q=fp32 kv=fp32 heads=4 dim=64 kv_layout=paged:0:nhd"}, {"page", "0"}},
  };
  for (const Bad& bad : problems) {
    const std::string& problem = bad.arguments[0];
    const std::string target = "cuda:sm_90a";
    expect_refused({{"show", problem, "--target", target}, bad.named});
    expect_refused({{"emit", problem, "--target", target}, bad.named});
    expect_refused({{"compile", problem, "--target", target}, bad.named});
#ifdef SPLITKV_HAS_CPU
    expect_refused({{"run", problem, "--kv-len", "5", "--target", "cpu", "--check"}, bad.named});
#endif
  }
}

TEST(BadInput, OfSchedulesIsNamed) {
  expect_refused(
      {{"show", kGood, "--target", "cuda:sm_90a", "--schedule", "splits=0"}, {"splits", "0"}});
  expect_refused({{"show", kGood, "--target", "cuda:sm_90a", "--schedule", "speed=9"}, {"speed"}});
  expect_refused({{"show", kGood, "--target", "cuda:sm_90a", "--schedule", "splits=6 cluster=4"},
                  {"splits=6", "splits=8"}});
  expect_refused({{"show", kGood, "--target", "cuda:sm_89", "--schedule", "pdl=on"},
                  {"pdl=on", "sm_90", "pdl=off"}});
  expect_refused({{"emit", kGood, "--target", "cuda:sm_90a", "--schedule", "family=vector"},
                  {"family", "vector", "simt"}});
}

TEST(BadInput, OfModelsIsNamed) {
  const std::string folder = SPLITKV_TEST_MODELS;
  expect_refused({{"show", "--model", folder + "/none.json"}, {"--model", "none.json"}});
  expect_refused({{"run", "--model", folder + "/llama-3.1-8b.json", "mask=tree", "--kv-len", "9",
                   "--queries", "2"},
                  {"--queries=2", "0 to 1"}});
}

#ifdef SPLITKV_HAS_CPU
TEST(BadInput, OfFilesIsNamed) {
  const Folder folder;
  const auto write = [&](const std::string& name, const std::vector<int64_t>& shape) {
    const std::vector<float> zeros(size_t(tool::element_count(shape)));
    EXPECT_TRUE(tool::write_npy(folder.file(name), shape, zeros).ok());
    return folder.file(name);
  };
  const std::string q = write("q.npy", {1, 4, 64}), k = write("k.npy", {1, 2, 9, 64});
  const std::string wide = write("wide.npy", {1, 4, 72}), more = write("more.npy", {2, 2, 9, 64});
  const auto with = [&](const std::string& q_file, const std::string& k_file,
                        const std::string& v_file, std::vector<std::string> rest) {
    std::vector<std::string> arguments = {"run",  kGood, "--target", "cpu", "--q",
                                          q_file, "--k", k_file,     "--v", v_file};
    arguments.insert(arguments.end(), rest.begin(), rest.end());
    return arguments;
  };
  expect_refused({with(q, k, folder.file("no.npy"), {}), {"no.npy: cannot be opened"}});
  // A folder can be opened, not read.
  std::filesystem::create_directory(folder.file("folder"));
  expect_refused({with(folder.file("folder"), k, k, {}), {"/folder: cannot be read", ".npy"}});
  // One file by two names.
  std::filesystem::create_symlink(q, folder.file("link.npy"));
  expect_refused({with(q, k, k, {"--out", q, "--lse", folder.file("link.npy")}),
                  {"--lse=", "link.npy", "is the file of --out"}});
  expect_refused({with(wide, k, k, {}), {"--q", "wide.npy", "[1, 4, 72]", "[any, 4, 64]"}});
  expect_refused({with(q, more, k, {}), {"--k", "more.npy", "[2, 2, 9, 64]", "[1, 2, any, 64]"}});
  expect_refused({with(q, k, more, {}), {"--v", "more.npy", "[1, 2, 9, 64]"}});
  expect_refused({with(q, k, k, {"--kv-len", "10"}), {"--kv-len", "10", "0..9"}});
  expect_refused({with(q, k, k, {"--kv-lens", q}), {"q.npy", "int32"}});
  expect_refused({with(q, k, k, {"--batch", "2"}), {"--batch=2", "1 batch rows"}});
  expect_refused({with(q, k, k, {"--lse", folder.file("l.npy")}), {"--lse", "lse=none"}});
  expect_refused({with(q, k, k, {"--expect-out", wide}), {"--expect-out", "[1, 4, 64]"}});
  expect_refused({with(q, k, k, {"--out", folder.file("no/such/o.npy")}), {"cannot be written"}});
}
#endif

}  // namespace
}  // namespace splitkv::cli_test
