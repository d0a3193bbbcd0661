// Element types of q, k, v and out, and their exact host conversions.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace splitkv {

// e4m3: 1-4-3 bits, no infinity, 0x7f and 0xff are NaN. e5m2: 1-5-2 bits, an fp16 cut short. int8:
// two's complement whole numbers, meant for use with a scale.
enum class DType { fp32, fp16, bf16, e4m3, e5m2, int8 };

constexpr int size_bytes(DType type) {
  if (type == DType::fp32) return 4;
  return type == DType::fp16 || type == DType::bf16 ? 2 : 1;
}

std::string_view name(DType type);                       // "fp32", "e4m3", ...
std::optional<DType> dtype_from_name(std::string_view);  // inverse of name

// Round to nearest, ties to even; overflow goes to infinity; NaN stays NaN.
uint16_t fp16_from_float(float value);
uint16_t bf16_from_float(float value);
float float_from_fp16(uint16_t bits);
float float_from_bf16(uint16_t bits);
// Round to nearest, ties to even; what is beyond the largest finite value becomes that value
// (saturates), NaN stays NaN.
uint8_t e4m3_from_float(float value);
uint8_t e5m2_from_float(float value);
float float_from_e4m3(uint8_t bits);
float float_from_e5m2(uint8_t bits);
int8_t int8_from_float(float value);  // nearest, ties to even, saturating; NaN becomes 0

// Element `index` of an array of `type` at `data`.
float load_element(DType type, const void* data, int64_t index);
void store_element(DType type, void* data, int64_t index, float value);

}  // namespace splitkv
