// Text to tokens and back: byte-level BPE as GPT-2 has it, with digits one by one, which is
// SmolLM's. Reads the tokenizer.json of Hugging Face's tokenizers.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace engine {

class Tokenizer {
 public:
  // folder/tokenizer.json and folder/unicode_classes.json. Throws std::runtime_error.
  explicit Tokenizer(const std::string& folder);

  // UTF-8. Special tokens stand in the text as themselves ("<|im_start|>").
  std::vector<int32_t> encode(std::string_view text) const;
  // Special tokens are left out. Bytes of a character that is not complete yet stay bytes.
  std::string decode(const std::vector<int32_t>& tokens) const;

 private:
  using Ranges = std::vector<std::pair<char32_t, char32_t>>;  // [first, last], rising

  enum class Class { letter, number, space, other };
  Class class_of(char32_t code) const;
  void encode_plain(std::string_view text, std::vector<int32_t>& tokens) const;
  void encode_word(std::string_view word, std::vector<int32_t>& tokens) const;

  Ranges letters_, numbers_, spaces_;
  std::unordered_map<std::string, int32_t> ids_;           // by their bytes
  std::vector<std::string> bytes_;                         // of each id; of special ones empty
  std::unordered_map<std::string, int32_t> merges_;        // "left right" in bytes: rank
  std::vector<std::pair<std::string, int32_t>> specials_;  // text, id
};

}  // namespace engine
