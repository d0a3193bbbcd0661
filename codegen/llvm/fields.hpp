// Fields of the launch arguments, and the faults that checked kernels report.
#pragma once

#include <cstddef>

#include "codegen/launch_args.hpp"
#include "codegen/llvm/kernel_plan.hpp"

namespace splitkv::llvm_codegen {

// Loads fields of LaunchArgs by their offset; `args` is the pointer every function is given.
ir::Value emit_pointer_arg(ir::Writer& writer, ir::Value args, size_t offset,
                           std::string_view name);
ir::Value emit_i64_arg(ir::Writer& writer, ir::Value args, size_t offset, std::string_view name);
ir::Value emit_i32_arg(ir::Writer& writer, ir::Value args, size_t offset,
                       std::string_view name);  // widened to i64

// Whether a pointer is null.
ir::Value emit_is_null(ir::Writer& writer, ir::Value address, std::string_view name);

// Element `index` of an int32 array, widened to i64.
ir::Value emit_i32_element(ir::Writer& writer, ir::Value array, ir::Value index,
                           std::string_view name);

// Defines @report_fault(args, code, row, slot, value): the first caller of all fills the record,
// whose pointer lies `errors_offset` bytes into args.
void emit_report_function(ir::Writer& writer, size_t errors_offset = offsetof(LaunchArgs, errors));
void emit_report_call(ir::Writer& writer, ir::Value args, FaultCode code, ir::Value row,
                      ir::Value slot, ir::Value value);

}  // namespace splitkv::llvm_codegen
