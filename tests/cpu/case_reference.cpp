#include <algorithm>
#include <cmath>
#include <limits>

#include "compiler/score.hpp"
#include "tests/cpu/case_inputs.hpp"

namespace splitkv::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct Asked {
  const Inputs& inputs;
  int row, query, head;
};

// Natural score, -inf where the key takes no part.
double score_of_key(const Asked& a, int key) {
  const Inputs& in = a.inputs;
  const Problem& problem = in.compiled.problem;
  if (!in.sees(a.row, a.query, key) || in.is_bad(a.row, key)) return -kInfinity;
  const int own = key - (in.length(a.row) - in.queries(a.row));
  if (problem.mask == Mask::tree && own >= 0 && !in.tree_bit(a.row, a.query, own)) {
    return -kInfinity;
  }
  Pair pair{
      a.row,           a.head, in.total(a.row) - in.queries(a.row) + a.query, in.position(key),
      in.total(a.row), {}};
  for (size_t i = 0; i < in.params.size(); ++i) {
    const auto& values = in.params[i];
    const ParamScope scope = all_params(problem)[i].scope;
    pair.params.push_back(scope == ParamScope::head  ? values[a.head]
                          : scope == ParamScope::row ? values[a.row]
                                                     : values[0]);
  }
  if (in.test.where && !in.test.where(pair)) return -kInfinity;
  const auto [block, token] = in.place(in.k, a.row, key);
  double dot = 0;
  for (int d = 0; d < problem.dim_qk; ++d) {
    dot += in.q_at(in.token(a.row, a.query), a.head, d) *
           in.k.at(block, a.head / group_size(problem), token, d);
  }
  double score = dot * scale_of(problem);
  if (problem.softcap != 0) score = problem.softcap * std::tanh(score / problem.softcap);
  if (problem.alibi) score += pair.params.back() * double(pair.key_pos - pair.query_pos);
  if (problem.bias) score += in.bias_at(a.row, a.head, a.query, key);
  return in.test.score ? in.test.score(score, pair) : score;
}

void reference_row(const Asked& a, Answer& answer) {
  const Inputs& in = a.inputs;
  const Problem& problem = in.compiled.problem;
  const int64_t at = int64_t(in.token(a.row, a.query)) * problem.q_heads + a.head;
  double largest = problem.sink ? double(in.sinks[a.head]) : -kInfinity;
  std::vector<double> scores;
  for (int key = 0; key < in.length(a.row); ++key) {
    scores.push_back(score_of_key(a, key));
    largest = std::max(largest, scores.back());
  }
  double* out = &answer.out[at * problem.dim_v];
  std::fill(out, out + problem.dim_v, 0.0);
  double sum = 0;
  if (problem.sink && largest > -kInfinity) sum = std::exp(in.sinks[a.head] - largest);
  for (int key = 0; key < in.length(a.row); ++key) {
    if (scores[key] == -kInfinity) continue;
    const auto [block, token] = in.place(in.values(), a.row, key);
    const double weight = std::exp(scores[key] - largest);
    sum += weight;
    for (int d = 0; d < problem.dim_v; ++d) {
      out[d] += weight * in.values().at(block, a.head / group_size(problem), token, d);
    }
  }
  for (int d = 0; d < problem.dim_v && sum > 0; ++d) out[d] /= sum;
  if (answer.lse.empty()) return;
  const double lse = sum > 0 ? largest + std::log(sum) : -kInfinity;
  answer.lse[at] = problem.lse == LseOutput::base2 ? lse / std::log(2.0) : lse;
}

}  // namespace

Answer reference_answer(const Inputs& inputs) {
  const Problem& problem = inputs.compiled.problem;
  const int64_t rows = int64_t(inputs.token_rows) * problem.q_heads;
  Answer answer;
  answer.out.assign(size_t(rows) * problem.dim_v, kNan);
  if (problem.lse != LseOutput::none || problem.out_partial) answer.lse.assign(rows, kNan);
  if (!inputs.q_offsets.empty()) {
    int last = 0;
    for (int offset : inputs.q_offsets) last = offset >= 0 ? offset : last;
    const int64_t from = int64_t(last) * problem.q_heads;
    std::fill(answer.out.begin() + from * problem.dim_v, answer.out.end(), 0.0);
    if (!answer.lse.empty()) std::fill(answer.lse.begin() + from, answer.lse.end(), -kInfinity);
  }
  for (int row = 0; row < inputs.batch; ++row) {
    for (int query = 0; query < inputs.queries(row); ++query) {
      for (int head = 0; head < problem.q_heads; ++head) {
        reference_row({inputs, row, query, head}, answer);
      }
    }
  }
  return answer;
}

}  // namespace splitkv::test
