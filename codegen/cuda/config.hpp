// The Config aggregate of templates/config.cuh, printed.
#pragma once

#include "codegen/writer.hpp"
#include "compiler/problem.hpp"
#include "compiler/schedule.hpp"

namespace splitkv {

void write_config(Writer& out, const Problem& problem, const Schedule& schedule);

}  // namespace splitkv
