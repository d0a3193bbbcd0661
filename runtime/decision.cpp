#include "runtime/decision.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/text.hpp"
#include "compiler/verifier.hpp"
#include "runtime/kernel_key.hpp"
#include "runtime/splitkv.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace splitkv {
namespace {

constexpr std::string_view kFirstLine = "splitkv-decision 1\n", kSum = "sum=";

std::string sum_of(std::string_view text) {
  return fmt::format("{:016x}", XXH3_64bits(text.data(), text.size()));
}

Error differs(const char* field, std::string_view decided, std::string_view here) {
  return invalid_argument(
      fmt::format("the decision is for {}={}, and here it is {}={}; one that was exported where "
                  "they are equal would fit",
                  field, decided, field, here));
}

}  // namespace

std::string decision_arch(const Target& target) { return print(target); }

std::string encode_decision(const Decision& decision) {
  std::string why = decision.why;
  std::replace(why.begin(), why.end(), '\n', ' ');
  const std::string text =
      fmt::format("{}splitkv={}\nproblem={}\narch={}\nschedule={}\nwhy={}\n", kFirstLine,
                  decision.version, decision.problem, decision.arch, decision.schedule, why);
  return fmt::format("{}{}{}\n", text, kSum, sum_of(text));
}

Result<Decision> decode_decision(std::string_view bytes) {
  if (!bytes.starts_with(kFirstLine)) {
    return invalid_argument(
        "the bytes are no decision of this format; what splitkv_export_decision wrote would fit");
  }
  const size_t at = bytes.rfind(kSum);
  if (at == std::string_view::npos ||
      bytes.substr(at + kSum.size()) != sum_of(bytes.substr(0, at)) + '\n') {
    return invalid_argument(
        "the decision is damaged or cut: its sum is not that of its text; all bytes that "
        "splitkv_export_decision wrote would fit");
  }
  const std::string_view text = bytes.substr(0, at);
  const auto word = [&](std::string_view name) { return std::string(key_word(text, name)); };
  return Decision{word("splitkv"), word("problem"), word("arch"), word("schedule"), word("why")};
}

Result<Schedule> decided_schedule(const Decision& decision, const Problem& problem,
                                  const Target& target) {
  if (decision.version != splitkv_version()) {
    return differs("splitkv", decision.version, splitkv_version());
  }
  if (const std::string here = print(problem); decision.problem != here) {
    return differs("problem", decision.problem, here);
  }
  if (const std::string here = decision_arch(target); decision.arch != here) {
    return differs("arch", decision.arch, here);
  }
  const Result<Schedule> schedule = parse_schedule(decision.schedule);
  if (!schedule) return schedule.error();
  if (const auto refusal = verify(problem, *schedule, target)) return to_error(*refusal);
  return *schedule;
}

}  // namespace splitkv
