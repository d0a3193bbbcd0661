// Pages, files and text by themselves.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "page_allocator.hpp"
#include "thread_pool.hpp"
#include "tokenizer.hpp"
#include "weights.hpp"

namespace engine {
namespace {

// A folder of this test's own.
std::string folder_of(const std::string& name) {
  const std::string folder = testing::TempDir() + "splitkv_engine_" + name;
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  return folder;
}

void write(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

TEST(PageAllocator, TakesAllOrNothing) {
  PageAllocator allocator(4);
  std::vector<int32_t> first, second;
  EXPECT_TRUE(allocator.take(3, first));
  EXPECT_FALSE(allocator.take(2, second));
  EXPECT_TRUE(second.empty());
  EXPECT_TRUE(allocator.take(1, second));
  EXPECT_EQ(allocator.free_pages(), 0);
  allocator.give_back(first);
  allocator.give_back(second);
  EXPECT_TRUE(first.empty());
  EXPECT_EQ(allocator.free_pages(), 4);
}

TEST(PageAllocator, RefusesAPageThatIsFree) {
  PageAllocator allocator(2);
  std::vector<int32_t> pages;
  ASSERT_TRUE(allocator.take(1, pages));
  std::vector<int32_t> again = pages;
  allocator.give_back(pages);
  EXPECT_THROW(allocator.give_back(again), std::logic_error);
}

TEST(ThreadPool, DoesEachOnce) {
  ThreadPool threads(3);
  for (int round = 0; round < 50; ++round) {
    std::vector<int> done(97);
    threads.for_each(97, [&](int64_t i) { ++done[size_t(i)]; });
    EXPECT_EQ(done, std::vector<int>(97, 1));
  }
}

constexpr const char* kConfig =
    R"({"model_type": "llama", "tie_word_embeddings": true, "num_hidden_layers": 1, "hidden_size": 4,
  "intermediate_size": 4, "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 8,
  "max_position_embeddings": 16, "rope_theta": 100.0, "rms_norm_eps": 1e-5, "eos_token_id": 2})";

TEST(Weights, ThreeTypesOfSafetensorsAreRead) {
  const std::string folder = folder_of("weights");
  write(folder + "/config.json", kConfig);
  const std::string header =
      R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F16","shape":[3],)"
      R"("data_offsets":[4,10]},"c":{"dtype":"BF16","shape":[1],"data_offsets":[10,12]}})";
  std::string file(8, '\0');
  const uint64_t length = header.size();
  std::memcpy(file.data(), &length, 8);
  file += header;
  file.append("\x00\x00\x40\xc0", 4);          // -3
  file.append("\x00\x3e\x01\x00\x00\xfc", 6);  // 1.5, 2^-24, -infinity
  file.append("\x20\xc1", 2);                  // -10
  write(folder + "/model.safetensors", file);
  const Weights weights = load_weights(folder);
  EXPECT_EQ(weights.config.dim, 2);
  EXPECT_EQ(weights.get("a", 1), std::vector<float>{-3});
  EXPECT_EQ(weights.get("b", 3), (std::vector<float>{1.5f, 0x1p-24f, -INFINITY}));
  EXPECT_EQ(weights.get("c", 1), std::vector<float>{-10});
  EXPECT_THROW(weights.get("a", 2), std::runtime_error);
  EXPECT_THROW(weights.get("d", 1), std::runtime_error);
  write(folder + "/model.safetensors", file.substr(0, file.size() - 1));
  EXPECT_THROW(load_weights(folder), std::runtime_error);
}

// Bytes of ASCII as tokens 0 to 127, then merges in their order, then a special token.
std::string small_tokenizer() {
  const std::string folder = folder_of("tokenizer");
  write(
      folder + "/unicode_classes.json",
      R"({"letters": [[65, 90], [97, 122]], "numbers": [[48, 57]], "spaces": [[9, 13], [32, 32]]})");
  std::string vocab;
  for (int byte = 33; byte < 127; ++byte) {
    const std::string character =
        byte == '"' || byte == '\\' ? std::string("\\") + char(byte) : std::string(1, char(byte));
    vocab += "\"" + character + "\": " + std::to_string(byte - 33) + ", ";
  }
  vocab += R"("Ġ": 94, "Ċ": 95, "ĠĠ": 96, "ab": 97, "Ġab": 98, "abab": 99, "<end>": 100)";
  write(folder + "/tokenizer.json",
        R"({"added_tokens": [{"id": 100, "content": "<end>"}], "model": {"vocab": {)" + vocab +
            R"(}, "merges": ["a b", "Ġ Ġ", "Ġ ab", "ab ab"]}})");
  return folder;
}

TEST(Tokenizer, MergesByRankInsideOfWords) {
  const Tokenizer tokenizer(small_tokenizer());
  const int32_t a = 'a' - 33, one = '1' - 33, two = '2' - 33;
  EXPECT_EQ(tokenizer.encode("abab"), (std::vector<int32_t>{99}));
  EXPECT_EQ(tokenizer.encode("a ab"), (std::vector<int32_t>{a, 98}));
  EXPECT_EQ(tokenizer.encode("a   ab"),
            (std::vector<int32_t>{a, 96, 98}));  // a space is left to ab
  EXPECT_EQ(tokenizer.encode("a  12"), (std::vector<int32_t>{a, 96, one, two}));  // none to a digit
  EXPECT_EQ(tokenizer.encode("ab<end>ab"), (std::vector<int32_t>{97, 100, 97}));
}

TEST(Tokenizer, DecodesWhatItEncoded) {
  const Tokenizer tokenizer(small_tokenizer());
  const std::string text = "ab abab!  don't\n12 (we'll)\n\n \"x\\y\"  ";
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("a<end>b")), "ab");
}

}  // namespace
}  // namespace engine
