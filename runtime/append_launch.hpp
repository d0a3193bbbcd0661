// The loaded KV writer of a problem, and the way from the C API's arguments to those of its kernel,
// checked.
#pragma once

#include <memory>
#include <string>

#include "codegen/append_source.hpp"
#include "runtime/kernel.hpp"
#include "runtime/splitkv_append.h"

namespace splitkv {

// Immutable after prepare. Any threads may use it at once.
struct PreparedAppend {
  Append append;
  Target target;
  Loaded loaded;
  std::shared_ptr<const ErrorMemory> errors;  // null unless checked
  uint64_t binding_id = 0;                    // of kernels of the same problem on the same device
};

struct AppendRequest {
  std::string device, problem;
  const char* type = nullptr;  // of new elements; null: the problem's q type
  std::string places;          // "slots" or "rows"
};

// args.tokens > 0. Each refusal names the field, its value and what would fit.
Result<AppendArgs> make_append(const PreparedAppend& prepared, const splitkv_binding& binding,
                               const splitkv_append_args& args);

}  // namespace splitkv
