#include "runtime/c_api_faults.hpp"

#include "runtime/struct_io.hpp"

namespace splitkv {

Outcome poll_fault(const ErrorMemory* errors, splitkv_fault* fault, DescribeFault describe) {
  // Written once before the record is taken, so that a wrong struct loses no fault.
  splitkv_fault filled = SPLITKV_INIT(splitkv_fault);
  if (Outcome writable = write_struct(filled, fault, "fault"); !writable) return writable;
  if (errors == nullptr) return Unit{};
  if (Outcome readable = errors->readable(); !readable) return readable;
  const auto found = take_fault(*errors->host());
  if (!found) return Unit{};
  filled.code = found->code;
  filled.row = found->row;
  filled.slot = found->slot;
  filled.value = found->value;
  if (Outcome written = write_struct(filled, fault, "fault"); !written) return written;
  return Error{Status::device_error, describe(*found)};
}

Outcome answer_with(const ErrorRecord& found, const ErrorMemory& errors, DescribeFault describe) {
  if (found.code == kNoFault) return Unit{};
  record_fault(*errors.host(), found);
  return Error{Status::device_error, describe(found)};
}

}  // namespace splitkv
