// Decode attention in double precision, in two passes, written to be obviously right: all scores of
// a row, then their maximum, then exponentials, sum and weighted sum. One query token a batch row.
#pragma once

#include <cstdint>
#include <vector>

#include "tools/reference/elements.hpp"

namespace splitkv::reference {

struct Attention {
  int64_t q_heads = 1;
  int64_t kv_heads = 1;  // divides q_heads; query head h reads kv head h / (q_heads / kv_heads)
  int64_t dim_qk = 1;
  int64_t dim_v = 1;
  double scale = 1;    // score = scale * q.k
  double softcap = 0;  // 0: none; else score = softcap * tanh(score / softcap), after scale
  int64_t window = 0;  // 0: none; else only the newest `window` keys of each row

  ReadVector q;                 // [batch, q_heads, 1, dim_qk]
  ReadVector k;                 // [batch, kv_heads, tokens, dim_qk]
  ReadVector v;                 // [batch, kv_heads, tokens, dim_v]
  std::vector<int64_t> kv_len;  // keys of each batch row; its size is the batch
};

struct Answer {
  std::vector<double> out;  // [batch, q_heads, dim_v]; 0 for a row without keys
  std::vector<double> lse;  // [batch, q_heads], natural logarithm; -inf for a row without keys
};

// The keys a query of a row of `kv_len` keys sees are [first_visible, kv_len). Nothing else is
// read.
int64_t first_visible(const Attention& attention, int64_t kv_len);

// Heads are dealt out to `threads` threads; 0: one a hardware thread. The readers are called from
// all of them at once.
Answer attend(const Attention& attention, int threads = 0);

}  // namespace splitkv::reference
