// Decode attention in double precision, in two passes, written to be obviously right: all scores of
// a query, then their maximum, then exponentials, sum and weighted sum.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tools/reference/elements.hpp"

namespace splitkv::reference {

enum class Mask {
  none,
  causal,  // key position <= query position
  tree,    // keys before the row's last `queries` ones, and of those the ones whose bit is set
};

// A value that user expressions name.
struct Param {
  enum class Per { all, head, row };
  std::string name;
  Per per = Per::all;
  std::vector<double> values;  // 1, [q_heads] or [batch]
};

// One factor of a key: (batch row, kv head, key).
using ReadScale = std::function<double(int64_t row, int64_t head, int64_t key)>;

struct Attention {
  int64_t q_heads = 1;
  int64_t kv_heads = 1;  // divides q_heads; query head h reads kv head h / (q_heads / kv_heads)
  int64_t dim_qk = 1;
  int64_t dim_v = 1;
  int64_t query_len = 1;  // queries of a row, unless `queries` says otherwise

  // score = scale * (q.k * k_scale); then softcap * tanh(score / softcap); then
  // + slope[head] * (key position - query position); then + bias; then the user's expression.
  double scale = 1;
  double softcap = 0;                // 0: none
  std::vector<double> alibi_slopes;  // [q_heads] or empty
  std::function<double(int64_t row, int64_t head, int64_t query, int64_t key)> bias;  // or empty
  std::string score;  // over score, query_pos, key_pos, kv_len, head, batch and params; or empty

  Mask mask = Mask::causal;
  int64_t window = 0;     // 0: none; else key position > query position - window
  int64_t chunk = 0;      // 0: none; else key position >= the start of the query's chunk
  std::string predicate;  // like `score` without score; a key takes part where it is not 0
  std::function<bool(int64_t row, int64_t query, int64_t bit)> tree;  // mask=tree
  std::vector<Param> params;

  ReadVector q;  // (row, query head, query)
  ReadVector k;  // (row, kv head, key)
  ReadVector v;
  ReadScale k_scale;          // or empty
  ReadScale v_scale;          // or empty
  std::vector<double> sinks;  // [q_heads] or empty: one more logit, without a value

  std::vector<int64_t> kv_len;    // keys of each batch row; its size is the batch; below 0 is 0
  std::vector<int64_t> kv_begin;  // [batch] or empty: keys before it are not there
  std::vector<int64_t> queries;   // [batch] or empty: query_len each
  // Key i stands at pos0 + i * pos_step among total_len keys. Empty: at i among kv_len.
  std::vector<int64_t> total_len;
  int64_t pos0 = 0;
  int64_t pos_step = 1;
};

// Of [batch, query_len, q_heads] rows; those of queries that a batch row does not have are like
// rows without keys and sinks.
struct Answer {
  std::vector<double> out;  // [batch, query_len, q_heads, dim_v]; 0 for a row without keys
  std::vector<double> lse;  // [batch, query_len, q_heads], natural logarithm, the sink included;
                            // -inf for a row without keys and sink
};

int64_t queries_of(const Attention& attention, int64_t row);
// total_len of the row, or kv_len.
int64_t total_of(const Attention& attention, int64_t row);

// Rows are dealt out to `threads` threads; 0: one a hardware thread. The readers are called from
// all of them at once, for keys that the query sees only. Throws std::invalid_argument for a user
// expression that does not parse.
Answer attend(const Attention& attention, int threads = 0);

}  // namespace splitkv::reference
