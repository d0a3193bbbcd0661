#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <new>

#include "device.hpp"
#include "thread_pool.hpp"

namespace engine {
namespace {

// The sum of products in a fixed order, which does not depend on the rows beside it. Lanes add up
// by themselves, so that the compiler may keep them in vector registers.
constexpr int64_t kLanes = 16;

float sum_of(const std::array<float, kLanes>& lanes) {
  float sum = 0;
  for (const float lane : lanes) sum += lane;
  return sum;
}

float dot(const float* a, const float* b, int64_t n) {
  std::array<float, kLanes> lanes{};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) lanes[size_t(lane)] += a[i + lane] * b[i + lane];
  }
  float sum = sum_of(lanes);
  for (; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

class Cpu : public Device {
 public:
  explicit Cpu(ThreadPool& threads) : threads_(threads) {}

  std::string target() const override { return "cpu"; }
  void* stream() const override { return nullptr; }
  Dtype dtype() const override { return Dtype::fp32; }
  ThreadPool* threads() const override { return &threads_; }

  Memory allocate(size_t bytes) override {
    constexpr size_t kLine = 64;
    const size_t whole = (bytes / kLine + 1) * kLine;
    void* data = std::aligned_alloc(kLine, whole);
    if (data == nullptr) throw std::bad_alloc();
    std::memset(data, 0, whole);
    return Memory(data, std::free);
  }
  Memory allocate_staging(size_t bytes) override { return allocate(bytes); }
  void upload(void* to, const void* from, size_t bytes) override { std::memcpy(to, from, bytes); }
  void download(void* to, const void* from, size_t bytes) override { std::memcpy(to, from, bytes); }
  void wait() override {}

  void gather(void* out, const void* table, const int32_t* indices, int64_t rows,
              int64_t width) override {
    for (int64_t row = 0; row < rows; ++row) {
      std::memcpy(static_cast<float*>(out) + row * width,
                  static_cast<const float*>(table) + indices[row] * width, size_t(width) * 4);
    }
  }

  void rms_norm(void* out, const void* in, const void* weight, int64_t rows, int64_t width,
                float eps) override {
    const auto* weights = static_cast<const float*>(weight);
    for (int64_t row = 0; row < rows; ++row) {
      const float* from = static_cast<const float*>(in) + row * width;
      float* to = static_cast<float*>(out) + row * width;
      const float factor = 1 / std::sqrt(dot(from, from, width) / float(width) + eps);
      for (int64_t i = 0; i < width; ++i) to[i] = weights[i] * (from[i] * factor);
    }
  }

  // Each piece takes some rows of the weight past all rows of the input, so that the weight, which
  // is the larger one, is read once.
  void multiply(const Product& product) override {
    constexpr int64_t kPiece = 32;
    threads_.for_each((product.n + kPiece - 1) / kPiece, [&](int64_t piece) {
      const int64_t end = std::min(product.n, (piece + 1) * kPiece);
      for (int64_t row = 0; row < product.rows; ++row) {
        const float* in = static_cast<const float*>(product.in) + row * product.k;
        float* out = static_cast<float*>(product.out) + row * product.n;
        for (int64_t i = piece * kPiece; i < end; ++i) {
          const float* weight = static_cast<const float*>(product.weight) + i * product.k;
          out[i] = dot(in, weight, product.k) + (product.add ? out[i] : 0.0f);
        }
      }
    });
  }

  void rotate(const Rotation& r) override {
    const int64_t half = r.dim / 2;
    for (int64_t row = 0; row < r.rows; ++row) {
      const float* cosines = r.cosines + r.positions[row] * half;
      const float* sines = r.sines + r.positions[row] * half;
      for (int64_t head = 0; head < r.heads; ++head) {
        float* first = static_cast<float*>(r.rows_of_heads) + row * r.row_stride + head * r.dim;
        for (int64_t i = 0; i < half; ++i) {
          const float a = first[i], b = first[i + half];
          first[i] = a * cosines[i] - b * sines[i];
          first[i + half] = b * cosines[i] + a * sines[i];
        }
      }
    }
  }

  void silu_multiply(void* out, const void* in, int64_t rows, int64_t width) override {
    threads_.for_each(rows, [&](int64_t row) {
      const float* gate = static_cast<const float*>(in) + row * 2 * width;
      const float* up = gate + width;
      float* to = static_cast<float*>(out) + row * width;
      for (int64_t i = 0; i < width; ++i) to[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
    });
  }

  void argmax(int32_t* out, const float* rows_of_floats, int64_t rows, int64_t width) override {
    for (int64_t row = 0; row < rows; ++row) {
      const float* first = rows_of_floats + row * width;
      out[row] = int32_t(std::max_element(first, first + width) - first);
    }
  }

  bool has_graphs() const override { return false; }
  std::unique_ptr<Graph> capture(const std::function<void()>&) override { return nullptr; }

  void mark(size_t moment) override {
    if (moment >= moments_.size()) moments_.resize(moment + 1);
    moments_[moment] = std::chrono::steady_clock::now();
  }
  double ms_between(size_t begin, size_t end) override {
    return std::chrono::duration<double, std::milli>(moments_.at(end) - moments_.at(begin)).count();
  }

  void read(const void* data, size_t bytes) override {
    constexpr int64_t kPiece = 1 << 16;
    const auto numbers = int64_t(bytes / 4);
    std::atomic<uint32_t> all = 0;
    threads_.for_each((numbers + kPiece - 1) / kPiece, [&](int64_t piece) {
      const auto* first = static_cast<const uint32_t*>(data) + piece * kPiece;
      const int64_t count = std::min(kPiece, numbers - piece * kPiece);
      uint32_t sum = 0;
      for (int64_t i = 0; i < count; ++i) sum += first[i];
      all += sum;
    });
    sink_ = all;
  }

 private:
  ThreadPool& threads_;
  std::vector<std::chrono::steady_clock::time_point> moments_;
  volatile uint32_t sink_ = 0;
};

}  // namespace

std::vector<std::byte> to_elements(Dtype dtype, const std::vector<float>& floats) {
  std::vector<std::byte> bytes(floats.size() * size_of(dtype));
  if (dtype == Dtype::fp32) {
    std::memcpy(bytes.data(), floats.data(), bytes.size());
    return bytes;
  }
  for (size_t i = 0; i < floats.size(); ++i) {
    const auto bits = std::bit_cast<uint32_t>(floats[i]);
    const auto half = uint16_t((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);  // finite numbers
    std::memcpy(&bytes[i * 2], &half, 2);
  }
  return bytes;
}

std::vector<float> from_elements(Dtype dtype, const std::vector<std::byte>& bytes) {
  std::vector<float> floats(bytes.size() / size_of(dtype));
  if (dtype == Dtype::fp32) {
    std::memcpy(floats.data(), bytes.data(), bytes.size());
    return floats;
  }
  for (size_t i = 0; i < floats.size(); ++i) {
    uint16_t half = 0;
    std::memcpy(&half, &bytes[i * 2], 2);
    floats[i] = std::bit_cast<float>(uint32_t(half) << 16);
  }
  return floats;
}

std::unique_ptr<Device> open_cpu(ThreadPool& threads) { return std::make_unique<Cpu>(threads); }

}  // namespace engine
