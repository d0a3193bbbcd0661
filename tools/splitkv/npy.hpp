// NumPy's .npy files: little-endian, C order, format versions 1 and 2.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "compiler/result.hpp"

namespace splitkv::tool {

enum class NpyType { float32, float16, int32, int64 };

struct NpyArray {
  NpyType type = NpyType::float32;
  std::vector<int64_t> shape;
  std::vector<std::byte> data;  // C order

  bool operator==(const NpyArray&) const = default;
};

int64_t size_bytes(NpyType type);
int64_t element_count(const std::vector<int64_t>& shape);
std::string print_shape(const std::vector<int64_t>& shape);  // "[2, 8, 128]"

// Fails, naming the file, when it is missing, cut short, in Fortran order, or of another type.
Result<NpyArray> read_npy(const std::string& path);

// read_npy, and the array's elements as float (float32, float16) or as int64 (int32, int64); other
// types are refused.
struct FloatArray {
  std::vector<int64_t> shape;
  std::vector<float> values;
};
Result<FloatArray> read_npy_floats(const std::string& path);
struct IntArray {
  std::vector<int64_t> shape;
  std::vector<int64_t> values;
};
Result<IntArray> read_npy_ints(const std::string& path);

// float32, format version 1. values.size() is the product of the shape.
Outcome write_npy(const std::string& path, const std::vector<int64_t>& shape,
                  std::span<const float> values);

}  // namespace splitkv::tool
