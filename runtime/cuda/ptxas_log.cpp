#include <charconv>
#include <optional>

#include "runtime/cuda/nvrtc.hpp"

namespace splitkv {
namespace {

// The text between `before` and the next `after` on the line.
std::optional<std::string> between(std::string_view line, std::string_view before, char after) {
  const size_t begin = line.find(before);
  if (begin == std::string_view::npos) return std::nullopt;
  line.remove_prefix(begin + before.size());
  return std::string(line.substr(0, line.find(after)));
}

// The number that stands right before `unit`: 24 in "..., 24 bytes spill stores, ...".
int number_before(std::string_view line, std::string_view unit) {
  const size_t end = line.find(unit);
  if (end == std::string_view::npos) return 0;
  size_t begin = end;
  while (begin > 0 && line[begin - 1] >= '0' && line[begin - 1] <= '9') --begin;
  int value = 0;
  std::from_chars(line.data() + begin, line.data() + end, value);
  return value;
}

}  // namespace

// An entry opens with "Compiling entry function 'NAME'", then come "Function properties for NAME"
// with stack and spills on the next line, and "Used N registers". Device functions that were not
// inlined have properties of their own, which belong to no entry.
std::vector<PtxasEntry> parse_ptxas_log(std::string_view log) {
  std::vector<PtxasEntry> entries;
  bool of_entry = false;
  while (!log.empty()) {
    const size_t end = std::min(log.find('\n'), log.size());
    const std::string_view line = log.substr(0, end);
    log.remove_prefix(std::min(end + 1, log.size()));
    if (const auto name = between(line, "Compiling entry function '", '\'')) {
      entries.push_back({.name = *name});
      of_entry = false;
    } else if (const auto function = between(line, "Function properties for ", ' ')) {
      of_entry = !entries.empty() && *function == entries.back().name;
    } else if (of_entry && line.find(" bytes stack frame") != std::string_view::npos) {
      entries.back().stack_bytes = number_before(line, " bytes stack frame");
      entries.back().spill_store_bytes = number_before(line, " bytes spill stores");
      entries.back().spill_load_bytes = number_before(line, " bytes spill loads");
    } else if (!entries.empty() && line.find(" registers") != std::string_view::npos) {
      entries.back().registers = number_before(line, " registers");
      entries.back().smem_bytes = number_before(line, " bytes smem");
    }
  }
  return entries;
}

}  // namespace splitkv
