// The rows that `splitkv bench` measures by itself: the shapes that decode kernels are compared on,
// with the floor and the peers' times that were measured on one card earlier. Those times hold on
// that card only; what carries over is a peer's ratio to the floor.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/problem.hpp"
#include "compiler/result.hpp"

namespace splitkv::tool {

struct HandedPeer {
  std::string name;
  double us = 0;

  bool operator==(const HandedPeer&) const = default;
};

struct BenchRow {
  std::string name;             // "1,32/8,8192"
  std::string problem;          // the text form
  std::vector<int32_t> kv_len;  // [batch]
  double kv_mb = 0;             // as handed; 0: none is
  double floor_us = 0;          // of a read of those bytes on kHandedCard; 0: none is
  double floor_step_us = 0;     // the last digit that floor_us was written with
  double matrix_flops = 0;      // operations that bound the row too, where they count (MLA); else 0
  std::vector<HandedPeer> peers;
  double goal_ratio = 0;  // to the floor; 0: none
  bool drawn = false;     // at random: only problem and lengths tell what it is

  bool operator==(const BenchRow&) const = default;
};

// Handed floors are held against measured ones where the card's name holds this.
inline constexpr const char* kHandedCard = "H200";

// Operations per second that a large bf16 matrix product reached on that card.
inline constexpr double kHandedMatrixFlops = 790e12;

struct TableChoice {
  std::string table = "all";   // uniform, ragged, models, mla, all of these, random or cpu
  std::string dtype = "bf16";  // bf16 or fp16
  bool paged = false;          // the rows of contiguous caches with kv_layout=paged:16:nhd instead
  uint64_t seed = 0;           // of what is drawn
  int count = 20;              // rows of the table random
};

// invalid_argument where the table or the type is none of those. Random rows have types and layouts
// of their own.
Result<std::vector<BenchRow>> table_rows(const TableChoice& choice);

// Bytes of K and V that the rows' queries can see, each once.
int64_t kv_bytes(const Problem& problem, const std::vector<int32_t>& kv_len);

// What a row of this many bytes may take, as a multiple of its floor.
double goal_ratio_of(double megabytes);

// `count` lengths, log-uniform in [least, most].
std::vector<int32_t> log_uniform_lengths(int count, int least, int most, uint64_t seed);

// "8192", "31 of 1024, 1 of 131072", "128 of 64 to 65536": the lengths in a few words.
std::string describe_lengths(const std::vector<int32_t>& kv_len);

}  // namespace splitkv::tool
