// Statements of PTX become calls of the functions in ptx.hpp.
#pragma once

#include <string>
#include <string_view>

namespace emulator {

// The C++ of what stands between the parentheses of an asm statement: one block. CannotTranslate
// names an instruction that the emulator does not know.
std::string translate_assembly(std::string_view inside);

}  // namespace emulator
