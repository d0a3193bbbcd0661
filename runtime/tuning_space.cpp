#include "runtime/tuning_space.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <tuple>

#include "compiler/arithmetic.hpp"
#include "compiler/cost_model.hpp"
#include "compiler/default_schedule.hpp"
#include "compiler/resources.hpp"
#include "compiler/schedule_candidates.hpp"
#include "compiler/text.hpp"
#include "compiler/verifier.hpp"

namespace splitkv {
namespace {

constexpr int kMostCodes = 48;
constexpr int kMostVectorRows = 8;

// Schedules in the order they were added, each once, legal ones only.
class Chosen {
 public:
  Chosen(const Problem& problem, const Target& target) : problem_(problem), target_(target) {}

  bool add(const Schedule& schedule) {
    if (known_.contains(print(schedule)) || verify(problem_, schedule, target_)) return false;
    known_.insert(print(schedule));
    list_.push_back(schedule);
    return true;
  }
  const std::vector<Schedule>& list() const { return list_; }
  bool holds(int count) const { return int(list_.size()) >= count; }

 private:
  const Problem& problem_;
  const Target& target_;
  std::set<std::string> known_;
  std::vector<Schedule> list_;
};

struct Weighed {
  double us = 0;
  Schedule schedule;
};

std::vector<RowGroup> groups_of(const TuningPoint& point) {
  std::map<int32_t, int64_t> rows;
  for (const int32_t length : lengths_of(point)) ++rows[length];
  std::vector<RowGroup> groups;
  for (const auto& [length, count] : rows) groups.push_back({count, length});
  return groups;
}

// ---- CUDA ---------------------------------------------------------------------------------------

// Codes of the tensor cores that fit an SM, those of the cost model's own choice first.
std::vector<Schedule> codes_of(const Problem& problem, const Target& target) {
  std::vector<Schedule> codes = code_candidates(problem, target, std::nullopt);
  const bool has_mma = codes.front().family == Family::mma;
  std::vector<Schedule> wider;
  const Schedule first = codes.front();
  const int most = has_mma ? most_mma_rows(problem) : first.rows;
  for (const int rows :
       {balanced_rows(problem, most), balanced_rows(problem, std::max(1, most / 2))})
    for (const int warps : {4, 8, 2, 1})
      for (const int tile : {64, 128, 32})
        for (const int depth :
             has_mma ? std::vector<int>{2, 3, 4, 6, 8} : std::vector<int>{1, 2, 4}) {
          Schedule code = first;
          code.rows = rows, code.warps = warps, code.tile_kv = tile;
          (has_mma ? code.stages : code.unroll) = depth;
          if (resources_of(problem, code, target).blocks_per_sm < 1) continue;
          if (!verify(problem, code, target)) wider.push_back(code);
        }
  // Long rows that are K and V at once come faster by tensor map.
  if (problem.v_in_k) {
    for (Schedule code : codes) {
      code.loads = Loads::tensor;
      if (!verify(problem, code, target)) wider.push_back(code);
    }
  }
  // Products of warp groups for as many rows as they take at once.
  if (problem.v_in_k) {
    for (const Schedule& code : code_candidates(problem, target, Family::wgmma))
      if (code.family == Family::wgmma) wider.push_back(code);
  }
  for (const Schedule& code : wider) {
    if (std::find(codes.begin(), codes.end(), code) == codes.end()) codes.push_back(code);
  }
  return codes;
}

// Of family, partition and reduce: what the cost model may be wrong about as a whole.
using Kind = std::tuple<Family, Partition, Reduce, int>;
Kind kind_of(const Schedule& schedule) {
  return {schedule.family, schedule.partition, schedule.reduce, schedule.cluster};
}

std::vector<Weighed> weighed(const Problem& problem, const TuningPoint& point,
                             const Target& target) {
  const std::vector<RowGroup> groups = groups_of(point);
  std::vector<Weighed> list;
  for (const Schedule& code : codes_of(problem, target)) {
    for (const Schedule& launch : all_launches(problem, workload_of(point), code, target)) {
      list.push_back({predict(problem, groups, launch, target).total_us(), launch});
    }
  }
  std::stable_sort(list.begin(), list.end(),
                   [](const Weighed& a, const Weighed& b) { return a.us < b.us; });
  return list;
}

void add_cuda(const Problem& problem, const TuningPoint& point, const Target& target, int most,
              Chosen& chosen) {
  const std::vector<Weighed> list = weighed(problem, point, target);
  // Half of the room goes to the least predicted, in turn with the least of each kind.
  constexpr int of_a_kind = 3;
  std::map<Kind, int> taken;
  size_t next = 0;
  for (const Weighed& one : list) {
    if (chosen.holds(most)) return;
    int& count = taken[kind_of(one.schedule)];
    if (count >= of_a_kind || !chosen.add(one.schedule)) continue;
    ++count;
    while (next < list.size() && !chosen.holds(most) && !chosen.add(list[next].schedule)) ++next;
  }
  for (; next < list.size() && !chosen.holds(most); ++next) chosen.add(list[next].schedule);
}

// ---- CPU ----------------------------------------------------------------------------------------

// The schedule with every other value of one of its words.
std::vector<Schedule> with_other_words(const Schedule& base, const Problem& problem,
                                       const Target& target) {
  std::vector<Schedule> list;
  const auto add = [&](const auto& change) {
    list.push_back(base);
    change(list.back());
  };
  for (const int unroll : {1, 2, 4, 8}) add([&](Schedule& s) { s.unroll = unroll; });
  for (const int tile : {32, 64, 128, 256}) add([&](Schedule& s) { s.tile_kv = tile; });
  for (int most = kMostVectorRows; most >= 1; most /= 2) {
    add([&](Schedule& s) { s.rows = balanced_rows(problem, most); });
  }
  const int threads = std::max(1, target.threads);
  for (const int each : {1, 2, 4, 8}) {
    add([&](Schedule& s) {
      s.partition = Partition::flat, s.splits = 1, s.blocks = threads * each;
    });
  }
  for (const int splits : {1, 2, 4, 8}) {
    add([&](Schedule& s) { s.partition = Partition::fixed, s.blocks = 0, s.splits = splits; });
  }
  return list;
}

void add_cpu(const Problem& problem, const Target& target, int most, Chosen& chosen) {
  const std::vector<Schedule> near = with_other_words(chosen.list().front(), problem, target);
  for (const Schedule& schedule : near) {
    if (!chosen.holds(most)) chosen.add(schedule);
  }
  for (const Schedule& base : near) {
    for (const Schedule& schedule : with_other_words(base, problem, target)) {
      if (!chosen.holds(most)) chosen.add(schedule);
    }
  }
}

// ---- sizes --------------------------------------------------------------------------------------

// The workload of its bucket that is cut finest: the fewest rows, the longest length. Where
// everything is meant, one endless row.
std::vector<Workload> finest_of(const Problem& problem, const std::vector<Workload>& workloads) {
  if (workloads.empty()) return {{1, std::numeric_limits<int32_t>::max(), 0}};
  std::vector<Workload> finest;
  for (const Workload& workload : workloads) {
    const TuningBucket bucket = bucket_of(problem, workload);
    if (bucket.batch == 0) {
      finest.push_back(workload);
    } else {
      finest.push_back({bucket.batch / 2 + 1, bucket.kv_len, 0});
    }
  }
  // What a deterministic problem is cut for whatever the workload.
  if (problem.deterministic) finest.push_back(kOneLongRow);
  return finest;
}

class Largest {
 public:
  Largest(const Problem& problem, const Target& target, int64_t batch)
      : problem_(problem),
        batch_(batch),
        counters_(target.kind == TargetKind::cuda ? kMostCounters : 1) {}

