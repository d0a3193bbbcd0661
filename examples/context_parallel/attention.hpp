// Attention of one process over what it holds.
#pragma once

#include <splitkv/splitkv.hpp>

#include <memory>

#include "place.hpp"
#include "sequence.hpp"

namespace context_parallel {

// Partials of all query rows in one piece of memory, so that one message carries them:
//   o [rows, dim], then S [rows] (lse), or m [rows] and l [rows] (mlo).
struct Partials {
  Merge form = Merge::lse;
  int64_t rows = 0, dim = 0;

  size_t floats() const { return size_t(rows * (dim + (form == Merge::mlo ? 2 : 1))); }
  float* statistic(float* partials) const { return partials + rows * dim; }
  float* sum(float* partials) const {
    return form == Merge::mlo ? partials + rows * (dim + 1) : nullptr;
  }
};

// The problem of a shard, whose result is a partial of the form, or (nullptr) of one process that
// holds everything.
std::string problem_of(const Options& options, const Merge* form);

// K, V, queries and work buffers of one process in its place, ready to run.
class Attention {
 public:
  // form: nullptr for one process that holds everything, whose statistic is the log-sum-exp.
  // kernel must outlive this. Throws splitkv::Failure, std::runtime_error.
  Attention(const Options& options, const splitkv::Kernel& kernel, const Shard& held,
            const Merge* form, Place& place);

  // Writes the partials (or o and the log-sum-exp) of all rows to `out`.
  void run(const Partials& partials, float* out) const;

 private:
  std::shared_ptr<void> put(const void* data, size_t bytes);

  const splitkv::Kernel& kernel_;
  Place& place_;
  std::shared_ptr<void> k_, v_, q_, kv_begin_, kv_len_, total_len_, scratch_, state_;
  splitkv::Binding binding_;
  splitkv_args args_;
};

}  // namespace context_parallel
