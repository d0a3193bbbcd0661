// Values of command lines of the examples, and what is said of those that do not fit.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace examples {

// What is wrong with the command line: option, value and what would fit.
class BadOption : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

[[noreturn]] inline void refuse(const std::string& option, std::string_view value,
                                const std::string& fits) {
  throw BadOption(option + " " + std::string(value) + " is not understood; " + fits + " would fit");
}

inline constexpr int32_t kMost = std::numeric_limits<int32_t>::max();

inline int32_t number(const std::string& option, std::string_view text, int32_t least,
                      int32_t most) {
  int32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > most) {
    refuse(option, text,
           "a whole number from " + std::to_string(least) + " to " + std::to_string(most));
  }
  return value;
}

// "1,2,3", each at least 0.
inline std::vector<int32_t> numbers(const std::string& option, std::string_view text) {
  std::vector<int32_t> values;
  while (true) {
    const size_t comma = std::min(text.find(','), text.size());
    values.push_back(number(option, text.substr(0, comma), 0, kMost));
    if (comma == text.size()) return values;
    text.remove_prefix(comma + 1);
  }
}

}  // namespace examples
