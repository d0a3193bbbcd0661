#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <limits>
#include <optional>
#include <system_error>

#include "tools/splitkv/run.hpp"

namespace splitkv::tool {
namespace {

Error bad(const std::string& option, const std::string& value, const std::string& would_fit) {
  return invalid_argument(fmt::format("{}={}: {}", option, value, would_fit));
}

// The entries of a list with commas between; empty where the text is.
Result<std::vector<std::string>> entries_of(const std::string& option, const std::string& text) {
  std::vector<std::string> entries;
  size_t start = 0;
  while (!text.empty() && start <= text.size()) {
    const size_t end = std::min(text.find(',', start), text.size());
    entries.push_back(text.substr(start, end - start));
    if (entries.back().empty()) {
      return bad(option, text,
                 fmt::format("entry {} is empty; one without it would work", entries.size()));
    }
    start = end + 1;
  }
  return entries;
}

// The whole text as a number of the type; nothing where it is none or does not fit.
template <class Number>
std::optional<Number> number_of(const std::string& text) {
  Number number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, fault] = std::from_chars(text.data(), end, number);
  if (fault != std::errc() || stop != end) return std::nullopt;
  return number;
}

Result<std::vector<int64_t>> numbers_of(const std::string& option, const std::string& text,
                                        const char* would_fit) {
  const auto entries = entries_of(option, text);
  if (!entries) return entries.error();
  std::vector<int64_t> numbers;
  for (const std::string& entry : *entries) {
    const auto number = number_of<int64_t>(entry);
    if (!number) return bad(option, entry, would_fit);
    numbers.push_back(*number);
  }
  return numbers;
}

Outcome check_files(const RunOptions& options) {
  const InputFiles& files = options.files;
  const bool some = !files.q.empty() || !files.k.empty() || !files.v.empty();
  // A problem with v_in_k=on needs no v; load_inputs knows.
  const bool all =
      !files.q.empty() && !files.k.empty() &&
      (!files.v.empty() || options.problem.text.find("v_in_k=on") != std::string::npos);
  if (some && !all) {
    const char* missing = files.q.empty() ? "--q" : files.k.empty() ? "--k" : "--v";
    return invalid_argument(
        fmt::format("{} is missing: --q, --k and --v are given together or not at all", missing));
  }
  if (some && !options.problem.model.empty()) {
    return bad("--model", options.problem.model,
               "tensors from files need a problem text, of which there is one; leave --model out");
  }
  if (some && !options.queries.empty()) {
    return bad("--queries", fmt::format("{}", options.queries.front()),
               "goes with generated inputs; files hold query_len queries a row");
  }
  if (!some && !files.kv_lens.empty()) {
    return bad("--kv-lens", files.kv_lens,
               "goes with --q, --k and --v; for generated inputs --kv-len=N[,N...] would work");
  }
  return Unit{};
}

// By whatever names, whether it is there yet or not.
bool is_one_file(const std::string& a, const std::string& b) {
  namespace fs = std::filesystem;
  if (a == b) return true;
  std::error_code missing, ignored;
  if (fs::equivalent(a, b, missing)) return true;
  const fs::path first = fs::weakly_canonical(fs::absolute(a, ignored), ignored);
  return !first.empty() && first == fs::weakly_canonical(fs::absolute(b, ignored), ignored);
}

Outcome check_outputs(const RunOptions& options) {
  const bool expects = !options.expect_out.empty() || !options.expect_lse.empty();
  const bool writes = !options.out.empty() || !options.lse.empty();
  if ((expects || writes) && !options.problem.model.empty()) {
    return bad("--model", options.problem.model,
               "--out, --lse, --expect-out and --expect-lse need a problem text; `splitkv show "
               "--model` prints those of a model");
  }
  if (!options.out.empty() && is_one_file(options.out, options.lse)) {
    return bad("--lse", options.lse, "is the file of --out; one of its own would work");
  }
  if (writes && options.merges.size() > 1) {
    return bad("--merge", fmt::format("{},{}", options.merges[0], options.merges[1]),
               "--out and --lse hold one run; one variant would fit");
  }
  if (writes && options.schedules.size() > 1) {
    return bad("--schedule", options.schedules[1],
               "is the second; --out and --lse hold one run, and one schedule would fit");
  }
  return Unit{};
}

}  // namespace

Outcome read_lists(RunOptions& options) {
  auto kv_len = numbers_of("--kv-len", options.kv_len_text, "0 to 2147483647 would work");
  if (!kv_len) return kv_len.error();
  options.kv_len = *std::move(kv_len);
  auto queries =
      numbers_of("--queries", options.queries_text, "0 to the problem's query_len would work");
  if (!queries) return queries.error();
  options.queries = *std::move(queries);
  auto merges = entries_of("--merge", options.merge_text);
  if (!merges) return merges.error();
  options.merges = *std::move(merges);
  const auto seed = number_of<uint64_t>(options.seed_text);
  if (!seed) return bad("--seed", options.seed_text, "0 to 18446744073709551615 would work");
  options.seed = *seed;
  return Unit{};
}

Outcome check_options(const RunOptions& options) {
  for (const std::string& merge : options.merges) {
    if (merge == "mlo" || merge == "lse" || merge == "auto") continue;
    return bad("--merge", merge, "mlo, lse, auto, or several with commas between would work");
  }
  if (options.batch < (options.batch_given ? 1 : 0) ||
      options.batch > std::numeric_limits<int32_t>::max()) {
    return bad("--batch", fmt::format("{}", options.batch), "1 or more would work");
  }
  if (options.repeat < 1) {
    return bad("--repeat", fmt::format("{}", options.repeat), "1 or more would work");
  }
  for (const int64_t length : options.kv_len) {
    if (length >= 0 && length <= std::numeric_limits<int32_t>::max()) continue;
    return bad("--kv-len", fmt::format("{}", length), "0 to 2147483647 would work");
  }
  if (const Outcome files = check_files(options); !files) return files;
  return check_outputs(options);
}

Result<std::vector<int32_t>> generated_lengths(const RunOptions& options) {
  std::vector<int32_t> lengths(options.kv_len.begin(), options.kv_len.end());
  if (lengths.empty()) {
    return invalid_argument(
        "--kv-len is missing: --kv-len=8192, or one length a batch row (--kv-len=100,0,7), would "
        "work");
  }
  if (lengths.size() == 1 && options.batch > 1) lengths.assign(size_t(options.batch), lengths[0]);
  if (options.batch != 0 && int64_t(lengths.size()) != options.batch) {
    return invalid_argument(
        fmt::format("--batch={}: --kv-len gives {} lengths; one, or {}, would "
                    "fit",
                    options.batch, lengths.size(), options.batch));
  }
  return lengths;
}

Result<StepForm> step_form(const RunOptions& options, const Problem& problem, size_t batch) {
  StepForm form;
  if (options.queries.empty()) return form;
  if (options.queries.size() != batch) {
    return bad("--queries", fmt::format("{} numbers", options.queries.size()),
               fmt::format("{}, one a batch row, would fit", batch));
  }
  for (const int64_t queries : options.queries) {
    if (queries < 0 || queries > problem.query_len) {
      return bad("--queries", fmt::format("{}", queries),
                 fmt::format("0 to {}, the problem's query_len, would work", problem.query_len));
    }
    form.queries.push_back(int32_t(queries));
  }
  return form;
}

}  // namespace splitkv::tool
