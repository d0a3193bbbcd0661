// C++17 through splitkv.hpp: pages of 4 tokens, bf16 K and V, two query heads a kv head.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <splitkv/splitkv.hpp>
#include <vector>

namespace {

constexpr int kHeads = 4, kKvHeads = 2, kDim = 16, kPage = 4, kTokens = 11;
const std::vector<std::int32_t> pages = {5, 0, 3};  // of the one row

std::uint16_t to_bf16(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return std::uint16_t(bits >> 16);
}

double from_bf16(std::uint16_t value) {
  const std::uint32_t bits = std::uint32_t(value) << 16;
  float wide;
  std::memcpy(&wide, &bits, sizeof(wide));
  return wide;
}

std::size_t place(int token, int head) {  // in [page, token, head, dim]
  return (std::size_t(pages[token / kPage]) * kPage + token % kPage) * kKvHeads * kDim +
         head * kDim;
}

double largest_error(const std::vector<float>& q, const std::vector<std::uint16_t>& k,
                     const std::vector<std::uint16_t>& v, const std::vector<float>& out) {
  double largest = 0;
  for (int head = 0; head < kHeads; ++head) {
    std::vector<double> sum(kDim);
    double weights = 0;
    for (int token = 0; token < kTokens; ++token) {
      const std::size_t at = place(token, head / (kHeads / kKvHeads));
      double score = 0;
      for (int d = 0; d < kDim; ++d) score += q[head * kDim + d] * from_bf16(k[at + d]);
      const double weight = std::exp(score / std::sqrt(double(kDim)));
      weights += weight;
      for (int d = 0; d < kDim; ++d) sum[d] += weight * from_bf16(v[at + d]);
    }
    for (int d = 0; d < kDim; ++d)
      largest = std::fmax(largest, std::fabs(sum[d] / weights - out[head * kDim + d]));
  }
  return largest;
}

int run() {
  std::vector<float> q(kHeads * kDim), out(q.size(), NAN);
  std::vector<std::uint16_t> k(6 * kPage * kKvHeads * kDim, to_bf16(NAN)), v(k);
  for (std::size_t i = 0; i < q.size(); ++i) q[i] = std::sin(float(i));
  for (int token = 0; token < kTokens; ++token) {
    for (int head = 0; head < kKvHeads; ++head) {
      for (int d = 0; d < kDim; ++d) {
        k[place(token, head) + d] = to_bf16(std::cos(float(token * 7 + head * 3 + d)));
        v[place(token, head) + d] = to_bf16(std::sin(float(token * 5 + head * 11 + d)));
      }
    }
  }

  splitkv::Runtime runtime;
  splitkv::Kernel kernel =
      runtime.prepare("cpu", "attention q=fp32 kv=bf16 heads=4/2 dim=16 kv_layout=paged:4:nhd");
  splitkv_tensors cache = kernel.dense_strides(0);
  cache.k = k.data(), cache.v = v.data();
  const splitkv::Binding layer = kernel.bind(cache);
  const splitkv_buffer_sizes sizes = kernel.sizes(1);
  std::vector<char> scratch(sizes.scratch_bytes + 16), state(sizes.state_bytes);
  auto args = splitkv::sized<splitkv_args>();
  args.batch = 1, args.q = q.data(), args.out = out.data();
  args.kv_len_host = kTokens;
  args.page_table = pages.data(), args.page_table_stride = std::int64_t(pages.size());
  args.scratch = scratch.data(), args.scratch_bytes = sizes.scratch_bytes;
  args.state = state.data(), args.state_bytes = state.size();
  kernel.run(layer, args);
  const double error = largest_error(q, k, v, out);
  std::printf("C++: largest error %.2g\n", error);
  return error < 1e-5 ? 0 : 1;
}

}  // namespace

int main() {
  try {
    return run();
  } catch (const splitkv::Failure& failure) {
    std::printf("%s: %s\n", splitkv_status_name(failure.status()), failure.what());
    return 1;
  }
}
