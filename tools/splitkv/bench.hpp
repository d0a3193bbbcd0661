// `splitkv bench`: options, and the steps between them and a report.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "compiler/target.hpp"
#include "compiler/workload.hpp"
#include "tools/splitkv/bench_compare.hpp"
#include "tools/splitkv/bench_report.hpp"

namespace splitkv::tool {

struct BenchOptions {
  std::string problem;
  int64_t batch = 0;  // 0: not given
  std::vector<int64_t> kv_len;
  std::vector<std::string> schedules;
  std::string schedules_file;
  std::string target;
  TableChoice table;
  std::string only;  // rows whose names hold it
  bool sweep = false;
  int limit = 200;                // schedules of a sweep, a row
  bool best = false;              // of schedules without a name only the fastest is reported
  std::string compare;            // groupings of words; empty: none
  std::vector<std::string> from;  // saved reports that are told again; nothing is measured then
  bool peers = false;
  std::string peers_script;
  std::vector<std::string> only_peers;  // empty: all
  int repeat = 9;
  std::string format;  // empty: text, or for a sweep lines of JSON
  std::string out;
  std::string note;
  bool dtype_given = false, table_given = false, limit_given = false, count_given = false;
  bool measuring_given = false;  // any option that says what is measured, or how
};

// Words of a schedule and what to call it.
struct Variant {
  std::string label;
  std::string words;

  bool operator==(const Variant&) const = default;
};

Outcome check_options(const BenchOptions& options);

// The table's, or the one row of the problem that was given.
Result<std::vector<BenchRow>> chosen_rows(const BenchOptions& options);

// "name: words" or "words": the name ends at a colon with a blank behind it. Without words:
// "default".
Variant variant_of(const std::string& text);

// Those of --schedule and of --schedules-file, a line each, blank lines and lines from # on left
// out; with neither the library's own choice alone.
Result<std::vector<Variant>> chosen_variants(const BenchOptions& options);

// Of the schedule space of the tensor-core family, or of the whole where that does not take the
// problem: `limit` of them, drawn by the seed.
std::vector<Variant> sweep_variants(const Problem& problem, const Target& target, int limit,
                                    uint64_t seed);

// A row that schedules are chosen for.
struct VariantSpace {
  Problem problem;
  Workload workload;
  std::vector<int32_t> kv_len;
  Target target;
  std::vector<Grouping> groupings;  // that are compared
};

// The wanted ones, with splits=best and blocks=best filled in by the cost model (best:2: the
// second best), each schedule of those once; and, of merge, partials and pdl where they are
// compared, the other value for each whose words leave it open. invalid_argument for best on a CPU
// or ill-formed; what a rule refuses stays in the list.
Result<std::vector<Variant>> expanded(const std::vector<Variant>& wanted,
                                      const VariantSpace& space);

// The groupings of --compare; none without it.
Result<std::vector<Grouping>> chosen_groupings(const BenchOptions& options);

// Runs the helper script on all rows and adds to each what it measured, or why not. An error where
// the script itself cannot run.
struct PeerRun {
  std::string script;
  int ordinal = 0;
  int64_t l2_bytes = 0;
  int repeat = 9;
  std::vector<std::string> only;  // peers by name; empty: all
};
std::string peer_request(const PeerRun& run, const std::vector<RowReport>& reports);
Outcome take_peer_line(const std::string& line, std::vector<RowReport>& reports);
Outcome run_peers(const PeerRun& run, std::vector<RowReport>& reports);

// Measures rows one after the other; `done` is given each as soon as it is there. On CUDA only.
using RowDone = std::function<void(const RowReport&)>;
Result<std::vector<RowReport>> measure_rows(const BenchOptions& options, int ordinal,
                                            BenchHeader& header, const RowDone& done);
// The same on "cpu" or "cpu:NAME", against the wall clock.
Result<std::vector<RowReport>> measure_rows_on_cpu(const BenchOptions& options,
                                                   const std::string& device, BenchHeader& header,
                                                   const RowDone& done);

}  // namespace splitkv::tool
