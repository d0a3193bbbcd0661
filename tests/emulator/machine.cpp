#include "tests/emulator/machine.hpp"

#include <algorithm>
#include <cstdarg>
#include <cstdio>

#include "tests/emulator/fiber.hpp"
#include "tests/emulator/meetings.hpp"
#include "tests/emulator/memory_faults.hpp"

namespace emulator {

Thread* current = nullptr;

namespace {

// The launch that runs.
struct Machine {
  const LaunchRequest* request = nullptr;
  void** parameters = nullptr;
  std::vector<std::unique_ptr<Block>> blocks;  // of the cluster that runs
  ClusterBarrier barrier;
  void* scheduler = nullptr;  // its stack
  Fault fault;
};
Machine machine;

void leave_to(void* stack) {
  Lane& lane = self();
  emulator_switch(&lane.stack_pointer, stack);
}

u32 first_of(u32 lanes) {
  return machine.request->backwards ? 31 - u32(__builtin_clz(lanes)) : u32(__builtin_ctz(lanes));
}

// Another lane of the warp where one can run, else the scheduler.
void leave() {
  const Warp& warp = *self().warp;
  if (warp.runnable == 0) {
    leave_to(machine.scheduler);
    return;
  }
  Lane& next = warp.lanes[first_of(warp.runnable)];
  Lane& before = self();
  current = &next;
  emulator_switch(&before.stack_pointer, next.stack_pointer);
}

[[noreturn]] void fiber_main() {
  self().own_block->started = true;
  machine.request->entry->run(machine.parameters);
  Lane& lane = self();
  lane.ended = true;
  lane.warp->runnable &= ~lane.bit();
  --lane.own_block->live;
  leave_cluster_barrier();
  leave();
  __builtin_unreachable();
}

std::unique_ptr<Block> make_block(u32 rank, Index index, u32 first_fiber) {
  const LaunchRequest& request = *machine.request;
  auto block = std::make_unique<Block>();
  block->rank = rank;
  block->index = index;
  block->live = request.block.count();
  block->lanes.resize(block->live);
  block->warps.resize((block->live + 31) / 32);
  for (u32 i = 0; i < block->live; ++i) {
    Lane& lane = block->lanes[i];
    lane.thread = {i % request.block.x, i / request.block.x % request.block.y,
                   i / request.block.x / request.block.y};
    lane.block = index;
    lane.block_size = request.block;
    lane.grid_size = request.grid;
    lane.own_block = block.get();
    lane.number = i % 32;
    lane.warp = &block->warps[i / 32];
    lane.warp->number = i / 32;
    lane.warp->lanes = &block->lanes[i / 32 * 32];
    lane.warp->runnable |= lane.bit();
    lane.stack_pointer = start_of_fiber(first_fiber + i, &fiber_main);
  }
  return block;
}

// What the lanes of a warp wait for that are like the first of `lanes`; they are taken out of it.
std::string describe_like_first(const Warp& warp, u32& lanes) {
  const Lane& first = warp.lanes[__builtin_ctz(lanes)];
  const auto describe = [&](const Lane& lane) {
    const bool meets = (warp.meets & lane.bit()) != 0;
    return meets ? std::string(lane.meeting) + " with lanes " + std::to_string(lane.meeting_mask)
                 : lane.waits_for;
  };
  const std::string what = describe(first);
  u32 alike = 0;
  for (u32 lane = 0; lane < 32; ++lane) {
    if ((lanes >> lane & 1) != 0 && describe(warp.lanes[lane]) == what) alike |= 1u << lane;
  }
  lanes &= ~alike;
  char text[64];
  std::snprintf(text, sizeof(text), "lanes %08x wait for ", alike);
  return std::string(text) += what;
}

std::string describe_warp(const Block& block, const Warp& warp) {
  u32 waiting = 0, ended = 0;
  const u32 count = std::min(32u, u32(block.lanes.size()) - warp.number * 32);
  for (u32 lane = 0; lane < count; ++lane) (warp.lanes[lane].ended ? ended : waiting) |= 1u << lane;
  if (waiting == 0) return "";
  std::string text =
      "\n  block " + std::to_string(block.index.x) + " warp " + std::to_string(warp.number) + ":";
  while (waiting != 0) {
    text += ' ';
    text += describe_like_first(warp, waiting);
    text += ';';
  }
  if (ended != 0) text += " others have ended;";
  return text;
}

void report_deadlock() {
  constexpr size_t kEnough = 1500;
  std::string text = "deadlock in " + machine.request->name + ", all threads wait:";
  for (const auto& block : machine.blocks) {
    for (const Warp& warp : block->warps) {
      if (text.size() < kEnough) text += describe_warp(*block, warp);
    }
  }
  machine.fault = {int(FaultKind::launch), text};
}

// Runs a warp until none of its lanes can go on.
void run_warp(Warp& warp) {
  current = &warp.lanes[first_of(warp.runnable)];
  emulator_switch(&machine.scheduler, self().stack_pointer);
  current = nullptr;
}

std::vector<Warp*> warps_in_order() {
  std::vector<Warp*> warps;
  for (const auto& block : machine.blocks) {
    for (Warp& warp : block->warps) warps.push_back(&warp);
  }
  if (machine.request->backwards) std::reverse(warps.begin(), warps.end());
  return warps;
}

u32 live_threads() {
  u32 live = 0;
  for (const auto& block : machine.blocks) live += block->live;
  return live;
}

// Always the first warp that can run: a block goes on alone for as long as it can.
void run_blocks() {
  const std::vector<Warp*> warps = warps_in_order();
  const auto can_run = [](const Warp* warp) { return warp->runnable != 0; };
  while (machine.fault.kind == 0 && live_threads() > 0) {
    const auto next = std::find_if(warps.begin(), warps.end(), can_run);
    if (next == warps.end()) {
      report_deadlock();
    } else {
      run_warp(**next);
    }
  }
  for (const auto& block : machine.blocks) {
    const std::string overrun = overrun_of(*block);
    if (!overrun.empty() && machine.fault.kind == 0)
      machine.fault = {int(FaultKind::address), overrun + ", in " + machine.request->name};
  }
}

Index index_of(u32 number, const Index& grid) {
  return {number % grid.x, number / grid.x % grid.y, number / grid.x / grid.y};
}

void run_cluster(u32 first_block) {
  const LaunchRequest& request = *machine.request;
  machine.blocks.clear();
  machine.barrier = {};
  for (u32 rank = 0; rank < request.entry->cluster; ++rank) {
    machine.blocks.push_back(
        make_block(rank, index_of(first_block + rank, request.grid), rank * request.block.count()));
  }
  place_shared_memory(machine.blocks, request.shared_bytes, request.entry->shared_alignment);
  run_blocks();
}

}  // namespace

Fault run_kernel(const LaunchRequest& request, void** parameters) {
  machine.request = &request;
  machine.parameters = parameters;
  machine.fault = {};
  const MemoryFaultScope faults;
  const u32 clusters = request.grid.count() / request.entry->cluster;
  for (u32 i = 0; i < clusters && machine.fault.kind == 0; ++i) {
    const u32 cluster = request.backwards ? clusters - 1 - i : i;
    run_cluster(cluster * request.entry->cluster);
  }
  machine.blocks.clear();
  return machine.fault;
}

Block& block_of_rank(u32 rank) {
  if (rank >= machine.blocks.size())
    fault(FaultKind::address, "block %u of a cluster of %zu", rank, machine.blocks.size());
  return *machine.blocks[rank];
}

u32 cluster_size() { return u32(machine.blocks.size()); }

u32 cluster_threads() { return cluster_size() * machine.request->block.count(); }

ClusterBarrier& cluster_barrier() { return machine.barrier; }

void wait_for(const std::string& what) {
  self().waits_for = what;
  self().warp->runnable &= ~self().bit();
  leave();
}

void wait_in_warp() {
  self().warp->runnable &= ~self().bit();
  leave();
}

void wake(Lane& lane) { lane.warp->runnable |= lane.bit(); }

void wake_all(std::vector<Lane*>& lanes) {
  for (Lane* lane : lanes) wake(*lane);
  lanes.clear();
}

void fault(FaultKind kind, const char* format, ...) {
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  const Lane& lane = self();
  machine.fault = {int(kind), std::string(text) + ", by thread " +
                                  std::to_string(lane.warp->number * 32 + lane.number) +
                                  " of block " + std::to_string(lane.block.x) + " of " +
                                  machine.request->name};
  leave_to(machine.scheduler);
  __builtin_unreachable();
}

}  // namespace emulator
