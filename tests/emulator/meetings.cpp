// Where threads meet: lanes of a warp, threads of a block, blocks of a cluster.
#include "tests/emulator/meetings.hpp"

#include <cstring>
#include <utility>

namespace emulator {
namespace {

// A mask that every lane of the warp may be in.
void check_mask(const char* what, u32 mask) {
  if ((mask & self().bit()) == 0)
    fault(FaultKind::launch, "%s by a lane that its mask %08x leaves out", what, mask);
}

// Whether all of the mask meet in one instruction; faults where they all wait, but in several.
bool all_meet(const Warp& warp, const char* what, u32 mask) {
  if ((warp.meets & mask) != mask) return false;
  for (u32 i = 0; i < 32; ++i) {
    const Lane& lane = warp.lanes[i];
    const bool meets_here = lane.meeting_mask == mask && std::strcmp(lane.meeting, what) == 0;
    if ((mask >> i & 1) == 0 || meets_here) continue;
    fault(FaultKind::launch, "lanes of a warp meet in %s (%08x) and in %s (%08x)", what, mask,
          lane.meeting, lane.meeting_mask);
  }
  return true;
}

struct Shuffled {
  u64 value;
  u32 source;
  u64 result;
};

void exchange(Warp& warp, u32 mask) {
  for (u32 i = 0; i < 32; ++i) {
    if ((mask >> i & 1) == 0) continue;
    auto& own = brought_by<Shuffled>(warp, i);
    if ((mask >> own.source & 1) == 0)
      fault(FaultKind::launch, "a shuffle from lane %u, which its mask %08x leaves out", own.source,
            mask);
    own.result = brought_by<Shuffled>(warp, own.source).value;
  }
}

struct Vote {
  bool yes;
  u32 result;
};

void count_votes(Warp& warp, u32 mask) {
  u32 votes = 0;
  for (u32 i = 0; i < 32; ++i) {
    if ((mask >> i & 1) != 0 && brought_by<Vote>(warp, i).yes) votes |= 1u << i;
  }
  for (u32 i = 0; i < 32; ++i) {
    if ((mask >> i & 1) != 0) brought_by<Vote>(warp, i).result = votes;
  }
}

NamedBarrier& barrier_of(u32 number, u32& threads) {
  Block& block = *self().own_block;
  if (threads == 0) threads = u32(block.lanes.size());
  if (number >= 16) fault(FaultKind::launch, "barrier %u; a block has 16", number);
  NamedBarrier& barrier = block.barriers[number];
  if (threads % 32 != 0 || threads > block.lanes.size())
    fault(FaultKind::launch, "barrier %u waits for %u threads of a block of %zu", number, threads,
          block.lanes.size());
  if (barrier.arrived > 0 && barrier.threads != threads)
    fault(FaultKind::launch, "barrier %u waits for %u threads and for %u", number, barrier.threads,
          threads);
  barrier.threads = threads;
  ++barrier.arrived;
  return barrier;
}

bool completes(NamedBarrier& barrier) {
  if (barrier.arrived < barrier.threads) return false;
  barrier.arrived = 0;
  wake_all(barrier.waiting);
  return true;
}

}  // namespace

void meet(const char* what, u32 mask, void* brings, void (*act)(Warp&, u32)) {
  check_mask(what, mask);
  Lane& lane = self();
  Warp& warp = *lane.warp;
  lane.meeting = what;
  lane.meeting_mask = mask;
  lane.brings = brings;
  warp.meets |= lane.bit();
  if (!all_meet(warp, what, mask)) {
    wait_in_warp();
    return;
  }
  act(warp, mask);
  warp.meets &= ~mask;
  warp.runnable |= mask;
}

void sync_warp(u32 mask) {
  meet("__syncwarp", mask, nullptr, [](Warp&, u32) {});
}

u64 shuffle(const char* instruction, u32 mask, u64 value, u32 source_lane) {
  Shuffled own{value, source_lane, 0};
  meet(instruction, mask, &own, &exchange);
  return own.result;
}

u32 ballot(u32 mask, bool vote) {
  Vote own{vote, 0};
  meet("a vote", mask, &own, &count_votes);
  return own.result;
}

void sync_block(u32 number, u32 threads) {
  NamedBarrier& barrier = barrier_of(number, threads);
  if (completes(barrier)) return;
  barrier.waiting.push_back(&self());
  wait_for("barrier " + std::to_string(number) + " of " + std::to_string(threads) + " threads");
}

void arrive_at_block(u32 number, u32 threads) { completes(barrier_of(number, threads)); }

namespace {

void complete_cluster_phase() {
  ClusterBarrier& barrier = cluster_barrier();
  if (barrier.arrived == 0 || barrier.arrived + barrier.ended < cluster_threads()) return;
  ++barrier.phase;
  barrier.arrived = 0;
  barrier.ended += barrier.ended_later;
  barrier.ended_later = 0;
  wake_all(barrier.waiting);
}

}  // namespace

void arrive_at_cluster() {
  ClusterBarrier& barrier = cluster_barrier();
  if (std::exchange(self().waits_for_cluster, true))
    fault(FaultKind::launch, "barrier.cluster.arrive twice without a wait");
  ++self().cluster_arrivals;
  ++barrier.arrived;
  complete_cluster_phase();
}

void wait_for_cluster() {
  ClusterBarrier& barrier = cluster_barrier();
  if (!std::exchange(self().waits_for_cluster, false))
    fault(FaultKind::launch, "barrier.cluster.wait without an arrive");
  if (barrier.phase >= self().cluster_arrivals) return;
  barrier.waiting.push_back(&self());
  wait_for("barrier.cluster, phase " + std::to_string(barrier.phase));
}

void leave_cluster_barrier() {
  ClusterBarrier& barrier = cluster_barrier();
  ++(self().cluster_arrivals > barrier.phase ? barrier.ended_later : barrier.ended);
  complete_cluster_phase();
}

}  // namespace emulator
