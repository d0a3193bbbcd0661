#include "tests/mutation/planted.hpp"

namespace splitkv::testing_support {
namespace {

const Mutant mutants[] = {{}};

}  // namespace

std::span<const Mutant> llvm_mutants() { return mutants; }

}  // namespace splitkv::testing_support
