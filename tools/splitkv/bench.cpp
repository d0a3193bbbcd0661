#include "tools/splitkv/bench.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <memory>

#include "runtime/splitkv.h"
#include "tools/splitkv/choices.hpp"
#include "tools/splitkv/verb.hpp"

namespace splitkv::tool {
namespace {

std::string today() {
  const std::time_t now = std::time(nullptr);
  char text[32] = "";
  std::tm parts{};
  if (gmtime_r(&now, &parts) != nullptr) std::strftime(text, sizeof(text), "%Y-%m-%d", &parts);
  return text;
}

// Where the report goes as it comes: the file of --out, or stdout.
class Output {
 public:
  Outcome open(const std::string& path) {
    path_ = path;
    if (path.empty()) return Unit{};
    file_.open(path, std::ios::trunc);
    if (file_) return Unit{};
    return invalid_argument(fmt::format("--out={}: cannot be written", path));
  }
  void write(const std::string& text) {
    if (path_.empty()) {
      std::fwrite(text.data(), 1, text.size(), stdout);
      std::fflush(stdout);
    } else {
      file_ << text;
      file_.flush();
    }
  }
  Outcome finish() {
    if (path_.empty() || file_.good()) return Unit{};
    return invalid_argument(fmt::format("--out={}: writing failed", path_));
  }

