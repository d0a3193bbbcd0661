#include "tools/reference/attention.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <optional>
#include <thread>

#include "tools/reference/expression.hpp"

namespace splitkv::reference {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The user's texts, parsed once. The names in front of the params', in the order of `named`.
struct UserTexts {
  std::optional<Expression> score;
  std::optional<Expression> predicate;
};

std::vector<std::string> names_of(const Attention& a, bool with_score) {
  std::vector<std::string> names = {
      with_score ? "score" : "", "query_pos", "key_pos", "kv_len", "head", "batch"};
  for (const Param& param : a.params) names.push_back(param.name);
  return names;
}

UserTexts parse_texts(const Attention& a) {
  UserTexts texts;
  if (!a.score.empty()) texts.score.emplace(a.score, names_of(a, true));
  if (!a.predicate.empty()) texts.predicate.emplace(a.predicate, names_of(a, false));
  return texts;
}

// One query of one head of one batch row.
struct Query {
  int64_t row, head, index;
  int64_t kv_head;
  int64_t position;
};

double value_of(const Param& param, const Query& query) {
  switch (param.per) {
    case Param::Per::all:
      return param.values.at(0);
    case Param::Per::head:
      return param.values.at(size_t(query.head));
    case Param::Per::row:
      break;
  }
  return param.values.at(size_t(query.row));
}

std::vector<double> named(const Attention& a, const Query& query, double score, int64_t key_pos) {
  std::vector<double> values = {score,
                                double(query.position),
                                double(key_pos),
                                double(total_of(a, query.row)),
                                double(query.head),
                                double(query.row)};
  for (const Param& param : a.params) values.push_back(value_of(param, query));
  return values;
}

int64_t position_of_key(const Attention& a, int64_t key) {
  return a.total_len.empty() ? key : a.pos0 + key * a.pos_step;
}

// The start of the chunk of `size` positions that holds `position`.
int64_t chunk_start(int64_t position, int64_t size) {
  int64_t start = position - position % size;
  if (start > position) start -= size;
  return start;
}

bool sees(const Attention& a, const UserTexts& texts, const Query& query, int64_t key) {
  const int64_t position = position_of_key(a, key);
  if (a.mask == Mask::causal && position > query.position) return false;
  if (a.mask == Mask::tree) {
    const int64_t bit = key - (a.kv_len[size_t(query.row)] - queries_of(a, query.row));
    if (bit >= 0 && !a.tree(query.row, query.index, bit)) return false;
  }
  if (a.window > 0 && position <= query.position - a.window) return false;
  if (a.chunk > 0 && position < chunk_start(query.position, a.chunk)) return false;
  return !texts.predicate || texts.predicate->evaluate(named(a, query, 0, position)) != 0;
}

double score_of(const Attention& a, const UserTexts& texts, const Query& query, int64_t key,
                const std::vector<double>& q) {
  std::vector<double> k(size_t(a.dim_qk));
  a.k(query.row, query.kv_head, key, k.data());
  double dot = 0;
  for (size_t i = 0; i < k.size(); ++i) dot += q[i] * k[i];
  if (a.k_scale) dot *= a.k_scale(query.row, query.kv_head, key);
  double score = a.scale * dot;
  if (a.softcap > 0) score = a.softcap * std::tanh(score / a.softcap);
  const int64_t position = position_of_key(a, key);
  if (!a.alibi_slopes.empty()) {
    score += a.alibi_slopes[size_t(query.head)] * double(position - query.position);
  }
  if (a.bias) score += a.bias(query.row, query.head, query.index, key);
  if (texts.score) score = texts.score->evaluate(named(a, query, score, position));
  return score;
}

struct Seen {
  int64_t key;
  double score;
};

std::vector<Seen> seen_keys(const Attention& a, const UserTexts& texts, const Query& query) {
  std::vector<double> q(size_t(a.dim_qk));
  a.q(query.row, query.head, query.index, q.data());
  std::vector<Seen> seen;
  const int64_t first =
      a.kv_begin.empty() ? 0 : std::max<int64_t>(0, a.kv_begin[size_t(query.row)]);
  for (int64_t key = first; key < a.kv_len[size_t(query.row)]; ++key) {
    if (!sees(a, texts, query, key)) continue;
    seen.push_back({key, score_of(a, texts, query, key, q)});
  }
  return seen;
}

void attend_query(const Attention& a, const UserTexts& texts, const Query& query, double* out,
                  double& lse) {
  const std::vector<Seen> seen = seen_keys(a, texts, query);
  const double sink = a.sinks.empty() ? -kInfinity : a.sinks[size_t(query.head)];
  double greatest = sink;
  for (const Seen& key : seen) greatest = std::max(greatest, key.score);
  if (greatest == -kInfinity) return;
  double sum = std::exp(sink - greatest);
  std::vector<double> v(size_t(a.dim_v));
  for (const Seen& key : seen) {
    const double weight = std::exp(key.score - greatest);
    sum += weight;
    a.v(query.row, query.kv_head, key.key, v.data());
    const double factor = a.v_scale ? a.v_scale(query.row, query.kv_head, key.key) : 1;
    for (size_t i = 0; i < v.size(); ++i) out[i] += weight * factor * v[i];
  }
  for (size_t i = 0; i < v.size(); ++i) out[i] /= sum;
  lse = greatest + std::log(sum);
}

}  // namespace

int64_t queries_of(const Attention& attention, int64_t row) {
  return attention.queries.empty() ? attention.query_len : attention.queries[size_t(row)];
}

int64_t total_of(const Attention& attention, int64_t row) {
  const auto& lengths = attention.total_len.empty() ? attention.kv_len : attention.total_len;
  return lengths[size_t(row)];
}

Answer attend(const Attention& attention, int threads) {
  const UserTexts texts = parse_texts(attention);
  const int64_t rows = int64_t(attention.kv_len.size()) * attention.query_len * attention.q_heads;
  Answer answer;
  answer.out.assign(size_t(rows * attention.dim_v), 0.0);
  answer.lse.assign(size_t(rows), -kInfinity);

  std::atomic<int64_t> next = 0;
  const auto work = [&] {
    for (int64_t i = next++; i < rows; i = next++) {
      Query query{};
      query.row = i / attention.q_heads / attention.query_len;
      query.index = i / attention.q_heads % attention.query_len;
      query.head = i % attention.q_heads;
      query.kv_head = query.head / (attention.q_heads / attention.kv_heads);
      const int64_t queries = queries_of(attention, query.row);
      if (query.index >= queries) continue;
      query.position = total_of(attention, query.row) - queries + query.index;
      attend_query(attention, texts, query, &answer.out[size_t(i * attention.dim_v)],
                   answer.lse[size_t(i)]);
    }
  };
  if (threads <= 0) threads = int(std::max(1u, std::thread::hardware_concurrency()));
  std::vector<std::thread> others;
  for (int64_t i = 1; i < std::min<int64_t>(threads, rows); ++i) others.emplace_back(work);
  work();
  for (std::thread& other : others) other.join();
  return answer;
}

}  // namespace splitkv::reference
