// Which function of ptx.hpp an instruction of PTX is.
#pragma once

#include <string>
#include <string_view>

namespace emulator {

// "load_shared" of "ld.shared.u32"; empty where the emulator does not know the instruction.
std::string function_of(std::string_view opcode);

}  // namespace emulator
