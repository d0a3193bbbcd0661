// The merge algebra: what a partial result of attention over some keys is, and how partials of
// disjoint key sets become the partial of their union. This is the host reference that every level
// of the kernels (lanes, warps, blocks, kernels) is an instance of.
//
// Let s_j be the scores and v_j the value rows of the keys in a set. Two ways to write the set
// down:
//
//   mlo   m = max s_j     l = sum exp(s_j - m)     o = sum exp(s_j - m) v_j / l
//   lse   S = log sum exp(s_j) = m + log l         o as above
//
// Both say the same: exp(m) l = exp(S) is the softmax denominator of the set and exp(S) o its
// numerator. Numerators and denominators of disjoint sets add up, and that alone gives the joins:
//
//   mlo   M = max m_b     L = sum exp(m_b - M) l_b     O = sum exp(m_b - M) l_b o_b / L
//   lse   S = max + log sum exp(S_b - max)             O = sum w_b o_b / sum w_b, w_b = exp(S_b -
//   max)
//         of two: S = max + log1p(exp(min - max))
//
// Adding is associative and commutative, hence so are the joins: any binary tree over the same
// partials gives the same result up to rounding. The empty set (m = S = -inf, l = 0, o = 0) is
// neutral; it is passed over by selection, never multiplied by a weight of zero, so that joining it
// changes no bit. A key with a score of -inf (masked) is like no key.
//
// In fp32 the weights of an lse join carry the rounding of S, which grows with |S|; mlo keeps m
// exact (it is one of the scores) and l near 1, and does not lose accuracy so.
//
// The base of exp and log belongs to the type: scores, m and S of a base-2 partial are in log2
// units and its exp is exp2. Partials of different bases do not join: that does not compile.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace splitkv {

enum class LogBase { natural, two };

// T is float or double everywhere below.
template <class T, LogBase Base>
struct PartialMlo {
  T m = -std::numeric_limits<T>::infinity();
  T l = 0;
  std::vector<T> o;  // [dim_v], normalised; zeros when empty

  bool operator==(const PartialMlo&) const = default;
};

template <class T, LogBase Base>
struct PartialLse {
  T s = -std::numeric_limits<T>::infinity();
  std::vector<T> o;  // [dim_v], normalised; zeros when empty

  bool operator==(const PartialLse&) const = default;
};

template <class T, LogBase Base>
bool is_empty(const PartialMlo<T, Base>& partial);
template <class T, LogBase Base>
bool is_empty(const PartialLse<T, Base>& partial);

// `Partial` below is PartialMlo or PartialLse of any T and base.

template <class Partial>
Partial empty_partial(int dim_v);

// The partial of two disjoint key sets. An empty one gives the other back bit for bit.
template <class Partial>
Partial merge(const Partial& a, const Partial& b);

// The partial of all, in one step and in the order given; empties are passed over. At least one.
template <class Partial>
Partial merge(std::span<const Partial> partials);

// A binary tree over n partials: nodes 0 .. n - 1 are the partials, node n + i joins the two nodes
// of joins[i], each of which is used once. The last join is the root; without joins node 0 is.
struct MergeTree {
  struct Join {
    int left = 0;
    int right = 0;
  };
  std::vector<Join> joins;
};

// Neighbours are joined in pairs until one is left; an odd one waits for the next round.
MergeTree pairwise_tree(int partials);

template <class Partial>
Partial merge(std::span<const Partial> partials, const MergeTree& tree);

// Both encodings of the same set. lse to mlo takes m = S and l = 1.
template <class T, LogBase Base>
PartialLse<T, Base> to_lse(const PartialMlo<T, Base>& partial);
template <class T, LogBase Base>
PartialMlo<T, Base> to_mlo(const PartialLse<T, Base>& partial);

// Scores and values of a set of keys: scores [keys], values [keys, dim_v] row-major.
template <class T>
struct KeySet {
  std::span<const T> scores;
  std::span<const T> values;
  int dim_v = 0;
};

// The tile form: the maximum first, then the sums, one division at the end.
template <class T, LogBase Base>
PartialMlo<T, Base> tile_partial(const KeySet<T>& keys);

// The per-key form, whose o is normalised after every key:
//   m_j = max(m_{j-1}, s_j)
//   l_j = l_{j-1} exp(m_{j-1} - m_j) + exp(s_j - m_j)
//   o_j = (l_{j-1} exp(m_{j-1} - m_j) o_{j-1} + exp(s_j - m_j) v_j) / l_j
// It is the join of the partial so far with the partial (s_j, 1, v_j) of one key.
template <class T, LogBase Base>
PartialMlo<T, Base> per_key_partial(const KeySet<T>& keys);

// Tiles of `tile` keys are dealt to `streams` accumulators in turn (tile t to stream t % streams);
// each stream takes its tiles one after the other, keeping (m, l, unnormalised o), and the streams
// are joined by pairwise_tree. Streams without a tile stay empty.
template <class T, LogBase Base>
PartialMlo<T, Base> round_robin_partial(const KeySet<T>& keys, int tile, int streams);

}  // namespace splitkv

#include "compiler/merge_inline.hpp"  // definitions
