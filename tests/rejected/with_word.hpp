// Takes a refusal at its word: the text with the offered word in place of its own.
#pragma once

#include <algorithm>
#include <sstream>
#include <string>
#include <utility>

namespace splitkv::testing_support {

// `fits` may offer alternatives ("align=16, align=8", "softcap=0 (none) or softcap=50"): the first
// is taken, with all its words.
inline std::string with_word(const std::string& text, const std::string& fits) {
  const size_t end = std::min({fits.find(", "), fits.find(" or "), fits.find(" (")});
  std::istringstream offered(fits.substr(0, end));
  std::string result = text, offer;
  while (offered >> offer) {
    const std::string key = offer.substr(0, offer.find('=') + 1);
    std::istringstream words(std::exchange(result, ""));
    std::string word;
    while (words >> word)
      if (!word.starts_with(key)) result += word + " ";
    result += offer;
  }
  return result;
}

}  // namespace splitkv::testing_support
