// The command line of context_parallel.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "../support/option_values.hpp"

namespace context_parallel {

enum class Merge { lse, mlo };
enum class Exchange { gather, ring };
enum class Shards { contiguous, striped };
// own: a process holds its own tokens and nothing else. whole: it addresses the whole sequence, in
// which the tokens of others are NaN.
enum class Memory { own, whole };
enum class Dtype { fp32, bf16 };
// Faults to plant, so that a check can be seen to fail.
enum class Fault { none, equal_weights, lost_shard, local_causality, foreign_keys };

const char* name_of(Merge merge);
const char* name_of(Exchange exchange);
const char* name_of(Shards shards);
const char* name_of(Memory memory);
const char* name_of(Dtype dtype);
const char* name_of(Fault fault);

struct Options {
  int64_t tokens = 8192;         // of the longest row
  std::vector<int32_t> lengths;  // [batch] tokens of each row
  int64_t q_heads = 32, kv_heads = 8, dim = 128, query_len = 1;
  Dtype dtype = Dtype::fp32;
  std::vector<Merge> merges = {Merge::lse, Merge::mlo};
  std::vector<Exchange> exchanges = {Exchange::gather, Exchange::ring};
  std::vector<Shards> shards = {Shards::contiguous, Shards::striped};
  std::vector<Memory> memories = {Memory::own};
  std::string target = "cpu";  // "cpu" or "cuda:N"
  int32_t threads = 0;         // of each process on the CPU; 0: the library's choice
  int repeat = 5;
  bool check = false;
  Fault fault = Fault::none;

  int64_t batch() const { return int64_t(lengths.size()); }
  // Query rows: a partial result each.
  int64_t rows() const { return batch() * query_len * q_heads; }
};

using examples::BadOption;

// Throws BadOption. local_rank: this process's number among those of its machine, which stands in
// for LOCAL_RANK in --target cuda:LOCAL_RANK.
Options parse_options(int argc, const char* const* argv, int local_rank);

extern const char* const kUsage;

}  // namespace context_parallel
