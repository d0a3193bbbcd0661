#include "tests/emulator/translate.hpp"

#include <algorithm>

#include "tests/emulator/assembly.hpp"
#include "tests/emulator/scan.hpp"

namespace emulator {
namespace {

constexpr size_t kNowhere = std::string_view::npos;

// Puts what `rewrite` makes of each place where `word` stands; it returns how much it took.
template <class Rewrite>
std::string rewrite_each(std::string_view text, std::string_view word, const Rewrite& rewrite) {
  std::string result;
  size_t done = 0;
  for (size_t at = find_word(text, word, 0); at != kNowhere; at = find_word(text, word, done)) {
    result += text.substr(done, at - done);
    done = rewrite(at, result);
    result.append(size_t(std::count(text.begin() + long(at), text.begin() + long(done), '\n')),
                  '\n');
  }
  return result += text.substr(done);
}

std::string rewrite_assembly(std::string_view text) {
  return rewrite_each(text, "asm", [&](size_t at, std::string& result) {
    size_t open = past_blanks(text, at + 3);
    if (text.substr(open, 8) == "volatile") open = past_blanks(text, open + 8);
    if (open >= text.size() || text[open] != '(') throw CannotTranslate{"asm without a statement"};
    const size_t close = past_brackets(text, open);
    result += translate_assembly(text.substr(open + 1, close - open - 2));
    const size_t end = past_blanks(text, close);
    if (end >= text.size() || text[end] != ';') throw CannotTranslate{"asm without a semicolon"};
    return end + 1;
  });
}

// The argument of a macro call such as __align__(1024), where it stands in `text`.
std::string argument_of(std::string_view text, std::string_view macro) {
  const size_t at = find_word(text, macro, 0);
  if (at == kNowhere) return "";
  const size_t open = text.find('(', at);
  return std::string(text.substr(open + 1, past_brackets(text, open) - open - 2));
}

// extern __shared__ [__align__(n)] T name[];
std::string rewrite_shared(std::string_view text, std::string& alignment) {
  return rewrite_each(text, "extern", [&](size_t at, std::string& result) {
    const size_t next = past_blanks(text, at + 6);
    if (text.substr(next, 10) != "__shared__") {
      result += "extern";
      return at + 6;
    }
    const size_t end = text.find(';', next);
    std::string_view declared = text.substr(next + 10, end - next - 10);
    if (const std::string given = argument_of(declared, "__align__"); !given.empty()) {
      alignment = given;
      declared.remove_prefix(declared.find(')') + 1);
    }
    const std::string words = trimmed(declared.substr(0, declared.find('[')));
    const size_t space = words.rfind(' ');
    const std::string type = words.substr(0, space);
    result += type + "* const" + words.substr(space) + " = reinterpret_cast<" + type +
              "*>(::emulator::dynamic_shared());";
    return end + 1;
  });
}

// The Entry of the __global__ function whose declaration is `head`, up to its body.
std::string entry_of(std::string_view head, const std::string& alignment) {
  const size_t parameters = head.rfind('(');
  size_t begin = parameters;
  while (begin > 0 && is_word(head[begin - 1])) --begin;
  const std::string name(head.substr(begin, parameters - begin));
  const auto first_of = [&](std::string_view macro, const char* otherwise) {
    const std::string argument = argument_of(head, macro);
    return argument.empty() ? std::string(otherwise) : cut(argument, ',').front();
  };
  const std::string sizes = "decltype(::emulator::sizes_of(&" + name + "))";
  return "\nextern \"C\" const ::emulator::Entry emulated_" + name + ";" +
         "\nconst ::emulator::Entry emulated_" + name +
         " = {[](void** parameters) { ::emulator::call(&" + name + ", parameters); }, " + sizes +
         "::bytes, " + sizes + "::count, " + first_of("__launch_bounds__", "1024") + ", " +
         first_of("__cluster_dims__", "1") + ", " + alignment + "};\n";
}

}  // namespace

std::string translate(std::string_view source) {
  std::string alignment = "16";
  std::string text = rewrite_shared(rewrite_assembly(source), alignment);
  std::string entries;
  for (size_t at = find_word(text, "__global__", 0); at != kNowhere;
       at = find_word(text, "__global__", at + 1)) {
    entries += entry_of(std::string_view(text).substr(at, text.find('{', at) - at), alignment);
  }
  return text + entries;
}

}  // namespace emulator
