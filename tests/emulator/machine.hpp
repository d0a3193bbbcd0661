// The emulated multiprocessor: threads of a kernel are fibers of one host thread. The blocks of a
// cluster live at the same time; clusters run one after another.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/emulator/device_api.hpp"

namespace emulator {

struct Block;
struct Warp;

// Bytes on their way into shared memory: read when they are asked for, written when a wait says
// that they have to be there.
struct PendingCopy {
  u32 to = 0;
  u32 count = 0;
  u8 bytes[16] = {};
};

// A product of a warp group: read and written when a wait says that it has to be there.
struct GroupProduct {
  bool bf16 = false;
  bool turned_b = false;
  u64 a = 0;
  u64 b = 0;
  std::vector<float*> d;
};

struct Lane : Thread {
  Block* own_block = nullptr;
  Warp* warp = nullptr;
  u32 number = 0;  // in the warp
  void* stack_pointer = nullptr;
  bool ended = false;
  std::string waits_for;     // where it waits for anything but a meeting of its warp
  const char* meeting = "";  // the instruction in which it waits for lanes of its warp
  u32 meeting_mask = 0;
  void* brings = nullptr;                // to the meeting
  bool waits_for_cluster = false;        // has arrived at its barrier
  u64 cluster_arrivals = 0;              // at the cluster's barrier
  std::vector<PendingCopy> uncommitted;  // cp.async
  std::vector<std::vector<PendingCopy>> groups;
  bool began_products = false;  // of warp groups
  std::vector<GroupProduct> uncommitted_products;
  std::vector<std::vector<GroupProduct>> products;

  u32 bit() const { return 1u << number; }
};

struct Warp {
  u32 number = 0;  // in the block
  Lane* lanes = nullptr;
  u32 runnable = 0;
  u32 meets = 0;  // lanes that wait in a meeting
};

// bar.sync and bar.arrive of one number.
struct NamedBarrier {
  u32 threads = 0;  // that it waits for
  u32 arrived = 0;
  std::vector<Lane*> waiting;
};

struct Mbarrier {
  u32 arrivals = 0;  // of a phase
  u32 pending = 0;
  long long bytes = 0;  // expected less those that came
  u64 phase = 0;
  std::vector<PendingCopy> copies;
  std::vector<Lane*> waiting;
};

struct Block {
  u32 rank = 0;  // in the cluster
  Index index{0, 0, 0};
  u8* shared = nullptr;
  u32 shared_bytes = 0;
  bool started = false;
  u32 live = 0;  // threads that have not ended
  std::vector<Lane> lanes;
  std::vector<Warp> warps;
  NamedBarrier barriers[16];
  std::map<u32, Mbarrier> mbarriers;  // by place in shared memory
};

struct ClusterBarrier {
  u64 phase = 0;
  u32 arrived = 0;      // in this phase
  u32 ended = 0;        // threads that will not arrive in it
  u32 ended_later = 0;  // that did arrive, and then ended
  std::vector<Lane*> waiting;
};

struct LaunchRequest {
  const Entry* entry = nullptr;
  std::string name;
  Index grid;
  Index block;
  u32 shared_bytes = 0;
  bool backwards = false;  // clusters, warps and lanes run from the last to the first
};

// What went wrong; kind 0: nothing.
struct Fault {
  int kind = 0;
  std::string text;
};

// Runs a kernel to its end. One launch at a time.
Fault run_kernel(const LaunchRequest& request, void** parameters);

// ---- for the files that implement device_api.hpp

inline Lane& self() { return static_cast<Lane&>(*current); }
Block& block_of_rank(u32 rank);  // faults where the cluster has none
u32 cluster_size();
u32 cluster_threads();
ClusterBarrier& cluster_barrier();

// Lets others run until wake() is called for this lane. `what` is for reports.
void wait_for(const std::string& what);
void wait_in_warp();  // the same in a meeting
void wake(Lane& lane);
void wake_all(std::vector<Lane*>& lanes);

// A cluster's shared memory, poisoned; blocks end at pages that cannot be touched.
void place_shared_memory(std::vector<std::unique_ptr<Block>>& blocks, u32 bytes, u32 alignment);
// Names what lies at an address that cannot be touched.
std::string describe_address(const void* address);
// Faults where a block wrote beyond its shared memory, but not as far as a guard page.
std::string overrun_of(const Block& block);

}  // namespace emulator
