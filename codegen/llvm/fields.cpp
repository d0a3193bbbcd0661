#include "codegen/llvm/fields.hpp"

namespace splitkv::llvm_codegen {

using ir::i64_constant;
using ir::Value;

namespace {

Value load_field(ir::Writer& w, const Value& args, size_t offset, ir::Type type,
                 std::string_view name) {
  const Value at = w.byte_offset(args, i64_constant(int64_t(offset)), std::string(name) + ".field");
  return w.load(type, at, ir::element_bytes(type.element), name);
}

}  // namespace

Value emit_pointer_arg(ir::Writer& w, Value args, size_t offset, std::string_view name) {
  return load_field(w, args, offset, ir::pointer, name);
}

Value emit_i64_arg(ir::Writer& w, Value args, size_t offset, std::string_view name) {
  return load_field(w, args, offset, ir::i64, name);
}

Value emit_i32_arg(ir::Writer& w, Value args, size_t offset, std::string_view name) {
  const Value narrow = load_field(w, args, offset, ir::i32, std::string(name) + ".i32");
  return w.cast("sext", narrow, ir::i64, name);
}

Value emit_is_null(ir::Writer& w, Value address, std::string_view name) {
  return w.compare("eq", address, {ir::pointer, "null"}, name);
}

Value emit_i32_element(ir::Writer& w, Value array, Value index, std::string_view name) {
  const std::string base(name);
  const Value at = w.element(array, ir::i32, index, base + ".at");
  return w.cast("sext", w.load(ir::i32, at, 4, base + ".i32"), ir::i64, name);
}

void emit_report_function(ir::Writer& w, size_t errors_offset) {
  const std::vector<Value> p = w.begin_function("internal ", "report_fault",
                                                {{ir::pointer, "args", "noalias readonly"},
                                                 {ir::i32, "code", ""},
                                                 {ir::i64, "row", ""},
                                                 {ir::i64, "slot", ""},
                                                 {ir::i64, "value", ""}});
  const Value record = emit_pointer_arg(w, p[0], errors_offset, "errors");
  const auto member = [&](size_t offset, const char* name) {
    return w.byte_offset(record, i64_constant(int64_t(offset)), name);
  };
  const auto store_i32 = [&](const Value& value, size_t offset, const char* name) {
    w.store(w.cast("trunc", value, ir::i32, std::string(name) + ".i32"), member(offset, name), 4);
  };
  w.when(
      emit_is_null(w, record, "errors.none"), "unrecorded", [] {},
      [&] {
        const Value first =
            w.atomic_claim(member(offsetof(ErrorRecord, claimed), "claimed"),
                           ir::int_constant(ir::i32, 0), ir::int_constant(ir::i32, 1), "is_first");
        w.when(first, "record", [&] {
          store_i32(p[2], offsetof(ErrorRecord, row), "record.row");
          store_i32(p[3], offsetof(ErrorRecord, slot), "record.slot");
          w.store(p[4], member(offsetof(ErrorRecord, value), "record.value"), 8);
          w.comment("the code last: who sees it sees the rest");
          w.atomic_store(p[1], member(offsetof(ErrorRecord, code), "record.code"));
        });
      });
  w.end_function();
}

void emit_report_call(ir::Writer& w, Value args, FaultCode code, Value row, Value slot,
                      Value value) {
  w.call("report_fault", {args, ir::int_constant(ir::i32, code), row, slot, value});
}

}  // namespace splitkv::llvm_codegen
