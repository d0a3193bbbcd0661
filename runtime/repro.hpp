// A folder with all that is needed to repeat what a kernel does on another machine.
#pragma once

#include <string>

#include "runtime/kernel.hpp"
#include "runtime/splitkv.h"

namespace splitkv {

// What a call ran with; each may be null.
struct ReproCall {
  const splitkv_tensors* tensors = nullptr;
  const splitkv_args* args = nullptr;
  const Workload* workload = nullptr;  // in place of args, where nothing has run
};

// The files that splitkv_dump_repro names, in `folder`.
Outcome dump_repro(const PreparedKernel& kernel, const ReproCall& call, const std::string& folder);

}  // namespace splitkv
