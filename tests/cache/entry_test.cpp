// An entry says what it is, and nothing but the entry that was written is taken for one.
#include <gtest/gtest.h>

#include "tests/cache/cache_case.hpp"

using namespace splitkv;
using namespace splitkv::cache_test;

namespace {

std::string encoded(int i) { return encode_entry(key_of_source(i), source_of(i).text, code_of(i)); }

TEST(CacheEntryBytes, HoldKeySourceAndCode) {
  const Result<CacheEntry> entry = decode_entry(encoded(3));
  ASSERT_TRUE(entry.ok()) << entry.error().message;
  EXPECT_EQ(entry->key, key_of_source(3));
  EXPECT_EQ(entry->source, source_of(3).text);
  EXPECT_EQ(entry->code, code_of(3));
}

TEST(CacheEntryBytes, OfLlvmKeepTheirKeyToo) {
  const KernelSource source{SourceLanguage::llvm_ir, "; text\n//kept\ndefine void @f() {}\n", "f",
                            "g"};
  const KernelKey key = kernel_key(source, {"LLVM 19.1.7", {"sroa"}, "znver3"});
  const StoredCode code{{"object"}, "", 1};
  const Result<CacheEntry> entry = decode_entry(encode_entry(key, source.text, code));
  ASSERT_TRUE(entry.ok()) << entry.error().message;
  EXPECT_EQ(entry->key, key);
  EXPECT_EQ(key_word(key_head(key), "language"), "llvm_ir");
  EXPECT_EQ(key_word(key_head(key), "reduce"), "g");
}

TEST(CacheEntryBytes, CutAtAnyLengthAreRefused) {
  const std::string whole = encoded(1);
  for (size_t length = 0; length < whole.size(); ++length) {
    ASSERT_FALSE(decode_entry(whole.substr(0, length)).ok()) << length;
  }
  EXPECT_FALSE(decode_entry(whole + '\0').ok());
  EXPECT_FALSE(decode_entry(whole + whole).ok());
}

TEST(CacheEntryBytes, WithAnyBitTurnedAreRefused) {
  const std::string whole = encoded(1);
  for (size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    std::string turned = whole;
    turned[bit / 8] = char(turned[bit / 8] ^ (1 << bit % 8));
    ASSERT_FALSE(decode_entry(turned).ok()) << "bit " << bit;
  }
}

TEST(CacheEntryBytes, OfAnotherFormatAreRefusedByName) {
  std::string other = encoded(1);
  other[8] = 9;
  const Result<CacheEntry> entry = decode_entry(other);
  ASSERT_FALSE(entry.ok());
  EXPECT_EQ(entry.error().message, "has format 9, this library reads 1");
}

TEST(CacheEntryBytes, WithoutCodeAreRefused) {
  const Result<CacheEntry> entry =
      decode_entry(encode_entry(key_of_source(1), source_of(1).text, StoredCode{}));
  ASSERT_FALSE(entry.ok());
  EXPECT_EQ(entry.error().message, "holds no code");
}

}  // namespace
