// Walking over C++ text: past comments, literals and brackets.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace emulator {

// Thrown for text that the emulator cannot take; the stand-in for NVRTC makes its log of it.
struct CannotTranslate {
  std::string why;
};

bool is_word(char c);

// The end of the comment or literal that begins at `at`; `at` itself where neither does.
size_t past_comment_or_literal(std::string_view text, size_t at);

// The first place from `at` on where `word` stands as a whole word of code; npos where nowhere.
size_t find_word(std::string_view text, std::string_view word, size_t at);

size_t past_blanks(std::string_view text, size_t at);

// `at` is at "(", "[" or "{": just past what closes it.
size_t past_brackets(std::string_view text, size_t at);

// Text cut at a character that stands outside brackets and literals; a piece for each cut and one.
std::vector<std::string> cut(std::string_view text, char at);

std::string trimmed(std::string_view text);

}  // namespace emulator