  // As if it were joined in the way that takes most: (m, l) in fp32, and the counters of clusters.
  void add(Schedule schedule) {
    schedule.reduce = Reduce::last_block;
    schedule.cluster = 1;
    schedule.merge = Merge::mlo;
    schedule.partial_dtype = DType::fp32;
    const BufferSizes needed = buffer_sizes(problem_, schedule, batch_);
    sizes_.scratch_bytes = std::max(sizes_.scratch_bytes, needed.scratch_bytes);
    sizes_.state_bytes = std::max(sizes_.state_bytes, needed.state_bytes * counters_);
  }
  const BufferSizes& sizes() const { return sizes_; }

 private:
  static constexpr int64_t kMostCounters = 8;  // of a sequence: blocks of the largest cluster tried

  const Problem& problem_;
  const int64_t batch_, counters_;
  BufferSizes sizes_;
};

}  // namespace

BufferSizes adoptable_sizes(const Problem& problem, const Target& target,
                            const std::vector<Workload>& workloads, int64_t max_batch) {
  Largest largest(problem, target, max_batch);
  for (const Workload& workload : finest_of(problem, workloads)) {
    if (target.kind == TargetKind::cuda) {
      for (const Schedule& code : codes_of(problem, target)) {
        for (const Schedule& launch : all_launches(problem, workload, code, target)) {
          largest.add(launch);
        }
      }
      continue;
    }
    const Schedule own = default_schedule(problem, workload, target).schedule;
    largest.add(own);
    for (const Schedule& base : with_other_words(own, problem, target)) {
      largest.add(base);
      for (const Schedule& other : with_other_words(base, problem, target)) largest.add(other);
    }
  }
  return largest.sizes();
}

std::vector<Schedule> tuning_candidates(const Problem& problem, const TuningPoint& point,
                                        const Target& target, int most) {
  Chosen chosen(problem, target);
  chosen.add(default_schedule(problem, workload_of(point), target).schedule);
  if (target.kind == TargetKind::cuda) {
    add_cuda(problem, point, target, most, chosen);
  } else {
    add_cpu(problem, target, most, chosen);
  }
  return chosen.list();
}

std::vector<Schedule> neighbours(const Schedule& schedule, const Problem& problem,
                                 const Target& target) {
  Chosen chosen(problem, target);
  Schedule other = schedule;
  if (exchanges_partials(schedule) && problem.merge == Merge::automatic) {
    other.merge = exchanged_merge(problem, schedule) == Merge::mlo ? Merge::lse : Merge::mlo;
    chosen.add(other);
    other = schedule;
  }
  other.pdl = !schedule.pdl;
  chosen.add(other);
  return chosen.list();
}

}  // namespace splitkv
