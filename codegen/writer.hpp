// Writes indented source, line by line, top to bottom like the file it makes.
#pragma once

#include <string>
#include <string_view>

namespace splitkv {

class Writer {
 public:
  void line(std::string_view text = {});  // indented unless empty
  void open(std::string_view text);       // a line, then two more spaces
  void close(std::string_view text);      // two spaces fewer, then a line
  void raw(std::string_view text);        // as it is

  size_t size() const { return text_.size(); }  // of what is written so far
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
  int indent_ = 0;
};

}  // namespace splitkv
