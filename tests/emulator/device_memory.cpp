#include "tests/emulator/device_memory.hpp"

#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <new>

#include "tests/emulator/guarded.hpp"

namespace emulator {
namespace {

constexpr size_t kAlignment = 256;

std::mutex mutex;

std::map<const void*, std::unique_ptr<Guarded>>& allocations() {
  static auto* all = new std::map<const void*, std::unique_ptr<Guarded>>;  // until the very end
  return *all;
}

std::string allocation_of(const Guarded& memory) {
  return " an allocation of " + std::to_string(memory.bytes()) + " bytes";
}

}  // namespace

void* allocate_device(size_t bytes) {
  const std::lock_guard lock(mutex);
  try {
    auto memory = std::make_unique<Guarded>(bytes, kAlignment);
    void* data = memory->data();
    allocations()[data] = std::move(memory);
    return data;
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

bool free_device(void* data) {
  const std::lock_guard lock(mutex);
  return allocations().erase(data) == 1;
}

std::optional<std::string> describe_device_address(const void* address) {
  const std::lock_guard lock(mutex);
  for (const auto& [data, memory] : allocations()) {
    if (memory->holds(address)) return memory->relation_to(address) + allocation_of(*memory);
  }
  return std::nullopt;
}

bool is_device_memory(const void* data, size_t bytes) {
  const std::lock_guard lock(mutex);
  auto after = allocations().upper_bound(data);
  if (after == allocations().begin()) return false;
  const Guarded& memory = *std::prev(after)->second;
  const auto* at = static_cast<const unsigned char*>(data);
  return at + bytes <= memory.data() + memory.bytes();
}

std::string find_overrun() {
  const std::lock_guard lock(mutex);
  for (const auto& [data, memory] : allocations()) {
    if (const std::string overrun = memory->overrun(); !overrun.empty())
      return overrun + allocation_of(*memory);
  }
  return "";
}

}  // namespace emulator
