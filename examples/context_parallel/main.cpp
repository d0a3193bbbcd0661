// One sequence's KV cache split over MPI processes. Each runs attention over what it holds, and
// the partial results are joined across processes; docs/context_parallel.md tells what is shown.
//
//   mpirun -n 4 context_parallel --tokens 65536 --heads 32/8 --dim 128 --check
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "accuracy.hpp"
#include "attention.hpp"
#include "join.hpp"
#include "options.hpp"

namespace context_parallel {
namespace {

struct Variant {
  Merge merge;
  Exchange exchange;
  Shards shards;
  Memory memory;
};

// Of one variant, in this process: of the last run, and the median of all timed ones.
struct Measured {
  double attention_ms = 0, exchange_ms = 0;
  Traffic traffic;  // of one exchange
  Result result;
};

struct Kernels {
  splitkv::Kernel kernel;
  splitkv::Merger merger;
};

class Process {
 public:
  Process(const Options& options, Transport transport)
      : options_(options), transport_(std::move(transport)), runtime_(runtime_options(options)) {
    for (const Merge merge : options.merges) {
      kernels_.push_back(
          {prepare(&merge), runtime_.prepare_merge(options.target, name_of(merge), "natural")});
    }
    if (options.check) hold_everything();
  }

  int rank() const { return transport_.link->rank(); }
  int size() const { return transport_.link->size(); }

  // What one process gives that holds everything, in every process.
  const Result& expected() const { return expected_; }

  Measured measure(const Variant& variant);

 private:
  static splitkv::Options runtime_options(const Options& options) {
    splitkv::Options runtime;
    runtime.threads = options.threads;
    return runtime;
  }

  splitkv::Kernel prepare(const Merge* form) {
    splitkv::Hints hints;
    hints.batch = options_.batch();
    hints.kv_len = std::max<int64_t>(1, options_.tokens / (form != nullptr ? size() : 1));
    return runtime_.prepare(options_.target, problem_of(options_, form), hints);
  }

  std::vector<float> fetch(const float* from, size_t count) {
    std::vector<float> floats(count);
    transport_.place->download(floats.data(), from, count * sizeof(float));
    return floats;
  }

  void hold_everything();
  void plant(const Partials& partials, float* own);

