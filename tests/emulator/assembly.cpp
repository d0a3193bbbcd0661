#include "tests/emulator/assembly.hpp"

#include <cctype>
#include <map>

#include "tests/emulator/instruction_table.hpp"
#include "tests/emulator/scan.hpp"

namespace emulator {
namespace {

// "ab\n" "c" is a, b, a line's end and c.
std::string unquoted(std::string_view literals) {
  std::string text;
  for (size_t at = past_blanks(literals, 0); at < literals.size(); at = past_blanks(literals, at)) {
    if (literals[at] != '"') throw CannotTranslate{"the text of an asm statement is no literal"};
    for (++at; literals[at] != '"'; ++at) {
      const bool escaped = literals[at] == '\\';
      if (escaped) ++at;
      text += escaped && literals[at] == 'n' ? '\n' : literals[at];
    }
    ++at;
  }
  return text;
}

// The type that a constraint's register has.
std::string type_of(const std::string& constraint) {
  static const std::map<char, std::string> types = {
      {'r', "::emulator::u32"}, {'l', "::emulator::u64"}, {'h', "::emulator::u16"},
      {'f', "float"},           {'d', "double"},          {'n', "int"}};
  const auto type = types.find(constraint.back());
  if (type == types.end()) throw CannotTranslate{"unknown constraint of asm: " + constraint};
  return type->second;
}

// Operands %0, %1 ... as variables: results are references, the others copies.
std::string declare_operands(const std::vector<std::string>& sections) {
  std::string declared;
  int number = 0;
  for (size_t section = 1; section < sections.size() && section < 3; ++section) {
    if (trimmed(sections[section]).empty()) continue;
    for (const std::string& piece : cut(sections[section], ',')) {
      const std::string operand = trimmed(piece);
      const size_t expression = operand.find('(');
      const std::string constraint = unquoted(operand.substr(0, expression));
      const std::string value = operand.substr(expression);
      const std::string name = "operand_" + std::to_string(number++);
      if (section == 1) {
        declared += "auto& " + name + " = " + value + "; ";
      } else if (constraint == "l") {  // pointers too
        declared += "const ::emulator::u64 " + name + " = (::emulator::u64)" + value + "; ";
      } else {
        const std::string type = type_of(constraint);
        declared += "const " + type + " " + name + " = " + type + value + "; ";
      }
    }
  }
  return declared;
}

// One operand of an instruction, as C++.
std::string operand_of(const std::string& text) {
  if (text == "_") return "::emulator::ptx::Nothing()";
  if (text[0] == '%') return "operand_" + text.substr(1);
  if (text[0] == '[') {
    std::string inside;
    for (const std::string& piece : cut(text.substr(1, text.size() - 2), ','))
      inside += (inside.empty() ? "" : ", ") + operand_of(trimmed(piece));
    return inside;
  }
  if (text[0] == '{') {
    std::string inside = "::emulator::ptx::group(";
    for (const std::string& piece : cut(text.substr(1, text.size() - 2), ','))
      inside += (inside.back() == '(' ? "" : ", ") + operand_of(trimmed(piece));
    return inside + ")";
  }
  if (text[0] == '-' || std::isdigit(static_cast<unsigned char>(text[0])) != 0) return text;
  return "register_" + text;
}

// ".reg .pred p, q"
std::string declare_registers(const std::string& statement) {
  static const std::map<std::string, std::string> types = {
      {".pred", "bool"},           {".b16", "::emulator::u16"},
      {".u16", "::emulator::u16"}, {".b32", "::emulator::u32"},
      {".u32", "::emulator::u32"}, {".b64", "::emulator::u64"},
      {".u64", "::emulator::u64"}, {".f32", "float"}};
  const std::string rest = trimmed(statement.substr(4));
  const size_t space = rest.find(' ');
  const auto type = types.find(rest.substr(0, space));
  if (type == types.end()) throw CannotTranslate{"unknown registers of PTX: " + statement};
  std::string declared;
  for (const std::string& name : cut(rest.substr(space), ','))
    declared += type->second + " register_" + trimmed(name) + "{}; ";
  return declared;
}

// "@p " and "@!p " before an instruction.
std::string take_condition(std::string& statement) {
  if (statement[0] != '@') return "";
  const size_t space = statement.find(' ');
  const bool negated = statement[1] == '!';
  const std::string name = statement.substr(negated ? 2 : 1, space - (negated ? 2 : 1));
  statement = trimmed(statement.substr(space));
  return std::string("if (") + (negated ? "!" : "") + operand_of(name) + ") ";
}

std::string translate_statement(std::string statement) {
  if (statement.starts_with(".reg ")) return declare_registers(statement);
  const std::string condition = take_condition(statement);
  const size_t space = std::min(statement.find_first_of(" \t\n"), statement.size());
  const std::string opcode = statement.substr(0, space);
  const std::string function = function_of(opcode);
  if (function.empty()) throw CannotTranslate{"unknown instruction of PTX: " + opcode};
  std::string call = condition + "::emulator::ptx::" + function + "(\"" + opcode + "\"";
  const std::string operands = trimmed(statement.substr(space));
  if (!operands.empty()) {
    for (const std::string& operand : cut(operands, ','))
      call += ", " + operand_of(trimmed(operand));
  }
  return call + "); ";
}

}  // namespace

std::string translate_assembly(std::string_view inside) {
  const std::vector<std::string> sections = cut(inside, ':');
  const std::string text = trimmed(unquoted(sections[0]));
  std::string code = "{ " + declare_operands(sections);
  // Braces around all are a scope of registers, which the block is anyway.
  const bool has_scope = text.starts_with("{") && past_brackets(text, 0) == text.size();
  const std::string body = has_scope ? text.substr(1, text.size() - 2) : text;
  for (const std::string& statement : cut(body, ';')) {
    if (!trimmed(statement).empty()) code += translate_statement(trimmed(statement));
  }
  return code + "}";
}

}  // namespace emulator
