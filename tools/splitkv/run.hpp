// `splitkv run`, taken apart: options, one case, its report.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/splitkv/choices.hpp"
#include "tools/splitkv/execute.hpp"
#include "tools/splitkv/inputs.hpp"
#include "tools/splitkv/partials.hpp"
#include "tools/splitkv/verdict.hpp"

namespace splitkv::tool {

struct RunOptions {
  ProblemWords problem;
  int64_t batch = 0;  // 0: as many as lengths or files say
  bool batch_given = false;
  std::vector<int64_t> kv_len;
  std::vector<int64_t> queries;  // of each row; empty: query_len each
  std::string kv_len_text, queries_text, merge_text, seed_text = "0";  // as given
  std::string target;
  std::vector<std::string> schedules;  // each runs in turn; empty: the library's choice
  std::vector<std::string> merges;     // each runs in turn; empty: as the problem says
  uint64_t seed = 0;
  int repeat = 10;
  bool check = false;
  InputFiles files;
  std::string expect_out, expect_lse;
  std::string out, lse;

  bool from_files() const { return !files.q.empty(); }
};

// Reads the texts into kv_len, queries, merges and seed. Refuses what is no number, and empty
// places of a list.
Outcome read_lists(RunOptions& options);

// Refuses combinations and ranges that cannot be, naming the option.
Outcome check_options(const RunOptions& options);

// Lengths of generated inputs, one a batch row.
Result<std::vector<int32_t>> generated_lengths(const RunOptions& options);

// What the flags say of a generated step besides its lengths.
Result<StepForm> step_form(const RunOptions& options, const Problem& problem, size_t batch);

struct Judged {
  Expected expected;
  reference::Tolerance tolerance;
  reference::Accuracy accuracy;
};

void print_inputs(const RunOptions& options, const Problem& problem, const Inputs& inputs);
void print_execution(const Problem& problem, const Inputs& inputs, const Execution& execution,
                     const PartialCount& partials);
void print_judged(const Judged& judged, const Execution& execution);

}  // namespace splitkv::tool