  const Options& options_;
  Transport transport_;
  splitkv::Runtime runtime_;
  std::vector<Kernels> kernels_;  // one of each of options.merges
  Result expected_;
};

void Process::hold_everything() {
  const Partials whole{Merge::lse, options_.rows(), options_.dim};
  std::vector<float> floats(whole.floats());
  if (rank() == 0) {
    const splitkv::Kernel kernel = prepare(nullptr);
    const Attention attention(options_, kernel, whole_of(options_), nullptr, *transport_.place);
    const auto out = transport_.place->allocate(floats.size() * sizeof(float));
    attention.run(whole, static_cast<float*>(out.get()));
    floats = fetch(static_cast<const float*>(out.get()), floats.size());
  }
  MPI_Bcast(floats.data(), int(floats.size()), MPI_FLOAT, 0, MPI_COMM_WORLD);
  expected_ = result_of(whole, floats);
}

// Spoils this process's partials as options.fault says.
void Process::plant(const Partials& partials, float* own) {
  std::vector<float> floats = fetch(own, partials.floats());
  for (int64_t row = 0; row < partials.rows; ++row) {
    float& statistic = partials.statistic(floats.data())[row];
    const bool is_empty = statistic == -std::numeric_limits<float>::infinity();
    if (options_.fault == Fault::lost_shard && rank() == 1 % size())
      statistic = -std::numeric_limits<float>::infinity();
    if (options_.fault == Fault::equal_weights && !is_empty) {
      statistic = 0;
      if (partials.form == Merge::mlo) partials.sum(floats.data())[row] = 1;
    }
  }
  transport_.place->upload(own, floats.data(), floats.size() * sizeof(float));
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

Measured Process::measure(const Variant& variant) {
  Place& place = *transport_.place;
  Link& link = *transport_.link;
  const auto found = std::find(options_.merges.begin(), options_.merges.end(), variant.merge);
  const Kernels& kernels = kernels_[size_t(found - options_.merges.begin())];
  const Shard shard = shard_of(options_, variant.shards, variant.memory, rank(), size());
  const Attention attention(options_, kernels.kernel, shard, &variant.merge, place);
  const Partials partials{variant.merge, options_.rows(), options_.dim};
  const Joiner joiner(partials, kernels.merger, place, link);

  Measured measured;
  std::vector<double> attention_ms, exchange_ms;
  for (int run = -1; run < options_.repeat; ++run) {  // the first one warms up
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = MPI_Wtime();
    attention.run(partials, joiner.own());
    place.wait();
    const double attended = MPI_Wtime();
    if (options_.fault != Fault::none) plant(partials, joiner.own());
    MPI_Barrier(MPI_COMM_WORLD);  // so that nobody's exchange is charged with others' attention
    const Traffic before = link.traffic();
    const double ready = MPI_Wtime();
    variant.exchange == Exchange::gather ? joiner.gather() : joiner.ring();
    place.wait();
    const double joined = MPI_Wtime();
    const Traffic& after = link.traffic();
    measured.traffic = {after.messages_sent - before.messages_sent,
                        after.bytes_sent - before.bytes_sent,
                        after.bytes_received - before.bytes_received};
    if (run < 0) continue;
    attention_ms.push_back((attended - begin) * 1e3);
    exchange_ms.push_back((joined - ready) * 1e3);
  }
  measured.attention_ms = median(attention_ms);
  measured.exchange_ms = median(exchange_ms);
  measured.result = result_of(partials, fetch(joiner.joined(), partials.floats()));
  return measured;
}

// The largest value of all processes, in every process.
double worst(double value) {
  MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return value;
}

// Of each process, in every process.
std::vector<unsigned long long> of_each(uint64_t value, int size) {
  std::vector<unsigned long long> all(static_cast<size_t>(size));
  const unsigned long long own = value;
  MPI_Allgather(&own, 1, MPI_UNSIGNED_LONG_LONG, all.data(), 1, MPI_UNSIGNED_LONG_LONG,
                MPI_COMM_WORLD);
  return all;
}

// Runs a variant everywhere and prints its line in process 0. Whether it passed, in every process.
bool try_variant(Process& process, const Options& options, const Variant& variant) {
  const Measured measured = process.measure(variant);
  const double attention_ms = worst(measured.attention_ms);
  const double exchange_ms = worst(measured.exchange_ms);
  const auto sent = of_each(measured.traffic.bytes_sent, process.size());
  const auto messages = of_each(measured.traffic.messages_sent, process.size());
  unsigned long long bytes = 0, partials = 0;
  for (const auto value : sent) bytes += value;
  for (const auto value : messages) partials += value * uint64_t(options.rows());

  // Each message is one partial of each query row: dim + 1 numbers of 4 bytes, or dim + 2.
  const auto numbers = uint64_t(options.dim + (variant.merge == Merge::mlo ? 2 : 1));
  bool passed = bytes == partials * numbers * sizeof(float);
  std::string line(256, '\0');
  line.resize(size_t(std::snprintf(
      line.data(), line.size(), "%-5s %-8s %-10s %-6s %12.3f %12.3f %10s", name_of(variant.merge),
      name_of(variant.exchange), name_of(variant.shards), name_of(variant.memory), attention_ms,
      exchange_ms, partials > 0 ? std::to_string(bytes / partials).c_str() : "-")));
  if (options.check) {
    const Distance own = distance(options, variant.merge, measured.result, process.expected());
    const double o = worst(own.o_relative_l2), lse = worst(own.lse_absolute);
    passed = passed && worst(std::max(own.o_share, own.lse_share)) <= 1;
    char errors[64];
    std::snprintf(errors, sizeof(errors), " %10.1e %10.1e  %s", o, lse, passed ? "ok" : "WRONG");
    line += errors;
  }
  line += "  sent:";
  for (const auto value : sent) line += " " + std::to_string(value);
  if (process.rank() == 0) std::printf("%s\n", line.c_str());
  return passed;
}

std::vector<Variant> variants_of(const Options& options) {
  std::vector<Variant> variants;
  for (const Exchange exchange : options.exchanges) {
    for (const Shards shards : options.shards) {
      for (const Memory memory : options.memories) {
        for (const Merge merge : options.merges) {
          variants.push_back({merge, exchange, shards, memory});
        }
      }
    }
  }
  return variants;
}

void print_head(const Options& options, int size) {
  std::printf(
      "%d processes on %s: %lld batch rows of up to %lld tokens, %lld query tokens, heads "
      "%lld/%lld,"
      " dim %lld, %s: %lld partials a process\n",
      size, options.target.c_str(), (long long)options.batch(), (long long)options.tokens,
      (long long)options.query_len, (long long)options.q_heads, (long long)options.kv_heads,
      (long long)options.dim, name_of(options.dtype), (long long)options.rows());
  std::printf("a partial: %lld bytes as mlo against %lld as lse, %.2f %% more\n",
              4 * ((long long)options.dim + 2), 4 * ((long long)options.dim + 1),
              100.0 / double(options.dim + 1));
  std::printf("%-5s %-8s %-10s %-6s %12s %12s %10s%s  bytes sent by each process\n", "merge",
              "exchange", "shards", "memory", "attention ms", "exchange ms", "B/partial",
              options.check ? "  out error  lse error" : "");
}

int run(const Options& options, int rank, int size) {
  const bool on_cpu = options.target == "cpu";
  Process process(options, on_cpu ? open_mpi(MPI_COMM_WORLD)
                                  : open_nccl(MPI_COMM_WORLD, std::stoi(options.target.substr(5))));
  if (rank == 0) print_head(options, size);
  int passed = 0, failed = 0;
  for (const Variant& variant : variants_of(options)) {
    try_variant(process, options, variant) ? ++passed : ++failed;
  }
  if (rank == 0 && options.check) {
    std::printf("%d joins across %d processes agree with one process, %d do not\n", passed, size,
                failed);
    if (options.fault != Fault::none) std::printf("planted: %s\n", name_of(options.fault));
  }
  return failed > 0 ? 1 : 0;
}

int local_rank() {
  MPI_Comm machine = MPI_COMM_NULL;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine);
  int rank = 0;
  MPI_Comm_rank(machine, &rank);
  MPI_Comm_free(&machine);
  return rank;
}

int main_of(int argc, char** argv) {
  int rank = 0, size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--help") != 0) continue;
    if (rank == 0) std::fputs(kUsage, stdout);
    return 0;
  }
  try {
    return run(parse_options(argc, argv, local_rank()), rank, size);
  } catch (const BadOption& error) {  // the same in every process
    if (rank == 0) std::fprintf(stderr, "%s\n", error.what());
    return 2;
  } catch (const splitkv::Failure& error) {
    std::fprintf(stderr, "process %d: %s: %s\n", rank, splitkv_status_name(error.status()),
                 error.what());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "process %d: %s\n", rank, error.what());
  }
  MPI_Abort(MPI_COMM_WORLD, 3);  // others may be waiting for this process
  return 3;
}

}  // namespace
}  // namespace context_parallel

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const int status = context_parallel::main_of(argc, argv);
  MPI_Finalize();
  return status;
}
