// Score and mask expressions lowered to CUDA C++: the Score functor that the templates call.
#pragma once

#include "codegen/writer.hpp"
#include "compiler/problem.hpp"

namespace splitkv {

// struct Score { log2_score(dot, at), visible(at), first_visible_key(kv_len) }, all static.
void write_score(Writer& out, const Problem& problem);

}  // namespace splitkv
