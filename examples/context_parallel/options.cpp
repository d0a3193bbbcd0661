#include "options.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <limits>
#include <string_view>

namespace context_parallel {
namespace {

using examples::kMost, examples::number, examples::numbers, examples::refuse;

const char* const kMerges[] = {"lse", "mlo"};
const char* const kExchanges[] = {"gather", "ring"};
const char* const kShards[] = {"contiguous", "striped"};
const char* const kMemories[] = {"own", "whole"};
const char* const kDtypes[] = {"fp32", "bf16"};
const char* const kFaults[] = {"none", "equal-weights", "lost-shard", "local-causality",
                               "foreign-keys"};

// Both values of an enum of two for "both", else the one that is named.
template <class Enum, size_t count>
std::vector<Enum> some_of(const std::string& option, std::string_view text,
                          const char* const (&names)[count]) {
  std::vector<Enum> chosen;
  std::string fits;
  for (size_t i = 0; i < count; ++i) {
    if (text == names[i] || (count == 2 && text == "both")) chosen.push_back(Enum(i));
    fits += (i > 0 ? ", " : "") + std::string(names[i]);
  }
  if (chosen.empty()) refuse(option, text, fits + (count == 2 ? " or both" : ""));
  return chosen;
}

template <class Enum, size_t count>
Enum one_of(const std::string& option, std::string_view text, const char* const (&names)[count]) {
  const auto chosen = some_of<Enum>(option, text, names);
  if (chosen.size() != 1) refuse(option, text, std::string("one of them, like ") + names[0] + ",");
  return chosen.front();
}

void parse_heads(const std::string& option, std::string_view text, Options& options) {
  const size_t slash = text.find('/');
  options.q_heads = number(option, text.substr(0, slash), 1, 4096);
  options.kv_heads = slash == std::string_view::npos
                         ? options.q_heads
                         : number(option, text.substr(slash + 1), 1, 4096);
  if (options.q_heads % options.kv_heads != 0) {
    refuse(option, text, "Q/KV with Q a multiple of KV, like 32/8,");
  }
}

std::string parse_target(const std::string& option, std::string_view text, int local_rank) {
  if (text == "cpu") return "cpu";
  if (text.substr(0, 5) != "cuda:") refuse(option, text, "cpu or cuda:LOCAL_RANK");
  if (text == "cuda:LOCAL_RANK") return "cuda:" + std::to_string(local_rank);
  return "cuda:" + std::to_string(number(option, text.substr(5), 0, 1023));
}

// Lengths are settled once all options are known.
struct Rows {
  int32_t tokens = 8192, batch = 1;
  std::vector<int32_t> lengths;  // as given by --lengths
};

void take(const std::string& option, std::string_view value, int local_rank, Options& options,
          Rows& rows) {
  if (option == "--tokens") {
    rows.tokens = number(option, value, 0, kMost);
  } else if (option == "--batch") {
    rows.batch = number(option, value, 1, 65535);
  } else if (option == "--lengths") {
    rows.lengths = numbers(option, value);
  } else if (option == "--heads") {
    parse_heads(option, value, options);
  } else if (option == "--dim") {
    options.dim = number(option, value, 1, 4096);
  } else if (option == "--query-len") {
    options.query_len = number(option, value, 1, 64);
  } else if (option == "--dtype") {
    options.dtype = one_of<Dtype>(option, value, kDtypes);
  } else if (option == "--merge") {
    options.merges = some_of<Merge>(option, value, kMerges);
  } else if (option == "--exchange") {
    options.exchanges = some_of<Exchange>(option, value, kExchanges);
  } else if (option == "--shards") {
    options.shards = some_of<Shards>(option, value, kShards);
  } else if (option == "--memory") {
    options.memories = some_of<Memory>(option, value, kMemories);
  } else if (option == "--target") {
    options.target = parse_target(option, value, local_rank);
  } else if (option == "--threads") {
    options.threads = number(option, value, 0, 4096);
  } else if (option == "--repeat") {
    options.repeat = number(option, value, 1, 100000);
  } else if (option == "--plant") {
    options.fault = one_of<Fault>(option, value, kFaults);
  } else {
    throw BadOption(option + " is no option; --help lists them");
  }
}

}  // namespace

const char* const kUsage =
    "context_parallel: attention over a KV cache that is split over MPI processes.\n"
    "  --tokens N          tokens of every row (8192)\n"
    "  --batch N           batch rows (1)\n"
    "  --lengths A,B,...   tokens of each row, instead of --tokens and --batch\n"
    "  --heads Q/KV        query heads and heads of K and V (32/8)\n"
    "  --dim N             head dim (128)\n"
    "  --query-len N       query tokens a row, causal (1)\n"
    "  --dtype D           of q, K and V: fp32, bf16 (fp32)\n"
    "  --merge M           form of the partials: lse, mlo, both (both)\n"
    "  --exchange E        how they are joined: gather, ring, both (both)\n"
    "  --shards S          who holds which tokens: contiguous, striped, both (both)\n"
    "  --memory M          what a process addresses: own, whole, both (own)\n"
    "  --target T          cpu, cuda:LOCAL_RANK (cpu)\n"
    "  --threads N         of each process on the CPU; 0: as many as it may use (0)\n"
    "  --repeat N          timed runs of each variant (5)\n"
    "  --check             compare with one process that holds everything\n"
    "  --plant F           a fault that the check must notice: equal-weights, lost-shard,\n"
    "                      local-causality, foreign-keys (of --memory whole)\n"
    "Exit status: 0, 1 a check failed, 2 bad options, 3 something failed or is missing.\n";

const char* name_of(Merge merge) { return kMerges[int(merge)]; }
const char* name_of(Exchange exchange) { return kExchanges[int(exchange)]; }
const char* name_of(Shards shards) { return kShards[int(shards)]; }
const char* name_of(Memory memory) { return kMemories[int(memory)]; }
const char* name_of(Dtype dtype) { return kDtypes[int(dtype)]; }
const char* name_of(Fault fault) { return kFaults[int(fault)]; }

Options parse_options(int argc, const char* const* argv, int local_rank) {
  Options options;
  Rows rows;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--check") == 0) {
      options.check = true;
      continue;
    }
    if (i + 1 == argc) throw BadOption(std::string(argv[i]) + " needs a value; --help lists them");
    take(argv[i], argv[i + 1], local_rank, options, rows);
    ++i;
  }
  if (options.fault == Fault::foreign_keys && options.memories.front() == Memory::own) {
    refuse("--plant", "foreign-keys with --memory own", "--memory whole");
  }
  options.lengths = rows.lengths;
  if (options.lengths.empty()) options.lengths.assign(size_t(rows.batch), rows.tokens);
  options.tokens = *std::max_element(options.lengths.begin(), options.lengths.end());
  return options;
}

}  // namespace context_parallel
