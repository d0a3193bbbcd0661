#include "tools/splitkv/key_range.hpp"

#include <algorithm>
#include <cmath>

#include "compiler/score.hpp"

namespace splitkv::tool {
namespace {

// The first local key at or after a position.
double local_of(const Rows& rows, double position) {
  return std::ceil((position - double(rows.pos0)) / double(rows.pos_step));
}

}  // namespace

int32_t queries_of(const Problem& problem, const Rows& rows, int64_t row) {
  return rows.queries.empty() ? problem.query_len : rows.queries[size_t(row)];
}

KeyRange key_range(const Problem& problem, const Rows& rows, int64_t row) {
  const size_t at = size_t(row);
  const int32_t queries = queries_of(problem, rows, row);
  const int32_t length = std::max(0, rows.kv_len[at]);
  if (queries <= 0) return {};
  const KeyInterval interval = key_interval_of(problem);
  ScoreInputs inputs;
  inputs.kv_len = rows.total_len.empty() ? length : rows.total_len[at];
  inputs.query_pos = inputs.kv_len - queries;
  const double first = local_of(rows, evaluate(interval.first, inputs));
  inputs.query_pos = inputs.kv_len - 1;
  const double end = local_of(rows, evaluate(interval.end, inputs));
  const int32_t begin = rows.kv_begin.empty() ? 0 : std::max(0, rows.kv_begin[at]);
  KeyRange range{std::max(begin, int32_t(std::clamp(first, 0.0, double(length)))),
                 int32_t(std::clamp(end, 0.0, double(length)))};
  if (range.end <= range.first) return {};
  return range;
}

int32_t first_visible(const Problem& problem, int32_t kv_len) {
  Rows rows;
  rows.kv_len = {kv_len};
  if (problem.strided_positions) rows.total_len = {kv_len};
  return key_range(problem, rows, 0).first;
}

}  // namespace splitkv::tool
