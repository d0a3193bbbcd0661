#include "codegen/writer.hpp"

namespace splitkv {

void Writer::line(std::string_view text) {
  if (!text.empty()) text_.append(indent_, ' ').append(text);
  text_ += '\n';
}

void Writer::open(std::string_view text) {
  line(text);
  indent_ += 2;
}

void Writer::close(std::string_view text) {
  indent_ -= 2;
  line(text);
}

void Writer::raw(std::string_view text) { text_ += text; }

}  // namespace splitkv
