// Shared memory of the blocks of a cluster. An address of 32 bits is 2^24 times the block's rank
// plus one, and 1024 plus the byte's place in its dynamic shared memory: multiples of 1024, from
// which swizzles count, are such in memory too.
#include <optional>

#include "tests/emulator/device_memory.hpp"
#include "tests/emulator/fiber.hpp"
#include "tests/emulator/guarded.hpp"
#include "tests/emulator/machine.hpp"

namespace emulator {
namespace {

constexpr u32 kFirstByte = 1024;
constexpr u32 kBlockShift = 24;
constexpr size_t kMostBytes = 227 * 1024;

// By rank, kept between launches.
std::vector<std::unique_ptr<Guarded>>& memories() {
  static std::vector<std::unique_ptr<Guarded>> all;
  return all;
}

struct Place {
  Block& block;
  u32 offset;
};

Place place_of(const char* instruction, u32 address, u32 bytes) {
  const u32 rank = (address >> kBlockShift) - 1;
  const u32 offset = (address & ((1u << kBlockShift) - 1)) - kFirstByte;
  if (rank >= cluster_size())
    fault(FaultKind::address, "%s at 0x%08x, which is no address of shared memory", instruction,
          address);
  Block& block = block_of_rank(rank);
  if (offset > block.shared_bytes || bytes > block.shared_bytes - offset)
    fault(FaultKind::address, "%s of %u bytes at byte %d of %u bytes of shared memory", instruction,
          bytes, int(offset), block.shared_bytes);
  check_aligned(instruction, address, bytes);
  return {block, offset};
}

}  // namespace

void place_shared_memory(std::vector<std::unique_ptr<Block>>& blocks, u32 bytes, u32 alignment) {
  for (const auto& block : blocks) {
    if (memories().size() <= block->rank)
      memories().push_back(std::make_unique<Guarded>(kMostBytes, kFirstByte));
    Guarded& memory = *memories()[block->rank];
    memory.place(bytes, alignment);
    block->shared = memory.data();
    block->shared_bytes = bytes;
  }
}

std::string overrun_of(const Block& block) {
  const std::string overrun = memories()[block.rank]->overrun();
  if (overrun.empty()) return "";
  return overrun + " the shared memory of block " + std::to_string(block.index.x);
}

std::string describe_address(const void* address) {
  for (u32 rank = 0; rank < cluster_size(); ++rank) {
    if (memories()[rank]->holds(address))
      return memories()[rank]->relation_to(address) + " the shared memory of block " +
             std::to_string(block_of_rank(rank).index.x);
  }
  if (is_stack_guard(address)) return "beyond the stack of a thread";
  if (const auto known = describe_device_address(address)) return *known;
  char text[64];
  std::snprintf(text, sizeof(text), "at %p, where no memory of the device is", address);
  return text;
}

u8* dynamic_shared() { return self().own_block->shared; }

u32 to_shared_address(const void* pointer) {
  const Block& block = *self().own_block;
  const long long offset = static_cast<const u8*>(pointer) - block.shared;
  if (offset < 0 || offset > block.shared_bytes)
    fault(FaultKind::address, "the address in shared memory of a pointer that is not there");
  return ((block.rank + 1) << kBlockShift) + kFirstByte + u32(offset);
}

u8* shared_at(const char* instruction, u32 address, u32 bytes) {
  const Place place = place_of(instruction, address, bytes);
  if (&place.block != self().own_block)
    fault(FaultKind::address, "%s in the shared memory of another block of the cluster",
          instruction);
  return place.block.shared + place.offset;
}

u8* cluster_shared_at(const char* instruction, u32 address, u32 bytes) {
  const Place place = place_of(instruction, address, bytes);
  if (!place.block.started)
    fault(FaultKind::address, "%s in the shared memory of a block that has not begun", instruction);
  if (place.block.live == 0)
    fault(FaultKind::address, "%s in the shared memory of a block that has ended", instruction);
  return place.block.shared + place.offset;
}

u32 shared_address_of_rank(u32 address, u32 rank) {
  block_of_rank(rank);  // it exists
  return ((rank + 1) << kBlockShift) + (address & ((1u << kBlockShift) - 1));
}

void check_aligned(const char* instruction, u64 address, u32 bytes) {
  const u32 unit = bytes & (0 - bytes);  // the largest power of two that divides it
  if (address % unit != 0)
    fault(FaultKind::misaligned, "%s of %u bytes at 0x%llx, no multiple of %u", instruction, bytes,
          address, unit);
}

}  // namespace emulator
