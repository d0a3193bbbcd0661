#include "tools/splitkv/npy.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <string_view>

#include "compiler/dtype.hpp"

namespace splitkv::tool {
namespace {

constexpr std::string_view kMagic("\x93NUMPY", 6);

struct Header {
  NpyType type = NpyType::float32;
  std::vector<int64_t> shape;
  size_t data_offset = 0;
};

Error bad_file(const std::string& path, std::string_view what) {
  return invalid_argument(fmt::format("{}: {}", path, what));
}

// The text behind "'key':" in the header's dictionary, up to one of the characters `ends`.
std::optional<std::string_view> entry(std::string_view dictionary, std::string_view key,
                                      std::string_view ends) {
  const size_t at = dictionary.find(fmt::format("'{}'", key));
  if (at == std::string_view::npos) return std::nullopt;
  const size_t colon = dictionary.find(':', at);
  if (colon == std::string_view::npos) return std::nullopt;
  const size_t first = dictionary.find_first_not_of(" (", colon + 1);
  if (first == std::string_view::npos) return std::nullopt;
  const size_t last = dictionary.find_first_of(ends, first);
  if (last == std::string_view::npos) return std::nullopt;
  return dictionary.substr(first, last - first);
}

std::optional<NpyType> type_of(std::string_view descr) {
  if (descr == "'<f4'") return NpyType::float32;
  if (descr == "'<f2'") return NpyType::float16;
  if (descr == "'<i4'") return NpyType::int32;
  if (descr == "'<i8'") return NpyType::int64;
  return std::nullopt;
}

// Nothing where an extent is not a number or the product leaves 2^60 elements behind.
std::optional<std::vector<int64_t>> shape_of(std::string_view text) {
  std::vector<int64_t> shape;
  int64_t count = 1;
  while (!text.empty()) {
    if (text.front() == ' ' || text.front() == ',') {
      text.remove_prefix(1);
      continue;
    }
    int64_t extent = 0;
    const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), extent);
    if (fault != std::errc() || extent < 0) return std::nullopt;
    if (__builtin_mul_overflow(count, extent, &count) || count > int64_t(1) << 60) {
      return std::nullopt;
    }
    shape.push_back(extent);
    text.remove_prefix(end - text.data());
  }
  return shape;
}

Result<Header> parse_header(const std::string& path, std::string_view file) {
  if (file.size() < 12 || file.substr(0, 6) != kMagic) return bad_file(path, "is not a .npy file");
  const int version = static_cast<unsigned char>(file[6]);
  if (version != 1 && version != 2) {
    return bad_file(path, fmt::format(".npy format version {}; 1 and 2 are read", version));
  }
  const size_t length_bytes = version == 1 ? 2 : 4;
  uint32_t length = 0;
  std::memcpy(&length, file.data() + 8, length_bytes);
  const size_t begin = 8 + length_bytes;
  if (file.size() < begin + length) return bad_file(path, "is cut short within its header");
  const std::string_view dictionary = file.substr(begin, length);

  const auto descr = entry(dictionary, "descr", ",}");
  const auto order = entry(dictionary, "fortran_order", ",}");
  const auto extents = entry(dictionary, "shape", ")");
  if (!descr || !order || !extents) {
    return bad_file(path, "its header lacks descr, fortran_order or shape");
  }
  if (*order != "False") {
    return bad_file(path, "is in Fortran order; C order is read (numpy.ascontiguousarray)");
  }
  const auto type = type_of(*descr);
  if (!type) {
    return bad_file(path, fmt::format("holds elements of type {}; '<f4' and '<f2' are read for "
                                      "tensors, '<i4' and '<i8' for lengths",
                                      *descr));
  }
  const auto shape = shape_of(*extents);
  if (!shape) return bad_file(path, fmt::format("its shape ({}) does not parse", *extents));
  return Header{*type, *shape, begin + length};
}

}  // namespace

int64_t size_bytes(NpyType type) {
  switch (type) {
    case NpyType::float16:
      return 2;
    case NpyType::float32:
    case NpyType::int32:
      return 4;
    case NpyType::int64:
      break;
  }
  return 8;
}

int64_t element_count(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  return count;
}

std::string print_shape(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

Result<NpyArray> read_npy(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) return bad_file(path, "cannot be opened");
  std::string file;
  try {  // a folder opens, and throws when it is read
    file.assign(std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>());
  } catch (const std::ios_base::failure&) {
    return bad_file(path, "cannot be read; a .npy file would work");
  }
  const Result<Header> header = parse_header(path, file);
  if (!header) return header.error();
  const size_t bytes = size_t(element_count(header->shape) * size_bytes(header->type));
  const size_t held = file.size() - header->data_offset;
  if (held != bytes) {
    return bad_file(path, fmt::format("holds {} bytes of data; its shape {} needs {}", held,
                                      print_shape(header->shape), bytes));
  }
  NpyArray array{header->type, header->shape, std::vector<std::byte>(bytes)};
  if (bytes > 0) std::memcpy(array.data.data(), file.data() + header->data_offset, bytes);
  return array;
}

Result<FloatArray> read_npy_floats(const std::string& path) {
  const Result<NpyArray> array = read_npy(path);
  if (!array) return array.error();
  if (array->type != NpyType::float32 && array->type != NpyType::float16) {
    return bad_file(path, "holds integers; a tensor is float32 or float16");
  }
  const DType type = array->type == NpyType::float32 ? DType::fp32 : DType::fp16;
  FloatArray floats{array->shape, std::vector<float>(element_count(array->shape))};
  for (size_t i = 0; i < floats.values.size(); ++i) {
    floats.values[i] = load_element(type, array->data.data(), int64_t(i));
  }
  return floats;
}

Result<IntArray> read_npy_ints(const std::string& path) {
  const Result<NpyArray> array = read_npy(path);
  if (!array) return array.error();
  if (array->type != NpyType::int32 && array->type != NpyType::int64) {
    return bad_file(path, "holds floating-point numbers; lengths are int32 or int64");
  }
  const size_t size = size_t(size_bytes(array->type));
  IntArray ints{array->shape, std::vector<int64_t>(element_count(array->shape))};
  for (size_t i = 0; i < ints.values.size(); ++i) {
    if (array->type == NpyType::int32) {
      int32_t value;
      std::memcpy(&value, array->data.data() + i * size, size);
      ints.values[i] = value;
    } else {
      std::memcpy(&ints.values[i], array->data.data() + i * size, size);
    }
  }
  return ints;
}

Outcome write_npy(const std::string& path, const std::vector<int64_t>& shape,
                  std::span<const float> values) {
  std::string dictionary =
      fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}{}), }}",
                  fmt::join(shape, ", "), shape.size() == 1 ? "," : "");
  // Magic, version, length and dictionary together fill a multiple of 64 bytes, the last a newline.
  dictionary.resize((10 + dictionary.size() + 64) / 64 * 64 - 10, ' ');
  dictionary.back() = '\n';
  const uint16_t length = uint16_t(dictionary.size());
  std::string head(kMagic);
  head += std::string("\x01\x00", 2);
  head.append(reinterpret_cast<const char*>(&length), 2);
  head += dictionary;
  std::ofstream stream(path, std::ios::binary);
  stream.write(head.data(), std::streamsize(head.size()));
  stream.write(reinterpret_cast<const char*>(values.data()), std::streamsize(values.size_bytes()));
  stream.flush();
  if (!stream) return bad_file(path, "cannot be written");
  return Unit{};
}

}  // namespace splitkv::tool
