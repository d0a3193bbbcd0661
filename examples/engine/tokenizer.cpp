#include "tokenizer.hpp"

#include <algorithm>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace engine {
namespace {

using nlohmann::json;

json read_json(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error(path + " cannot be read; prepare_weights.py writes it");
  return json::parse(file);
}

// The character at `place` and its bytes; a byte that begins none counts as one of its own.
struct Character {
  char32_t code = 0;
  size_t bytes = 1;
};

Character character_at(std::string_view text, size_t place) {
  const auto first = uint8_t(text[place]);
  const size_t bytes = first < 0x80   ? 1
                       : first < 0xc0 ? 1
                       : first < 0xe0 ? 2
                       : first < 0xf0 ? 3
                                      : 4;
  if (bytes == 1 || place + bytes > text.size()) return {first, 1};
  char32_t code = first & (0xffu >> (bytes + 1));
  for (size_t i = 1; i < bytes; ++i) code = code << 6 | (uint8_t(text[place + i]) & 0x3fu);
  return {code, bytes};
}

// GPT-2 writes every byte as a printable character: printable Latin-1 as itself, the others from
// U+0100 on in their order.
std::map<char32_t, char> byte_of_characters() {
  std::map<char32_t, char> bytes;
  char32_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool as_itself = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad);
    bytes[as_itself ? char32_t(byte) : next++] = char(byte);
  }
  return bytes;
}

std::string to_bytes(std::string_view text, const std::map<char32_t, char>& bytes) {
  std::string result;
  for (size_t i = 0; i < text.size();) {
    const Character character = character_at(text, i);
    result += bytes.at(character.code);
    i += character.bytes;
  }
  return result;
}

// Of bytes, which may hold spaces: their lengths tell pairs apart.
std::string pair_key(std::string_view left, std::string_view right) {
  std::string key = std::to_string(left.size()) + ":";
  return key.append(left).append(right);
}

// A merge is written as "left right" or as ["left", "right"]; neither half has a space in it.
std::pair<std::string, std::string> both_of(const json& merge) {
  if (merge.is_array()) return {merge.at(0), merge.at(1)};
  const std::string both = merge;
  const size_t space = both.find(' ');
  if (space == std::string::npos) throw std::runtime_error("\"" + both + "\" is no merge of two");
  return {both.substr(0, space), both.substr(space + 1)};
}

// 's 't 're 've 'm 'll 'd at the beginning of `text`: its length, or 0.
size_t contraction(std::string_view text) {
  for (const std::string_view ending : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"}) {
    if (text.substr(0, ending.size()) == ending) return ending.size();
  }
  return 0;
}

}  // namespace

Tokenizer::Tokenizer(const std::string& folder) try {
  const json classes = read_json(folder + "/unicode_classes.json");
  for (const auto& [name, ranges] :
       {std::pair{"letters", &letters_}, {"numbers", &numbers_}, {"spaces", &spaces_}}) {
    for (const json& range : classes.at(name)) ranges->emplace_back(range.at(0), range.at(1));
  }
  const json file = read_json(folder + "/tokenizer.json");
  const json& model = file.at("model");
  const std::map<char32_t, char> bytes = byte_of_characters();
  std::map<int32_t, std::string> special_ids;
  for (const json& added : file.at("added_tokens"))
    special_ids[added.at("id")] = added.at("content");
  bytes_.resize(model.at("vocab").size());
  for (const auto& [text, id] : model.at("vocab").items()) {
    if (special_ids.count(id) != 0) continue;
    bytes_.at(id) = to_bytes(text, bytes);
    ids_[bytes_[id]] = id;
  }
  for (const auto& [id, text] : special_ids) specials_.emplace_back(text, id);
  int32_t rank = 0;
  for (const json& merge : model.at("merges")) {
    const auto [left, right] = both_of(merge);
    merges_.emplace(pair_key(to_bytes(left, bytes), to_bytes(right, bytes)), rank++);
  }
} catch (const json::exception& error) {
  throw std::runtime_error(folder + ": " + error.what());
}

Tokenizer::Class Tokenizer::class_of(char32_t code) const {
  const auto is_in = [code](const Ranges& ranges) {
    const auto after =
        std::upper_bound(ranges.begin(), ranges.end(), code,
                         [](char32_t value, const std::pair<char32_t, char32_t>& range) {
                           return value < range.first;
                         });
    return after != ranges.begin() && code <= std::prev(after)->second;
  };
  if (is_in(letters_)) return Class::letter;
  if (is_in(numbers_)) return Class::number;
  return is_in(spaces_) ? Class::space : Class::other;
}

std::vector<int32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<int32_t> tokens;
  while (!text.empty()) {
    size_t first = text.size();
    const std::pair<std::string, int32_t>* special = nullptr;
    for (const auto& candidate : specials_) {
      const size_t place = text.find(candidate.first);
      if (place < first) first = place, special = &candidate;
    }
    encode_plain(text.substr(0, first), tokens);
    if (special == nullptr) break;
    tokens.push_back(special->second);
    text.remove_prefix(first + special->first.size());
  }
  return tokens;
}

// Cuts into words. A digit is one; then, from where the last word ended: a contraction; letters, or
// characters that are neither letters nor digits nor space, with a space before them if there is
// one; space, of which the last is left to a word that follows.
void Tokenizer::encode_plain(std::string_view text, std::vector<int32_t>& tokens) const {
  const auto class_at = [&](size_t place) { return class_of(character_at(text, place).code); };
  const auto run_from = [&](size_t place, Class kind) {
    while (place < text.size() && class_at(place) == kind) place += character_at(text, place).bytes;
    return place;
  };
  for (size_t i = 0; i < text.size();) {
    size_t end = i + contraction(text.substr(i));
    if (end == i) {
      const size_t word = text[i] == ' ' && i + 1 < text.size() ? i + 1 : i;
      const Class kind = class_at(word);
      if (kind == Class::letter || kind == Class::other) {
        end = run_from(word, kind);
      } else if (class_at(i) == Class::number) {
        end = i + character_at(text, i).bytes;
      } else {
        end = run_from(i, Class::space);
        size_t last = end - 1;
        while ((uint8_t(text[last]) & 0xc0) == 0x80) --last;
        // Before a digit there is nothing to leave it to.
        if (end < text.size() && class_at(end) != Class::number && last > i) end = last;
      }
    }
    encode_word(text.substr(i, end - i), tokens);
    i = end;
  }
}

// Bytes, of which the pair with the lowest rank becomes one until none has a rank.
void Tokenizer::encode_word(std::string_view word, std::vector<int32_t>& tokens) const {
  std::vector<std::string> parts;
  for (const char byte : word) parts.emplace_back(1, byte);
  while (parts.size() > 1) {
    int32_t least = std::numeric_limits<int32_t>::max();
    size_t place = 0;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto found = merges_.find(pair_key(parts[i], parts[i + 1]));
      if (found != merges_.end() && found->second < least) least = found->second, place = i;
    }
    if (least == std::numeric_limits<int32_t>::max()) break;
    parts[place] += parts[place + 1];
    parts.erase(parts.begin() + std::ptrdiff_t(place) + 1);
  }
  for (const std::string& part : parts) {
    const auto found = ids_.find(part);
    if (found != ids_.end()) tokens.push_back(found->second);  // the vocabulary lacks a few bytes
  }
}

std::string Tokenizer::decode(const std::vector<int32_t>& tokens) const {
  std::string text;
  for (const int32_t token : tokens) {
    if (token >= 0 && size_t(token) < bytes_.size()) text += bytes_[size_t(token)];
  }
  return text;
}

}  // namespace engine
