#include "tools/reference/attention.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <thread>

namespace splitkv::reference {
namespace {

std::vector<double> scores_of(const Attention& a, int64_t row, int64_t head) {
  std::vector<double> q(a.dim_qk), k(a.dim_qk);
  a.q(row, head, 0, q.data());
  const int64_t kv_head = head / (a.q_heads / a.kv_heads);
  std::vector<double> scores;
  for (int64_t token = first_visible(a, a.kv_len[row]); token < a.kv_len[row]; ++token) {
    a.k(row, kv_head, token, k.data());
    double dot = 0;
    for (int64_t i = 0; i < a.dim_qk; ++i) dot += q[i] * k[i];
    double score = a.scale * dot;
    if (a.softcap > 0) score = a.softcap * std::tanh(score / a.softcap);
    scores.push_back(score);
  }
  return scores;
}

void attend_head(const Attention& a, int64_t row, int64_t head, Answer& answer) {
  const std::vector<double> scores = scores_of(a, row, head);
  if (scores.empty()) return;
  const double greatest = *std::max_element(scores.begin(), scores.end());
  double* out = &answer.out[(row * a.q_heads + head) * a.dim_v];
  const int64_t kv_head = head / (a.q_heads / a.kv_heads);
  const int64_t first = first_visible(a, a.kv_len[row]);
  std::vector<double> v(a.dim_v);
  double sum = 0;
  for (size_t j = 0; j < scores.size(); ++j) {
    const double weight = std::exp(scores[j] - greatest);
    sum += weight;
    a.v(row, kv_head, first + int64_t(j), v.data());
    for (int64_t i = 0; i < a.dim_v; ++i) out[i] += weight * v[i];
  }
  for (int64_t i = 0; i < a.dim_v; ++i) out[i] /= sum;
  answer.lse[row * a.q_heads + head] = greatest + std::log(sum);
}

}  // namespace

int64_t first_visible(const Attention& attention, int64_t kv_len) {
  if (attention.window == 0) return 0;
  return std::max<int64_t>(0, kv_len - attention.window);
}

Answer attend(const Attention& attention, int threads) {
  const int64_t batch = int64_t(attention.kv_len.size());
  const int64_t heads = batch * attention.q_heads;
  Answer answer;
  answer.out.assign(heads * attention.dim_v, 0.0);
  answer.lse.assign(heads, -std::numeric_limits<double>::infinity());

  std::atomic<int64_t> next = 0;
  const auto work = [&] {
    for (int64_t i = next++; i < heads; i = next++) {
      attend_head(attention, i / attention.q_heads, i % attention.q_heads, answer);
    }
  };
  if (threads <= 0) threads = std::max(1u, std::thread::hardware_concurrency());
  std::vector<std::thread> others;
  for (int i = 1; i < std::min<int64_t>(threads, heads); ++i) others.emplace_back(work);
  work();
  for (std::thread& other : others) other.join();
  return answer;
}

}  // namespace splitkv::reference
