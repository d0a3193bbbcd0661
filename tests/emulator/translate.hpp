// Emitted CUDA C++ to C++ for the system's compiler.
#pragma once

#include <string>
#include <string_view>

namespace emulator {

// asm statements become calls, dynamic shared memory a pointer, and every __global__ function gets
// an Entry (device_api.hpp). Lines keep their numbers. Throws CannotTranslate.
std::string translate(std::string_view source);

}  // namespace emulator
