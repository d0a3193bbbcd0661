// What a checked kernel found wrong in device data, for the host to poll.
#pragma once

#include "args.cuh"
#include "types.cuh"

namespace splitkv {

// The first fault is kept. `code` is written last, past a fence, so that whoever sees it sees all.
__device__ inline void report_fault(const LaunchArgs& args, FaultCode code, i32 row, i32 slot,
                                    i64 value) {
  if (args.errors == nullptr || atomicCAS_system(&args.errors->claimed, 0, 1) != 0) return;
  volatile ErrorRecord* record = args.errors;
  record->row = row;
  record->slot = slot;
  record->value = value;
  __threadfence_system();
  record->code = code;
}

}  // namespace splitkv
