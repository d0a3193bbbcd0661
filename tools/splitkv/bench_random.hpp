// Rows of the benchmark that are drawn at random: head counts and dims of well-known models, in
// batches and lengths that nothing was tuned for.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/splitkv/bench_rows.hpp"

namespace splitkv::tool {

// splitmix64: the same numbers everywhere, from the seed alone.
class Draw {
 public:
  explicit Draw(uint64_t seed) : state_(seed) {}

  uint64_t next();
  // Below `count`, which is at least 1.
  int64_t below(int64_t count) { return int64_t(next() % uint64_t(count)); }
  // Between least (at least 1) and most: an octave, then a number in it, so that each octave is
  // about as likely. Whole numbers only: no machine rounds them differently.
  int64_t log_uniform(int64_t least, int64_t most);

 private:
  uint64_t state_;
};

// Every row has a generator of its own, so that a row does not depend on how many are drawn. Names
// are "random SEED.INDEX", INDEX from 1. A row reads 4 to 4000 MB and takes at most about 16 GB of
// device memory: a contiguous cache that would be larger is drawn as a paged one.
BenchRow random_row(uint64_t seed, int index);
std::vector<BenchRow> random_rows(uint64_t seed, int count);

}  // namespace splitkv::tool
