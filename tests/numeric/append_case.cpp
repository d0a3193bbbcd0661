#include "tests/numeric/append_case.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "compiler/text.hpp"
#include "runtime/kernel.hpp"
#include "runtime/launch.hpp"
#include "tests/numeric/contract.hpp"

namespace splitkv::testing_support {

using tool::Buffer;

struct AppendCase::Side {
  int buffer;  // of cache_
  int number;  // of scales_
  size_t at;   // bytes
  DType type;
  int64_t dim;
  KvScale scale;
  int64_t stride_block, stride_head, stride_token;
  int64_t scale_block, scale_head, scale_token;

  size_t row(const TokenPlace& place, int64_t head) const {
    const int64_t element =
        place.block * stride_block + head * stride_head + place.token * stride_token;
    return at + size_t(element) * size_t(size_bytes(type));
  }
  size_t scale_at(const TokenPlace& place, int64_t head) const {
    if (scale == KvScale::inl) return row(place, head) + size_t(dim) * size_t(size_bytes(type));
    if (scale == KvScale::tensor) return 0;
    if (scale == KvScale::head) return size_t(head) * 4;
    return 4 * size_t(place.block * scale_block + head * scale_head + place.token * scale_token);
  }
};

namespace {

// Bytes without a meaning, so that whatever is not to be written shows.
std::vector<unsigned char> noise(size_t bytes) {
  std::vector<unsigned char> noise(bytes);
  for (size_t i = 0; i < bytes; ++i) noise[i] = uint8_t((i * 2654435761u) >> 13 | 1);
  return noise;
}

std::vector<float> new_rows(int64_t rows, int64_t dim, std::mt19937& engine) {
  std::normal_distribution<float> normal;
  std::vector<float> values;
  for (int64_t row = 0; row < rows; ++row) {
    const unsigned kind = engine() % 16;
    const float size = kind == 0 ? 0.0f : kind == 1 ? 3000.0f : kind == 2 ? 1e-6f : 1.0f;
    for (int64_t i = 0; i < dim; ++i) values.push_back(size * normal(engine));
  }
  return values;
}

std::string failure_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.status(), SPLITKV_DEVICE_ERROR) << failure.what();
    return failure.what();
  }
  return "";
}

std::string difference(const char* name, const std::vector<unsigned char>& wanted,
                       const std::vector<unsigned char>& found) {
  if (wanted.size() != found.size()) return fmt::format("{}: {} bytes. ", name, found.size());
  size_t wrong = 0, first = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i] == found[i]) continue;
    if (wrong++ == 0) first = i;
  }
  if (wrong == 0) return "";
  return fmt::format("{}: {} bytes differ; byte {} is {} where {} should be. ", name, wrong, first,
                     found[first], wanted[first]);
}

std::string device_of(const AppendForm& form) {
  return form.device.empty() ? test_device() : form.device;
}

}  // namespace

AppendCase::AppendCase(const AppendForm& form)
    : form_(form),
      problem_(problem_of(form.problem)),
      new_type_(*dtype_from_name(form.type)),
      memory_(std::move(*tool::open_device_memory(device_of(form)))),
      appender_(runtime_.prepare_append(device_of(form), form.problem, form.places, form.type)) {
  std::mt19937 engine(7);
  const int64_t rows = form.tokens * problem_.kv_heads;
  k_new = new_rows(rows, problem_.dim_qk, engine);
  if (!problem_.v_in_k) v_new = new_rows(rows, problem_.dim_v, engine);
  tensors_ = *dense_strides(problem_, form.capacity);
  if (form.spaced) {
    for (int64_t* stride :
         {&tensors_.k_stride_block, &tensors_.k_stride_head, &tensors_.k_stride_token,
          &tensors_.v_stride_block, &tensors_.v_stride_head, &tensors_.v_stride_token}) {
      *stride *= 2;
    }
  }
  const auto block_bytes = [](int64_t stride, DType type) {
    return size_t(stride) * size_t(size_bytes(type));
  };
  if (form.interleaved) {
    v_at_ = block_bytes(tensors_.k_stride_block, problem_.k_dtype);
    tensors_.k_stride_block *= 2;
    tensors_.v_stride_block *= 2;
  }
  const size_t k_bytes = block_bytes(tensors_.k_stride_block, problem_.k_dtype);
  const size_t v_bytes =
      form.interleaved ? 0 : block_bytes(tensors_.v_stride_block, problem_.v_dtype);
  expected_[0] = noise(k_bytes * size_t(form.blocks));
  expected_[1] = noise(v_bytes * size_t(form.blocks));
  const auto scale_bytes = [&](KvScale scale, int64_t stride) {
    if (scale == KvScale::token) return size_t(stride * form.blocks) * 4;
    return scale == KvScale::tensor || scale == KvScale::head ? size_t(problem_.kv_heads) * 4 : 0;
  };
  expected_scales_[0] = noise(scale_bytes(problem_.k_scale, tensors_.k_scale_stride_block));
  expected_scales_[1] =
      noise(problem_.v_in_k ? 0 : scale_bytes(problem_.v_scale, tensors_.v_scale_stride_block));
  for (int64_t head = 0; head < problem_.kv_heads; ++head) {
    given_scales.push_back(head % 2 == 0 ? 0.037f + float(head) : 0.0625f);
  }
  for (int i = 0; i < 2; ++i) {
    cache_[i] = std::move(*memory_->allocate(expected_[i].size()));
    scales_[i] = std::move(*memory_->allocate(expected_scales_[i].size()));
    EXPECT_TRUE(memory_->copy_in(cache_[i], expected_[i].data(), expected_[i].size()).ok());
  }
  tensors_.k = cache_[0].data();
  if (!problem_.v_in_k) {
    tensors_.v = form.interleaved ? static_cast<char*>(cache_[0].data()) + v_at_ : cache_[1].data();
  }
  binding_.tensors = tensors_;
  binding_.kernel_id = binding_id_of(device_of(form), print(problem_));
}