 private:
  std::string path_;
  std::ofstream file_;
};

bool is_text(const BenchOptions& options) {
  return options.format.empty() || options.format == "text";
}

// A sweep that nothing is made of: a line of JSON for each schedule.
bool is_listing(const BenchOptions& options) { return options.sweep && options.compare.empty(); }

// Whether rows are written as they are done. What --best leaves out is known at the end.
bool comes_by_row(const BenchOptions& options) {
  return is_listing(options) ||
         (is_text(options) && !options.peers && !options.best && options.from.empty());
}

// What is written of one row as soon as it is there; the other forms come at the end.
std::string row_text(const BenchOptions& options, const RowReport& report) {
  if (is_listing(options)) {
    std::string lines;
    for (const OurTime& ours : report.ours) lines += json_line_of(report, ours);
    return lines;
  }
  return comes_by_row(options) ? text_of(report) : "";
}

std::string whole_text(const BenchOptions& options, const BenchHeader& header,
                       const std::vector<RowReport>& reports,
                       const std::vector<Comparison>& comparisons) {
  if (is_listing(options)) return "";
  if (options.format == "json") return json_of(header, reports, comparisons);
  std::string text;
  if (options.format == "markdown") {
    text = markdown_of(header, reports);
    for (const Comparison& comparison : comparisons) text += markdown_of(comparison);
    return text;
  }
  text = header_text(header) + "\n";
  if (!comes_by_row(options)) {
    for (const RowReport& report : reports) text += text_of(report);
  }
  for (const Comparison& comparison : comparisons) text += "\n" + text_of(comparison);
  return text;
}

// The report of what was measured earlier, with other forms, comparisons or fewer schedules.
Result<int> report_saved(const BenchOptions& options) {
  BenchHeader header;
  Result<std::vector<RowReport>> reports = read_reports(options.from, header);
  if (!reports) return reports.error();
  std::erase_if(*reports, [&](const RowReport& report) {
    return report.row.name.find(options.only) == std::string::npos;
  });
  if (reports->empty()) {
    return invalid_argument(
        fmt::format("--row={}: is in no row's name of the files of --from; a "
                    "part of one would work",
                    options.only));
  }
  if (!options.note.empty()) header.note = options.note;
  const auto groupings = chosen_groupings(options);
  if (!groupings) return groupings.error();
  const auto comparisons = compare(*groupings, *reports);
  if (!comparisons) return comparisons.error();
  Output output;
  if (const Outcome opened = output.open(options.out); !opened) return opened.error();
  if (options.best) {
    for (RowReport& report : *reports) keep_best(report);
  }
  output.write(whole_text(options, header, *reports, *comparisons));
  if (const Outcome finished = output.finish(); !finished) return finished.error();
  return kExitOk;
}

// On stderr, for who waits.
void tell_progress(const RowReport& report) {
  const OurTime* best = best_of(report);
  const std::string best_text = best != nullptr ? fmt::format("{:.2f} us", best->us) : "none";
  fmt::print(stderr, "{}: floor {:.2f} us, best {} of {}{}\n", report.row.name, report.floor_us,
             best_text, report.ours.size(),
             report.refused > 0 ? fmt::format(" ({} do not fit)", report.refused) : "");
}

bool is_cuda(const std::string& device) { return device.starts_with("cuda:"); }

Result<std::vector<RowReport>> measured(const BenchOptions& options, const std::string& device,
                                        BenchHeader& header, const RowDone& done) {
#ifdef SPLITKV_HAS_CUDA
  if (is_cuda(device)) {
    return measure_rows(options, std::atoi(device.c_str() + 5), header, done);
  }
#endif
  return measure_rows_on_cpu(options, device, header, done);
}

// What other implementations take for the same rows, or what they took where they were measured.
Outcome add_peers(const BenchOptions& options, const std::string& device,
                  std::vector<RowReport>& reports) {
  if (!options.peers) return Unit{};
  const Result<Target> target = chosen_target(device);
  if (!target) return target.error();
  const PeerRun run{options.peers_script, std::atoi(device.c_str() + 5), target->l2_bytes,
                    options.repeat, options.only_peers};
  const Outcome ran = run_peers(run, reports);
  for (RowReport& report : reports) add_handed_peers(report);
  return ran;
}

int status_of(const BenchOptions& options, const std::vector<RowReport>& reports) {
  for (const RowReport& report : reports) {
    if (!report.broken.empty() || (is_failed(report) && !options.sweep)) return kExitCheckFailed;
  }
  return kExitOk;
}

Result<int> bench(BenchOptions options) {
  if (const Outcome fit = check_options(options); !fit) return fit.error();
  if (!options.from.empty()) return report_saved(options);
  const Result<std::string> device = chosen_device(options.target);
  if (device.ok() && !is_cuda(*device) && !options.table_given) options.table.table = "cpu";
  if (const auto rows = chosen_rows(options); !rows) return rows.error();
  if (const auto variants = chosen_variants(options); !variants) return variants.error();
  if (!device) return device.error();
  if (options.peers && !is_cuda(*device)) {
    return invalid_argument(fmt::format(
        "--target={}: --peers measures CUDA devices; without it, or with --target=cuda:0, it would "
        "work",
        *device));
  }
  Output output;
  if (const Outcome opened = output.open(options.out); !opened) return opened.error();
  BenchHeader header;
  header.date = today();
  header.version = splitkv_version();
  header.note = options.note;
  Result<std::vector<RowReport>> reports =
      measured(options, *device, header, [&](const RowReport& report) {
        tell_progress(report);
        output.write(row_text(options, report));
      });
  if (!reports) return reports.error();
  const auto groupings = chosen_groupings(options);
  if (!groupings) return groupings.error();
  const auto comparisons = compare(*groupings, *reports);
  if (!comparisons) return comparisons.error();
  if (options.best) {
    for (RowReport& report : *reports) keep_best(report);
  }
  // Where the peers fail, what was measured before is written all the same.
  const Outcome added = add_peers(options, *device, *reports);
  output.write(whole_text(options, header, *reports, *comparisons));
  if (!added) return added.error();
  if (const Outcome finished = output.finish(); !finished) return finished.error();
  return status_of(options, *reports);
}

void add_selection(CLI::App* verb, BenchOptions& options) {
  verb->add_option("problem", options.problem, "the problem; without one, the rows of --table");
  verb->add_option("--batch", options.batch, "batch rows of the problem");
  verb->add_option("--kv-len", options.kv_len, "tokens: one for all rows, or one a row")
      ->delimiter(',')
      ->allow_extra_args(false);
  verb->add_option("--table", options.table.table,
                   "uniform, ragged, models, mla, all, random or cpu");
  verb->add_option("--count", options.table.count, "rows of --table random (20)");
  verb->add_option("--row", options.only, "only rows of the table whose names hold this");
  verb->add_option("--dtype", options.table.dtype, "of the tables: bf16 or fp16");
  verb->add_flag("--paged", options.table.paged, "the tables with kv_layout=paged:16:nhd");
  verb->add_option("--seed", options.table.seed,
                   "of values, pages, drawn rows and lengths, and --sweep");
}

void add_measuring(CLI::App* verb, BenchOptions& options) {
  verb->add_option("--target", options.target, "cpu, cpu:NAME, cuda, cuda:N");
  verb->add_option("--schedule", options.schedules,
                   "words of a schedule, or \"NAME: words\"; given again, each is measured")
      ->allow_extra_args(false);
  verb->add_option("--schedules-file", options.schedules_file,
                   "schedules, a line each, as --schedule takes them");
  verb->add_flag("--sweep", options.sweep,
                 "schedules drawn from the whole space; a line of JSON each");
  verb->add_option("--compare", options.compare,
                   "what wins where: words of schedules, as partition+reduce,merge,pdl");
  verb->add_option("--from", options.from,
                   "reports what such JSON holds, instead of measuring; may be given again")
      ->allow_extra_args(false);
  verb->add_flag("--best", options.best, "of schedules without a name, report only the fastest");
  verb->add_option("--limit", options.limit, "schedules a row that --sweep draws");
  verb->add_flag("--peers", options.peers, "measure other implementations too, through Python");
  verb->add_option("--peers-script", options.peers_script, "where bench_peers.py is");
  verb->add_option("--only-peers", options.only_peers, "of those, cudnn, flash2, flex, flashinfer")
      ->delimiter(',')
      ->allow_extra_args(false);
  verb->add_option("--repeat", options.repeat, "timed replays of each graph");
  verb->add_option("--format", options.format, "text, json or markdown");
  verb->add_option("--out", options.out, "writes the report here");
  verb->add_option("--note", options.note, "goes into the report's header: a commit, say");
}

}  // namespace

void add_bench(CLI::App& app, int& status) {
  CLI::App* verb = app.add_subcommand(
      "bench", "Measures problems beside the fastest plain read of the same bytes");
  const auto options = std::make_shared<BenchOptions>();
  add_selection(verb, *options);
  add_measuring(verb, *options);
  verb->callback([options, verb, &status] {
    options->dtype_given = verb->count("--dtype") > 0;
    options->table_given = verb->count("--table") > 0;
    options->limit_given = verb->count("--limit") > 0;
    options->count_given = verb->count("--count") > 0;
    for (const char* option :
         {"--batch", "--kv-len", "--table", "--count", "--dtype", "--paged", "--seed", "--target",
          "--schedule", "--schedules-file", "--sweep", "--limit", "--peers", "--peers-script",
          "--only-peers", "--repeat"}) {
      options->measuring_given |= verb->count(option) > 0;
    }
    const Result<int> ran = bench(*options);
    status = ran.ok() ? *ran : report(ran.error());
  });
}

}  // namespace splitkv::tool
