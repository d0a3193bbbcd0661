#include "tests/api/decode_case.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

namespace splitkv::testing_support {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

char* aligned(std::vector<char>& memory, size_t bytes) {
  memory.assign(bytes + 64, char(0x7f));  // as floats: large numbers, never a valid partial
  const auto address = reinterpret_cast<uintptr_t>(memory.data());
  return memory.data() + (64 - address % 64) % 64;
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const Answer& answer) {
  return out << splitkv_status_name(answer.status) << ": " << answer.message;
}

RuntimeOwner open_runtime(const splitkv_options* options) {
  splitkv_runtime* runtime = nullptr;
  const Answer opened =
      answer_of([&](splitkv_message* m) { return splitkv_open(options, &runtime, m); });
  EXPECT_TRUE(opened.ok()) << opened;
  return RuntimeOwner(runtime);
}

Answer prepare(splitkv_runtime* runtime, const std::string& device, const std::string& problem,
               const char* schedule, KernelOwner* kernel) {
  splitkv_kernel* handle = nullptr;
  const Answer answer = answer_of([&](splitkv_message* m) {
    return splitkv_prepare(runtime, device.c_str(), problem.c_str(), nullptr, schedule, &handle, m);
  });
  kernel->reset(handle);
  return answer;
}

splitkv_kernel_info info_of(const splitkv_kernel* kernel) {
  splitkv_kernel_info info = SPLITKV_INIT(splitkv_kernel_info);
  const Answer answer =
      answer_of([&](splitkv_message* m) { return splitkv_get_kernel_info(kernel, &info, m); });
  EXPECT_TRUE(answer.ok()) << answer;
  return info;
}

splitkv_statistics statistics_of(const splitkv_runtime* runtime) {
  splitkv_statistics statistics = SPLITKV_INIT(splitkv_statistics);
  const Answer answer = answer_of(
      [&](splitkv_message* m) { return splitkv_get_statistics(runtime, &statistics, m); });
  EXPECT_TRUE(answer.ok()) << answer;
  return statistics;
}

Floats::Floats(size_t count, uint32_t seed)
    : count_(count),
      data_(static_cast<float*>(std::aligned_alloc(64, (count * 4 + 63) / 64 * 64 + 64))) {
  for (size_t i = 0; i < count; ++i) {
    seed = seed * 1664525u + 1013904223u;
    data()[i] = float(int32_t(seed)) / 2147483648.0f;
  }
}

void Floats::fill(float value) { std::fill(data(), data() + count_, value); }

void Floats::Free::operator()(float* data) const { std::free(data); }

DecodeCase::DecodeCase(std::vector<int32_t> lengths, const std::string& words)
    : problem("attention q=fp32 heads=4/2 dim=32 lse=natural" +
              (words.empty() ? std::string() : " " + words)),
      kv_len(std::move(lengths)),
      capacity(1 + (kv_len.empty() ? 0 : *std::max_element(kv_len.begin(), kv_len.end()))),
      q(kv_len.size() * kQHeads * kDim, 11),
      k(kv_len.size() * kKvHeads * capacity * kDim, 12),
      v(kv_len.size() * kKvHeads * capacity * kDim, 13),
      out(kv_len.size() * kQHeads * kDim),
      lse(kv_len.size() * kQHeads) {
  out.fill(NAN);
  lse.fill(NAN);
  args.batch = int64_t(kv_len.size());
  args.q = q.data();
  args.out = out.data();
  args.lse = lse.data();
  args.kv_len = kv_len.data();
}

Answer DecodeCase::attach(const splitkv_kernel* kernel) {
  Answer answer = answer_of(
      [&](splitkv_message* m) { return splitkv_dense_strides(kernel, capacity, &tensors, m); });
  if (!answer.ok()) return answer;
  tensors.k = k.data();
  tensors.v = v.data();
  answer =
      answer_of([&](splitkv_message* m) { return splitkv_bind(kernel, &tensors, &binding, m); });
  if (!answer.ok()) return answer;
  splitkv_buffer_sizes sizes = SPLITKV_INIT(splitkv_buffer_sizes);
  answer =
      answer_of([&](splitkv_message* m) { return splitkv_sizes(kernel, args.batch, &sizes, m); });
  if (!answer.ok()) return answer;
  args.scratch = aligned(scratch_memory, sizes.scratch_bytes);
  args.scratch_bytes = sizes.scratch_bytes;
  args.state = aligned(state_memory, sizes.state_bytes);
  args.state_bytes = sizes.state_bytes;
  return answer_of([&](splitkv_message* m) {
    return splitkv_state_init(kernel, args.state, args.state_bytes, nullptr, m);
  });
}

Errors errors_of(const DecodeCase& step) {
  constexpr int kDim = DecodeCase::kDim;
  Errors errors;
  for (size_t row = 0; row < step.kv_len.size() * DecodeCase::kQHeads; ++row) {
    const size_t batch = row / DecodeCase::kQHeads;
    const size_t kv_head = row % DecodeCase::kQHeads / (DecodeCase::kQHeads / DecodeCase::kKvHeads);
    const size_t first = (batch * DecodeCase::kKvHeads + kv_head) * step.capacity * kDim;
    const float* q = step.q.data() + row * kDim;
    std::vector<double> scores(step.kv_len[batch]);
    for (size_t key = 0; key < scores.size(); ++key) {
      for (int d = 0; d < kDim; ++d) {
        scores[key] += double(q[d]) * step.k.data()[first + key * kDim + d] / std::sqrt(kDim);
      }
    }
    double maximum = -kInfinity, sum = 0;
    for (double score : scores) maximum = std::max(maximum, score);
    for (double score : scores) sum += std::exp(score - maximum);
    double difference = 0, norm = 0;
    for (int d = 0; d < kDim; ++d) {
      double expected = 0;
      for (size_t key = 0; key < scores.size(); ++key) {
        expected += std::exp(scores[key] - maximum) / sum * step.v.data()[first + key * kDim + d];
      }
      const double got = step.out.data()[row * kDim + d];
      difference += (got - expected) * (got - expected);
      norm += expected * expected;
    }
    const double lse = step.lse.data()[row];
    const bool empty = scores.empty();
    const double out_error =
        empty ? (difference == 0 ? 0 : kInfinity) : std::sqrt(difference / norm);
    const double lse_error =
        empty ? (lse == -kInfinity ? 0 : kInfinity) : std::abs(lse - maximum - std::log(sum));
    errors.out = std::isnan(out_error) ? kInfinity : std::max(errors.out, out_error);
    errors.lse = std::isnan(lse_error) ? kInfinity : std::max(errors.lse, lse_error);
  }
  return errors;
}

}  // namespace splitkv::testing_support
