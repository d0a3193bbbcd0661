// Takes a refusal at its word: the text with the offered word in place of its own.
#pragma once

#include <sstream>
#include <string>

namespace splitkv::testing_support {

// `fits` may offer several words ("align=16, align=8"): the first is taken.
inline std::string with_word(const std::string& text, const std::string& fits) {
  const std::string offered = fits.substr(0, fits.find_first_of(", "));
  const std::string key = offered.substr(0, offered.find('=') + 1);
  std::istringstream words(text);
  std::string result, word;
  while (words >> word)
    if (!word.starts_with(key)) result += word + " ";
  return result + offered;
}

}  // namespace splitkv::testing_support
