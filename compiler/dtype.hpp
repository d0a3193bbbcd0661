// Element types of q, k, v and out, and their exact host conversions.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace splitkv {

enum class DType { fp32, fp16, bf16 };

constexpr int size_bytes(DType type) { return type == DType::fp32 ? 4 : 2; }

std::string_view name(DType type);                       // "fp32", "fp16", "bf16"
std::optional<DType> dtype_from_name(std::string_view);  // inverse of name

// Round to nearest, ties to even; overflow goes to infinity; NaN stays NaN.
uint16_t fp16_from_float(float value);
uint16_t bf16_from_float(float value);
float float_from_fp16(uint16_t bits);
float float_from_bf16(uint16_t bits);

// Element `index` of an array of `type` at `data`.
float load_element(DType type, const void* data, int64_t index);
void store_element(DType type, void* data, int64_t index, float value);

}  // namespace splitkv