AppendCase::Side AppendCase::side(bool of_v) const {
  const splitkv_tensors& t = tensors_;
  if (!of_v) {
    return {0,
            0,
            0,
            problem_.k_dtype,
            problem_.dim_qk,
            problem_.k_scale,
            t.k_stride_block,
            t.k_stride_head,
            t.k_stride_token,
            t.k_scale_stride_block,
            t.k_scale_stride_head,
            t.k_scale_stride_token};
  }
  return {form_.interleaved ? 0 : 1,
          1,
          v_at_,
          problem_.v_dtype,
          problem_.dim_v,
          problem_.v_scale,
          t.v_stride_block,
          t.v_stride_head,
          t.v_stride_token,
          t.v_scale_stride_block,
          t.v_scale_stride_head,
          t.v_scale_stride_token};
}

const void* AppendCase::place_bytes(const void* data, size_t bytes) {
  placed_.push_back(std::move(*memory_->allocate(bytes)));
  EXPECT_TRUE(memory_->copy_in(placed_.back(), data, bytes).ok());
  return placed_.back().data();
}

// New rows in the appender's type, with gaps of NaN between them.
void AppendCase::place_new() {
  const auto spread = [&](std::vector<float>& values, int64_t dim) {
    const int64_t row = dim + form_.new_gap, rows = int64_t(values.size()) / dim;
    std::vector<unsigned char> bytes(size_t(rows * row) * size_t(size_bytes(new_type_)), 0xff);
    for (int64_t i = 0; i < int64_t(values.size()); ++i) {
      const int64_t at = i / dim * row + i % dim;
      store_element(new_type_, bytes.data(), at, values[size_t(i)]);
      values[size_t(i)] = load_element(new_type_, bytes.data(), at);
    }
    return place(bytes);
  };
  args.tokens = form_.tokens;
  args.k_new = spread(k_new, problem_.dim_qk);
  if (!problem_.v_in_k) args.v_new = spread(v_new, problem_.dim_v);
  if (form_.new_gap == 0) return;
  args.k_new_stride_head = problem_.dim_qk + form_.new_gap;
  args.k_new_stride_token = args.k_new_stride_head * problem_.kv_heads;
  if (problem_.v_in_k) return;
  args.v_new_stride_head = problem_.dim_v + form_.new_gap;
  args.v_new_stride_token = args.v_new_stride_head * problem_.kv_heads;
}

std::string AppendCase::run(const Go& go) {
  place_new();
  const KvScale kinds[] = {problem_.k_scale, problem_.v_in_k ? KvScale::none : problem_.v_scale};
  for (int i = 0; i < 2; ++i) {
    if (kinds[i] == KvScale::none || kinds[i] == KvScale::inl) continue;
    if (kinds[i] != KvScale::token) {
      std::memcpy(expected_scales_[i].data(), given_scales.data(), given_scales.size() * 4);
    }
    EXPECT_TRUE(
        memory_->copy_in(scales_[i], expected_scales_[i].data(), expected_scales_[i].size()).ok());
    (i == 0 ? tensors_.k_scale : tensors_.v_scale) = static_cast<float*>(scales_[i].data());
  }
  binding_.tensors = tensors_;
  return failure_of([&] {
    if (go) return go(binding_, args);
    appender_.append(binding_, args);
  });
}

