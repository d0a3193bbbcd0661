#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "compiler/resources.hpp"
#include "compiler/text.hpp"
#include "tools/splitkv/run.hpp"

namespace splitkv::tool {
namespace {

int64_t visible_tokens(const Problem& problem, const Inputs& inputs) {
  int64_t tokens = 0;
  const Rows rows = rows_of(problem, inputs);
  for (int64_t row = 0; row < inputs.batch; ++row) {
    const KeyRange range = key_range(problem, rows, row);
    tokens += range.end - range.first;
  }
  return tokens;
}

std::string print_lengths(const std::vector<int32_t>& lengths) {
  const auto [least, greatest] = std::minmax_element(lengths.begin(), lengths.end());
  if (*least == *greatest) return fmt::format("{}", *least);
  if (lengths.size() <= 16) return fmt::format("{}", fmt::join(lengths, ","));
  return fmt::format("{} to {}", *least, *greatest);
}

std::string print_code(const Execution& execution) {
  std::string text = fmt::format("{} bytes of code", execution.module_bytes);
  if (execution.registers_split == 0) return text;
  text += fmt::format(", split {} registers and {} local bytes a thread", execution.registers_split,
                      execution.local_bytes_split);
  if (execution.registers_reduce == 0) return text;
  return text + fmt::format(", reduce {} and {}", execution.registers_reduce,
                            execution.local_bytes_reduce);
}

std::string print_origin(const Execution& execution) {
  if (execution.origin == "memory") return " (found in memory)";
  if (execution.origin == "disk")
    return fmt::format(" (found on disk in {:.2f} ms)", execution.disk_ms);
  return "";
}

std::string print_partials(const Problem& problem, const Execution& execution,
                           const PartialCount& partials) {
  const std::string sequences =
      fmt::format("{} of {} sequences divided", partials.divided, partials.sequences);
  if (partials.partials == 0) {
    const std::string joined =
        partials.pieces == 0 ? "" : fmt::format("; {} pieces joined in clusters", partials.pieces);
    return fmt::format("none ({}{})", sequences, joined);
  }
  const Result<Schedule> schedule = parse_schedule(execution.schedule);
  const std::string_view form =
      schedule.ok() ? name(exchanged_merge(problem, *schedule)) : std::string_view("?");
  return fmt::format("{} of {}, {} bytes ({})", partials.partials, form, partials.bytes, sequences);
}

}  // namespace

void print_inputs(const RunOptions& options, const Problem& problem, const Inputs& inputs) {
  const std::string origin =
      options.from_files() ? std::string("from files") : fmt::format("seed {}", options.seed);
  fmt::print("inputs    {}, batch {}, kv_len {}, digest {}\n", origin, inputs.batch,
             print_lengths(inputs.kv_len), digest(problem, inputs));
}

void print_execution(const Problem& problem, const Inputs& inputs, const Execution& execution,
                     const PartialCount& partials) {
  const double ms = median(execution.run_ms);
  const int64_t bytes = kv_bytes(problem, visible_tokens(problem, inputs));
  fmt::print("target    {}\n", execution.target);
  fmt::print("problem   {}\n", execution.problem);
  fmt::print("schedule  {}\n", execution.schedule);
  fmt::print("why       {}\n", execution.why);
  fmt::print("compile   {:.1f} ms{}, {}\n", execution.compile_ms, print_origin(execution),
             print_code(execution));
  fmt::print("run       {:.4f} ms, the median of {} runs after one for warm-up, by {}\n", ms,
             execution.run_ms.size(), execution.clock);
  fmt::print("kv        {} bytes, {:.2f} GB/s (caches are warm between runs)\n", bytes,
             ms > 0 ? double(bytes) / ms * 1e-6 : 0);
  fmt::print("partials  {}\n", print_partials(problem, execution, partials));
}

void print_judged(const Judged& judged, const Execution& execution) {
  const reference::Accuracy& accuracy = judged.accuracy;
  const bool ok = accuracy.ok() && execution.repeatable;
  fmt::print("check     {}", ok ? "ok" : "FAIL");
  if (!judged.expected.out.empty()) {
    fmt::print("  out: relative L2 {:.2e} (row {}), tolerance {:.2e}", accuracy.out_relative_l2,
               accuracy.out_worst_row, accuracy.out_limit);
  }
  if (!judged.expected.lse.empty()) {
    fmt::print("  lse: error {:.2e} (row {}), tolerance {:.2e}", accuracy.lse_error,
               accuracy.lse_worst_row, accuracy.lse_limit);
  }
  fmt::print("  against {}\n", judged.expected.origin);
  if (!accuracy.out_ok) fmt::print("          out is beyond its tolerance\n");
  if (!accuracy.lse_ok) fmt::print("          lse is beyond its tolerance\n");
  if (!execution.repeatable) fmt::print("          the bits of the result differed between runs\n");
}

}  // namespace splitkv::tool
