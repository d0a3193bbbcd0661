// Where the reference reads its inputs from: whole vectors of one token, as doubles. The
// conversions of 16-bit and 8-bit types are this folder's own, so that a fault in the library's
// cannot hide here.
#pragma once

#include <cstdint>
#include <functional>

namespace splitkv::reference {

enum class Element { fp32, fp16, bf16, fp64, e4m3, e5m2, int8 };

// Exact values of the bit patterns.
double value_of_fp16(uint16_t bits);
double value_of_bf16(uint16_t bits);
double value_of_e4m3(uint8_t bits);  // no infinity; 0x7f and 0xff are NaN
double value_of_e5m2(uint8_t bits);

// Element `index` of an array of `element` at `data`.
double value_at(Element element, const void* data, int64_t index);

// Writes the vector of (batch row, head, token) to `values`; its length is the tensor's dim.
using ReadVector = std::function<void(int64_t row, int64_t head, int64_t token, double* values)>;

// A dense array [batch, heads, tokens, dim] at `data`, which must outlive the reader.
ReadVector dense(Element element, const void* data, int64_t heads, int64_t tokens, int64_t dim);

}  // namespace splitkv::reference