std::string AppendCase::poll() {
  return failure_of([&] { appender_.poll_fault(); });
}

void AppendCase::write_expected(const Side& side, const std::vector<float>& fresh,
                                const TokenPlaces& places) {
  const int bytes = size_bytes(side.type);
  for (size_t token = 0; token < places.size(); ++token) {
    if (places[token].block < 0) continue;
    for (int64_t head = 0; head < problem_.kv_heads; ++head) {
      const auto first = fresh.begin() + (int64_t(token) * problem_.kv_heads + head) * side.dim;
      const std::vector<float> row(first, first + side.dim);
      unsigned char* stored = expected_[side.buffer].data() + side.row(places[token], head);
      float scale = 1;
      if (is_scale_of_key(side.scale)) {
        scale = reference_scale(side.type, row);
        unsigned char* to = side.scale == KvScale::inl ? expected_[side.buffer].data()
                                                       : expected_scales_[side.number].data();
        std::memcpy(to + side.scale_at(places[token], head), &scale, 4);
      } else if (side.scale != KvScale::none) {
        scale = given_scales[side.scale == KvScale::head ? size_t(head) : 0];
      }
      for (int64_t i = 0; i < side.dim; ++i) {
        const uint32_t bits = reference_bits(side.type, row[size_t(i)],
                                             side.scale == KvScale::none ? nullptr : &scale);
        std::memcpy(stored + i * bytes, &bits, size_t(bytes));
        if (bits != kAnyNan) continue;
        nans_.push_back(
            {side.buffer, side.row(places[token], head) + size_t(i * bytes), side.type});
      }
    }
  }
}

std::vector<unsigned char> AppendCase::bring(const Buffer& buffer) const {
  std::vector<unsigned char> bytes(buffer.bytes());
  EXPECT_TRUE(memory_->copy_out(bytes.data(), buffer, buffer.bytes()).ok());
  return bytes;
}

// Whatever NaN was written is the expected one.
std::string AppendCase::take_nans(int buffer, const std::vector<unsigned char>& found) {
  std::string wrong;
  for (const NanElement& element : nans_) {
    if (element.buffer != buffer) continue;
    uint32_t bits = 0;
    const size_t bytes = size_t(size_bytes(element.type));
    std::memcpy(&bits, found.data() + element.at, bytes);
    if (!std::isnan(reference_value(element.type, bits))) {
      wrong += fmt::format("byte {} holds {:#x} where a NaN should be. ", element.at, bits);
    }
    std::memcpy(expected_[buffer].data() + element.at, &bits, bytes);
  }
  return wrong;
}

std::string AppendCase::differences(const TokenPlaces& k, const TokenPlaces& v) {
  nans_.clear();
  write_expected(side(false), k_new, k);
  if (!problem_.v_in_k) write_expected(side(true), v_new, v.empty() ? k : v);
  std::string all;
  for (int i = 0; i < 2; ++i) {
    const std::vector<unsigned char> found = bring(cache_[i]);
    all += take_nans(i, found);
    all += difference(i == 0 ? "K" : "V", expected_[i], found);
    all += difference(i == 0 ? "K's scales" : "V's scales", expected_scales_[i], bring(scales_[i]));
  }
  return all;
}

void AppendCase::expect_written(const TokenPlaces& k, const TokenPlaces& v) {
  EXPECT_EQ(differences(k, v), "");
}

uint32_t AppendCase::bits(bool of_v, const TokenPlace& at, int64_t head, int64_t element) const {
  const Side of = side(of_v);
  const size_t bytes = size_t(size_bytes(of.type));
  uint32_t bits = 0;
  std::memcpy(&bits, expected_[of.buffer].data() + of.row(at, head) + size_t(element) * bytes,
              bytes);
  return bits;
}

float AppendCase::scale(bool of_v, const TokenPlace& at, int64_t head) const {
  const Side of = side(of_v);
  if (of.scale == KvScale::none) return 1;
  const auto& held = of.scale == KvScale::inl ? expected_[of.buffer] : expected_scales_[of.number];
  float scale = 0;
  std::memcpy(&scale, held.data() + of.scale_at(at, head), 4);
  return scale;
}

double AppendCase::read(bool of_v, const TokenPlace& at, int64_t head, int64_t element) const {
  return reference_value(side(of_v).type, bits(of_v, at, head, element)) * scale(of_v, at, head);
}

}  // namespace splitkv::testing_support
