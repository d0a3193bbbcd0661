#include "codegen/cuda/flatten.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <vector>

#include "codegen/embedded.hpp"

namespace splitkv {
namespace {

std::string_view template_text(std::string_view name) {
  for (const EmbeddedFile& file : embedded_templates()) {
    if (file.name == name) return file.text;
  }
  assert(!"a template includes a header that templates/ does not hold");
  return {};
}

class Flattener {
 public:
  void add(std::string_view name) {
    if (std::find(done_.begin(), done_.end(), name) != done_.end()) return;
    done_.push_back(name);
    std::string body;
    std::string_view rest = template_text(name);
    while (!rest.empty()) {
      const size_t end = std::min(rest.find('\n'), rest.size() - 1);
      const std::string_view line = rest.substr(0, end + 1);
      rest.remove_prefix(end + 1);
      if (line.starts_with("#include \"")) {
        add(line.substr(10, line.find('"', 10) - 10));
      } else if (!line.starts_with("#pragma once")) {
        body += line;
      }
    }
    text_ += fmt::format("// ---- {} ----\n{}\n", name, squeeze(body));
  }

  std::string take() { return std::move(text_); }

 private:
  // Runs of blank lines, left where includes were, become one.
  static std::string squeeze(std::string_view body) {
    std::string out;
    for (char c : body) {
      const bool third = c == '\n' && out.ends_with("\n\n");
      if (!third) out += c;
    }
    return out;
  }

  std::vector<std::string_view> done_;
  std::string text_;
};

}  // namespace

std::string flatten_templates(std::span<const std::string_view> roots) {
  Flattener flattener;
  for (std::string_view root : roots) flattener.add(root);
  return flattener.take();
}

}  // namespace splitkv
