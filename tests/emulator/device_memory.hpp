// Memory of the emulated device: the host's, with pages around that cannot be touched.
#pragma once

#include <optional>
#include <string>

namespace emulator {

// null where there is none. Multiples of 256, as the driver's are; every byte is 0xff.
void* allocate_device(size_t bytes);

// Whether there was such an allocation.
bool free_device(void* data);

// "3 bytes beyond the end of an allocation of 256 bytes"
std::optional<std::string> describe_device_address(const void* address);

// Whether [data, data + bytes) is in one allocation.
bool is_device_memory(const void* data, size_t bytes);

// Beyond which allocation something was written: "" or a report.
std::string find_overrun();

}  // namespace emulator
