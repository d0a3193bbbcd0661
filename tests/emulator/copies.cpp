// Copies that run beside the arithmetic. What they bring is read when they are asked for, and lies
// there no sooner than a wait says that it must: until then there is poison.
#include <cstring>
#include <utility>

#include "tests/emulator/machine.hpp"
#include "tests/emulator/tensor_map.hpp"

namespace emulator {
namespace {

constexpr u8 kPoison = 0xff;

void land(const PendingCopy& copy) {
  std::memcpy(shared_at("an asynchronous copy", copy.to, copy.count), copy.bytes, copy.count);
}

// What lies in shared memory in place of a barrier, which nothing else may write.
constexpr u64 kOpaque = 0x7265697272616264;

Mbarrier& mbarrier_at(const char* instruction, u32 address) {
  u64 word = 0;
  std::memcpy(&word, shared_at(instruction, address, 8), 8);
  auto& barriers = self().own_block->mbarriers;
  const auto found = barriers.find(address);
  if (found == barriers.end())
    fault(FaultKind::launch, "%s at 0x%08x, where no mbarrier was initialised", instruction,
          address);
  if (word != kOpaque)
    fault(FaultKind::launch, "%s at 0x%08x, where an mbarrier was overwritten", instruction,
          address);
  return found->second;
}

// Ends the phase where all have arrived and all bytes have come; copies come now at the latest.
void settle(Mbarrier& barrier) {
  if (barrier.pending > 0) return;
  for (const PendingCopy& copy : barrier.copies) {
    land(copy);
    barrier.bytes -= copy.count;
  }
  barrier.copies.clear();
  if (barrier.bytes != 0) return;
  ++barrier.phase;
  barrier.pending = barrier.arrivals;
  wake_all(barrier.waiting);
}

std::string state_of(const Mbarrier& barrier) {
  return "phase " + std::to_string(barrier.phase) + " of an mbarrier, for which " +
         std::to_string(barrier.pending) + " arrivals and " + std::to_string(barrier.bytes) +
         " bytes are missing";
}

}  // namespace

void copy_async(u32 to, u64 from, u32 bytes, u32 bytes_read) {
  u8* place = shared_at("cp.async", to, bytes);
  if (bytes > sizeof(PendingCopy::bytes) || bytes_read > bytes)
    fault(FaultKind::launch, "cp.async reads %u of %u bytes", bytes_read, bytes);
  check_aligned("cp.async", from, bytes);
  PendingCopy copy{to, bytes};
  std::memcpy(copy.bytes, reinterpret_cast<const void*>(from), bytes_read);
  std::memset(place, kPoison, bytes);
  self().uncommitted.push_back(copy);
}

void commit_copies() { self().groups.push_back(std::exchange(self().uncommitted, {})); }

void wait_copies(u32 pending) {
  auto& groups = self().groups;
  if (groups.size() <= pending) return;
  const size_t done = groups.size() - pending;
  for (size_t i = 0; i < done; ++i) {
    for (const PendingCopy& copy : groups[i]) land(copy);
  }
  groups.erase(groups.begin(), groups.begin() + long(done));
}

void start_mbarrier(u32 address, u32 arrivals) {
  u8* place = shared_at("mbarrier.init", address, 8);
  Mbarrier barrier;
  barrier.arrivals = barrier.pending = arrivals;
  if (!self().own_block->mbarriers.emplace(address, barrier).second)
    fault(FaultKind::launch, "mbarrier.init at 0x%08x, where one is", address);
  std::memcpy(place, &kOpaque, 8);
}

void end_mbarrier(u32 address) {
  const Mbarrier& barrier = mbarrier_at("mbarrier.inval", address);
  if (!barrier.waiting.empty() || !barrier.copies.empty())
    fault(FaultKind::launch, "mbarrier.inval at 0x%08x, where threads wait or copies arrive",
          address);
  self().own_block->mbarriers.erase(address);
  std::memset(shared_at("mbarrier.inval", address, 8), kPoison, 8);
}

void arrive_at_mbarrier(u32 address, u32 expected_bytes) {
  Mbarrier& barrier = mbarrier_at("mbarrier.arrive", address);
  settle(barrier);
  if (barrier.pending == 0)
    fault(FaultKind::launch, "mbarrier.arrive at 0x%08x in %s", address, state_of(barrier).c_str());
  barrier.bytes += expected_bytes;
  --barrier.pending;
  if (!barrier.waiting.empty()) settle(barrier);
}

bool wait_mbarrier(u32 address, u32 parity) {
  while (true) {
    Mbarrier& barrier = mbarrier_at("mbarrier.try_wait", address);
    settle(barrier);
    if (barrier.phase % 2 != parity) return true;
    barrier.waiting.push_back(&self());
    wait_for(state_of(barrier));
  }
}

void copy_tensor(u32 to, u64 map_address, const int* at, u32 dimensions, u32 barrier_address) {
  Mbarrier& barrier = mbarrier_at("cp.async.bulk.tensor", barrier_address);
  TensorMapImage map;
  std::memcpy(&map, reinterpret_cast<const void*>(map_address), sizeof(map));
  if (map.magic != TensorMapImage::kMagic || map.dimensions != dimensions)
    fault(FaultKind::launch, "cp.async.bulk.tensor by what is no tensor map of %u dimensions",
          dimensions);
  if (to % 128 != 0) fault(FaultKind::misaligned, "cp.async.bulk.tensor to 0x%08x", to);
  const std::vector<u8> box = read_box(map, at);
  shared_at("cp.async.bulk.tensor", to, 16);
  shared_at("cp.async.bulk.tensor", to + u32(box.size()) - 16, 16);
  for (u32 byte = 0; byte < box.size(); byte += 16) {
    const u32 place = swizzled(to + byte, map.swizzle_bytes);
    std::memset(shared_at("cp.async.bulk.tensor", place, 16), kPoison, 16);
    PendingCopy copy{place, 16};
    std::memcpy(copy.bytes, box.data() + byte, 16);
    barrier.copies.push_back(copy);
  }
  if (!barrier.waiting.empty()) settle(barrier);
}

}  // namespace emulator
