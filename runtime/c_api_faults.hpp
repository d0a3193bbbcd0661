// Device error records as the C API reports them.
#pragma once

#include <string>

#include "runtime/kernel.hpp"
#include "runtime/splitkv.h"

namespace splitkv {

// What a fault means, in words.
using DescribeFault = std::string (*)(const ErrorRecord& fault);

// Takes the fault out of the record, if there is one: it is written to *fault and is the error.
// `errors` is null where nothing is recorded.
Outcome poll_fault(const ErrorMemory* errors, splitkv_fault* fault, DescribeFault describe);

// What a call on the CPU, which is done when it returns, answers with what it found itself; a poll
// finds it as well.
Outcome answer_with(const ErrorRecord& found, const ErrorMemory& errors, DescribeFault describe);

}  // namespace splitkv
