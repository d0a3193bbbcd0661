// Partials of all processes, joined into attention over the whole sequence.
#pragma once

#include <splitkv/splitkv.hpp>

#include <memory>

#include "attention.hpp"

namespace context_parallel {

// One exchange: every process brings its partials and takes the joined ones away.
class Joiner {
 public:
  // All of them must outlive this.
  Joiner(const Partials& partials, const splitkv::Merger& merger, Place& place, Link& link);

  // Where this process's partials belong.
  float* own() const;
  // Where the joined ones are after a join.
  float* joined() const;

  // All partials go to all processes, and each joins all of them at once.
  void gather() const;

  // Process 0 hands its partials to 1, which joins its own to them and hands the result to 2, and
  // so on. What the last one has is attention over everything; it goes round once more as it is.
  void ring() const;

 private:
  float* pair() const;  // two partials: what arrives, own
  // Joins `parts` partials that lie one behind the other.
  void join(float* parts, int64_t count) const;

  const Partials& partials_;
  const splitkv::Merger& merger_;
  Place& place_;
  Link& link_;
  std::shared_ptr<void> pair_, all_, joined_;
};

}  // namespace context_parallel
