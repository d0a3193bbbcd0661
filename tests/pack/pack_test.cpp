// A pack says what it is, nothing but the pack that was written is taken for one, and its keys do
// not depend on who compiled.
#include "runtime/pack.hpp"

#include <gtest/gtest.h>

#include "runtime/sections.hpp"
#include "runtime/splitkv.h"

using namespace splitkv;

namespace {

KernelSource source_of(int i) {
  return {SourceLanguage::cuda,
          "// source " + std::to_string(i) + "\nint x" + std::to_string(i) + ";\n", "split",
          "reduce"};
}

PackedKernel packed(int i, const std::string& arch = "sm_90a") {
  PackedKernel kernel;
  kernel.key = pack_key(source_of(i), arch);
  kernel.problem = "problem " + std::to_string(i % 2);
  kernel.schedule = "schedule " + std::to_string(i);
  kernel.compiler = "NVRTC 13.0 build 0123";
  kernel.resources = "split 40 registers 0 spilled 1024 shared";
  kernel.code = {{std::string("cubin") + '\0' + std::to_string(i), "other"}, "", 12.25 + i};
  return kernel;
}

Pack pack_of(std::vector<PackedKernel> kernels) {
  return {splitkv_version(), "record one\nrecord two\n", std::move(kernels)};
}

TEST(PackBytes, HoldKernelsAndRecords) {
  const Pack pack = pack_of({packed(1), packed(2), packed(3, "sm_80")});
  const Result<Pack> read = decode_pack(encode_pack(pack));
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(*read, pack);
  EXPECT_EQ(read->kernels[2].arch(), "sm_80");
}

TEST(PackBytes, WithoutKernelsAreAPackToo) {
  const Result<Pack> read = decode_pack(encode_pack(pack_of({})));
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(*read, pack_of({}));
}

TEST(PackBytes, CutAtAnyLengthAreRefused) {
  const std::string whole = encode_pack(pack_of({packed(1), packed(2)}));
  for (size_t length = 0; length < whole.size(); ++length) {
    ASSERT_FALSE(decode_pack(whole.substr(0, length)).ok()) << length;
  }
  EXPECT_FALSE(decode_pack(whole + '\0').ok());
  EXPECT_FALSE(decode_pack(whole + whole).ok());
}

TEST(PackBytes, WithAnyBitTurnedAreRefused) {
  const std::string whole = encode_pack(pack_of({packed(1)}));
  for (size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    std::string turned = whole;
    turned[bit / 8] = char(turned[bit / 8] ^ (1 << bit % 8));
    ASSERT_FALSE(decode_pack(turned).ok()) << "bit " << bit;
  }
}

TEST(PackBytes, SayWhatIsWrongWithThem) {
  const std::string whole = encode_pack(pack_of({packed(1)}));
  std::string other = whole;
  other[8] = 9;
  EXPECT_EQ(decode_pack(other).error().message, "has format 9, this library reads 1");
  EXPECT_EQ(decode_pack("hello").error().message, "has only 5 bytes");
  EXPECT_EQ(decode_pack(std::string(100, 'x')).error().message, "does not begin as packs do");
  other = whole;
  other.back() ^= 1;
  EXPECT_EQ(decode_pack(other).error().message, "has bytes that its digest does not know");
}

// Whole by its digest, and yet no pack: sections that are missing or in another order.
TEST(PackBytes, OfOtherSectionsAreRefused) {
  const SectionFormat format{"\x89SKP\r\n\x1a\n", 1, "packs do"};
  const auto refused = [&](const std::vector<Section>& sections) {
    return !decode_pack(encode_sections(format, sections)).ok();
  };
  const std::string facts = "problem=p\nschedule=s\ncompiler=c\nresources=\ncompile_ms=1\n";
  EXPECT_FALSE(refused({{1, "splitkv=1\n"}, {2, ""}, {3, "key"}, {4, facts}, {5, "image"}}));
  EXPECT_TRUE(refused({}));
  EXPECT_TRUE(refused({{1, "splitkv=1\n"}}));
  EXPECT_TRUE(refused({{2, ""}, {1, "splitkv=1\n"}}));
  EXPECT_TRUE(refused({{1, "splitkv=1\n"}, {2, ""}, {3, "key"}, {4, facts}}));
  EXPECT_TRUE(refused({{1, "splitkv=1\n"}, {2, ""}, {3, "key"}, {5, "image"}}));
  EXPECT_TRUE(refused({{1, "splitkv=1\n"}, {2, ""}, {5, "image"}}));
  EXPECT_TRUE(refused({{1, "splitkv=1\n"}, {2, ""}, {3, "key"}, {4, "compile_ms=x\n"}, {5, "i"}}));
}

TEST(PackKey, IsOfSourceAndArchitectureAndNotOfComments) {
  const KernelKey key = pack_key(source_of(1), "sm_90a");
  KernelSource other = source_of(1);
  other.text = "// other launch values\n" + other.text;
  EXPECT_EQ(pack_key(other, "sm_90a"), key);
  EXPECT_NE(pack_key(source_of(1), "sm_80"), key);
  EXPECT_NE(pack_key(source_of(2), "sm_90a"), key);
  other.reduce_entry = "";
  EXPECT_NE(pack_key(other, "sm_90a"), key);
  EXPECT_EQ(key_of_pack_text(key.text), key);
  EXPECT_EQ(key.text.find("NVRTC"), std::string::npos);
  EXPECT_EQ(key_word(key.text, "splitkv"), splitkv_version());
}

TEST(OpenPacks, GiveWhatTheyHoldAndTheFirstOfTwo) {
  Packs packs;
  EXPECT_TRUE(packs.is_empty());
  PackedKernel again = packed(1);
  again.schedule = "another";
  const auto records = packs.add(encode_pack(pack_of({packed(1)})), "one");
  ASSERT_TRUE(records.ok()) << records.error().message;
  EXPECT_EQ(*records, "record one\nrecord two\n");
  ASSERT_TRUE(packs.add(encode_pack(pack_of({again, packed(2)})), "two").ok());
  ASSERT_NE(packs.find(packed(1).key), nullptr);
  EXPECT_EQ(*packs.find(packed(1).key), packed(1));
  EXPECT_EQ(*packs.find(packed(2).key), packed(2));
  EXPECT_EQ(packs.find(packed(3).key), nullptr);
}

TEST(OpenPacks, RefuseAPackOfAnotherVersionWhole) {
  Packs packs;
  Pack old = pack_of({packed(1)});
  old.version = "0.0.9";
  const auto added = packs.add(encode_pack(old), "old.pack");
  ASSERT_FALSE(added.ok());
  EXPECT_EQ(added.error().status, Status::invalid_argument);
  EXPECT_NE(added.error().message.find("old.pack was made by SplitKV 0.0.9"), std::string::npos)
      << added.error().message;
  EXPECT_TRUE(packs.is_empty());
}

TEST(OpenPacks, ExplainAMissByWhatIsThere) {
  Packs packs;
  const auto miss = [&](const std::string& arch, const std::string& problem) {
    return packs.explain_miss(pack_key(source_of(99), arch), problem, "schedule 9");
  };
  EXPECT_EQ(miss("sm_90a", "problem 1"), "no pack is there");
  ASSERT_TRUE(packs.add(encode_pack(pack_of({packed(1), packed(2), packed(3)})), "p").ok());
  EXPECT_EQ(
      miss("sm_90a", "problem 1"),
      "the packs hold this problem for sm_90a with the kernels of [schedule 1], [schedule 3], "
      "and that of [schedule 9] is asked for");
  // The same words, and yet another key: other source.
  EXPECT_EQ(
      packs.explain_miss(pack_key(source_of(99), "sm_90a"), "problem 1", "schedule 3"),
      "the packs hold [schedule 3] for sm_90a, made by a SplitKV that writes other source for "
      "it");
  EXPECT_EQ(miss("sm_80", "problem 1"),
            "the packs hold this problem for other instructions, [sm_90a], and this is [sm_80]");
  EXPECT_EQ(miss("sm_90a", "problem 7"),
            "the packs do not hold this problem; they hold others, for [sm_90a]");
}

TEST(PackFiles, ThatCannotBeReadAreNamed) {
  for (const char* path : {"/nowhere/x.pack", "/tmp"}) {
    const auto bytes = read_pack_file(path);
    ASSERT_FALSE(bytes.ok()) << path;
    EXPECT_EQ(bytes.error().status, Status::invalid_argument);
    EXPECT_NE(bytes.error().message.find(path), std::string::npos) << bytes.error().message;
  }
}

}  // namespace
