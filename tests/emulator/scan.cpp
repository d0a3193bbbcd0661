#include "tests/emulator/scan.hpp"

#include <algorithm>
#include <cctype>

namespace emulator {

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

size_t past_comment_or_literal(std::string_view text, size_t at) {
  if (text.substr(at, 2) == "//") return std::min(text.find('\n', at), text.size());
  if (text.substr(at, 2) == "/*") return std::min(text.find("*/", at) + 2, text.size());
  // An apostrophe within a number divides its digits.
  const bool opens = text[at] == '"' || (text[at] == '\'' && (at == 0 || !is_word(text[at - 1])));
  if (!opens) return at;
  for (size_t i = at + 1; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text[i] == text[at]) {
      return i + 1;
    }
  }
  throw CannotTranslate{"a literal does not end"};
}

size_t find_word(std::string_view text, std::string_view word, size_t at) {
  while (at < text.size()) {
    if (const size_t end = past_comment_or_literal(text, at); end != at) {
      at = end;
    } else if (!is_word(text[at])) {
      ++at;
    } else {
      const size_t begin = at;
      while (at < text.size() && is_word(text[at])) ++at;
      if (text.substr(begin, at - begin) == word) return begin;
    }
  }
  return std::string_view::npos;
}

size_t past_blanks(std::string_view text, size_t at) {
  while (at < text.size() && std::isspace(static_cast<unsigned char>(text[at])) != 0) ++at;
  return at;
}

size_t past_brackets(std::string_view text, size_t at) {
  int depth = 0;
  while (at < text.size()) {
    if (const size_t end = past_comment_or_literal(text, at); end != at) {
      at = end;
      continue;
    }
    const char c = text[at++];
    if (c == '(' || c == '[' || c == '{') ++depth;
    if (c == ')' || c == ']' || c == '}') --depth;
    if (depth == 0) return at;
  }
  throw CannotTranslate{"a bracket is not closed"};
}

std::vector<std::string> cut(std::string_view text, char mark) {
  std::vector<std::string> pieces;
  size_t begin = 0, at = 0;
  while (at < text.size()) {
    if (const size_t end = past_comment_or_literal(text, at); end != at) {
      at = end;
    } else if (text[at] == '(' || text[at] == '[' || text[at] == '{') {
      at = past_brackets(text, at);
    } else if (text[at] == mark) {
      pieces.emplace_back(text.substr(begin, at - begin));
      begin = ++at;
    } else {
      ++at;
    }
  }
  pieces.emplace_back(text.substr(begin));
  return pieces;
}

std::string trimmed(std::string_view text) {
  const size_t begin = past_blanks(text, 0);
  size_t end = text.size();
  while (end > begin && std::isspace(static_cast<unsigned char>(text[end - 1])) != 0) --end;
  return std::string(text.substr(begin, end - begin));
}

}  // namespace emulator
