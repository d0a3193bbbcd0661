// Definitions of the templates that merge.hpp declares and explains; included by it alone.
#pragma once

#include <algorithm>
#include <cassert>
#include <cmath>
#include <numbers>

#include "compiler/merge.hpp"

namespace splitkv {
namespace merge_detail {

template <LogBase Base, class T>
T exp_of(T x) {
  return Base == LogBase::natural ? std::exp(x) : std::exp2(x);
}

template <LogBase Base, class T>
T log_of(T x) {
  return Base == LogBase::natural ? std::log(x) : std::log2(x);
}

// log(1 + x) without losing a small x.
template <LogBase Base, class T>
T log1p_of(T x) {
  const T natural = std::log1p(x);
  return Base == LogBase::natural ? natural : natural * std::numbers::log2e_v<T>;
}

// How the algebra below sees either form: the statistic that decides the scale, and the weight of
// the partial on that scale.
template <class T, LogBase Base>
T peak_of(const PartialMlo<T, Base>& partial) {
  return partial.m;
}
template <class T, LogBase Base>
T peak_of(const PartialLse<T, Base>& partial) {
  return partial.s;
}
template <class T, LogBase Base>
T weight_of(const PartialMlo<T, Base>& partial, T peak) {
  return exp_of<Base>(partial.m - peak) * partial.l;
}
template <class T, LogBase Base>
T weight_of(const PartialLse<T, Base>& partial, T peak) {
  return exp_of<Base>(partial.s - peak);
}
template <class T, LogBase Base>
void set_statistics(PartialMlo<T, Base>& partial, T peak, T weights) {
  partial.m = peak;
  partial.l = weights;
}
template <class T, LogBase Base>
void set_statistics(PartialLse<T, Base>& partial, T peak, T weights) {
  partial.s = peak + log_of<Base>(weights);
}

// The partials that hold a key.
template <class Partial>
std::vector<const Partial*> without_empties(std::span<const Partial> partials) {
  std::vector<const Partial*> full;
  for (const Partial& partial : partials)
    if (!is_empty(partial)) full.push_back(&partial);
  return full;
}

// An accumulator that takes keys in turn and divides once, at the end.
template <class T, LogBase Base>
struct Stream {
  T m = -std::numeric_limits<T>::infinity();
  T l = 0;
  std::vector<T> sum;  // of exp(s - m) v

  void take_tile(const KeySet<T>& keys, size_t begin, size_t end) {
    const auto tile = keys.scores.subspan(begin, end - begin);
    const T peak = std::max(m, *std::max_element(tile.begin(), tile.end()));
    if (peak == -std::numeric_limits<T>::infinity()) return;  // every key so far is masked
    const T rescale = exp_of<Base>(m - peak);
    l *= rescale;
    for (T& element : sum) element *= rescale;
    m = peak;
    for (size_t j = begin; j < end; ++j) take_key(keys, j);
  }

  PartialMlo<T, Base> partial() const {
    PartialMlo<T, Base> result{m, l, sum};
    if (l != 0)
      for (T& element : result.o) element /= l;
    return result;
  }

 private:
  void take_key(const KeySet<T>& keys, size_t j) {
    if (keys.scores[j] == -std::numeric_limits<T>::infinity()) return;
    const T weight = exp_of<Base>(keys.scores[j] - m);
    l += weight;
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += weight * keys.values[j * sum.size() + i];
  }
};

template <class T, LogBase Base>
Stream<T, Base> empty_stream(const KeySet<T>& keys) {
  assert(keys.values.size() == keys.scores.size() * size_t(keys.dim_v));
  Stream<T, Base> stream;
  stream.sum.resize(size_t(keys.dim_v));
  return stream;
}

template <class T, LogBase Base>
void sharpen_pair(PartialMlo<T, Base>&, const PartialMlo<T, Base>&, const PartialMlo<T, Base>&) {}

// The larger weight of two is exactly 1, so the sum's logarithm is log1p of the smaller.
template <class T, LogBase Base>
void sharpen_pair(PartialLse<T, Base>& joined, const PartialLse<T, Base>& a,
                  const PartialLse<T, Base>& b) {
  const auto [low, high] = std::minmax(a.s, b.s);
  joined.s = high + log1p_of<Base>(exp_of<Base>(low - high));
}

}  // namespace merge_detail

template <class T, LogBase Base>
bool is_empty(const PartialMlo<T, Base>& partial) {
  return partial.l == 0;
}

template <class T, LogBase Base>
bool is_empty(const PartialLse<T, Base>& partial) {
  return partial.s == -std::numeric_limits<T>::infinity();
}

template <class Partial>
Partial empty_partial(int dim_v) {
  Partial partial;
  partial.o.resize(size_t(dim_v));
  return partial;
}

template <class Partial>
Partial merge(std::span<const Partial> partials) {
  assert(!partials.empty());
  const std::vector<const Partial*> full = merge_detail::without_empties(partials);
  if (full.empty()) return partials.front();
  if (full.size() == 1) return *full.front();
  auto peak = merge_detail::peak_of(*full.front());
  for (const Partial* partial : full) peak = std::max(peak, merge_detail::peak_of(*partial));
  Partial joined = empty_partial<Partial>(int(full.front()->o.size()));
  auto weights = decltype(peak){0};
  for (const Partial* partial : full) {
    assert(partial->o.size() == joined.o.size());
    const auto weight = merge_detail::weight_of(*partial, peak);
    weights += weight;
    for (size_t i = 0; i < joined.o.size(); ++i) joined.o[i] += weight * partial->o[i];
  }
  for (auto& element : joined.o) element /= weights;
  merge_detail::set_statistics(joined, peak, weights);
  return joined;
}

template <class Partial>
Partial merge(const Partial& a, const Partial& b) {
  if (is_empty(b)) return a;
  if (is_empty(a)) return b;
  const Partial both[] = {a, b};
  Partial joined = merge(std::span<const Partial>(both));
  merge_detail::sharpen_pair(joined, a, b);
  return joined;
}

template <class Partial>
Partial merge(std::span<const Partial> partials, const MergeTree& tree) {
  assert(!partials.empty() && tree.joins.size() + 1 == partials.size());
  std::vector<Partial> nodes(partials.begin(), partials.end());
  for (const MergeTree::Join& join : tree.joins) {
    const int known = int(nodes.size());
    assert(join.left < known && join.right < known && join.left != join.right);
    (void)known;
    nodes.push_back(merge(nodes[size_t(join.left)], nodes[size_t(join.right)]));
  }
  return nodes.back();
}

template <class T, LogBase Base>
PartialLse<T, Base> to_lse(const PartialMlo<T, Base>& partial) {
  PartialLse<T, Base> lse;
  lse.o = partial.o;
  if (!is_empty(partial)) lse.s = partial.m + merge_detail::log_of<Base>(partial.l);
  return lse;
}

template <class T, LogBase Base>
PartialMlo<T, Base> to_mlo(const PartialLse<T, Base>& partial) {
  if (is_empty(partial)) return empty_partial<PartialMlo<T, Base>>(int(partial.o.size()));
  return {partial.s, 1, partial.o};
}

template <class T, LogBase Base>
PartialMlo<T, Base> tile_partial(const KeySet<T>& keys) {
  merge_detail::Stream<T, Base> stream = merge_detail::empty_stream<T, Base>(keys);
  if (!keys.scores.empty()) stream.take_tile(keys, 0, keys.scores.size());
  return stream.partial();
}

template <class T, LogBase Base>
PartialMlo<T, Base> per_key_partial(const KeySet<T>& keys) {
  auto partial = empty_partial<PartialMlo<T, Base>>(keys.dim_v);
  const size_t dim_v = size_t(keys.dim_v);
  for (size_t j = 0; j < keys.scores.size(); ++j) {
    const T score = keys.scores[j];
    if (score == -std::numeric_limits<T>::infinity()) continue;
    const T m = std::max(partial.m, score);
    const T old_weight =
        is_empty(partial) ? T(0) : partial.l * merge_detail::exp_of<Base>(partial.m - m);
    const T new_weight = merge_detail::exp_of<Base>(score - m);
    const T l = old_weight + new_weight;
    for (size_t i = 0; i < dim_v; ++i) {
      const T sum = old_weight * partial.o[i] + new_weight * keys.values[j * dim_v + i];
      partial.o[i] = sum / l;
    }
    partial.m = m;
    partial.l = l;
  }
  return partial;
}

template <class T, LogBase Base>
PartialMlo<T, Base> round_robin_partial(const KeySet<T>& keys, int tile, int streams) {
  assert(tile > 0 && streams > 0);
  std::vector<merge_detail::Stream<T, Base>> accumulators(
      size_t(streams), merge_detail::empty_stream<T, Base>(keys));
  const size_t length = keys.scores.size();
  const size_t step = size_t(tile);
  for (size_t begin = 0; begin < length; begin += step)
    accumulators[begin / step % size_t(streams)].take_tile(keys, begin,
                                                           std::min(begin + step, length));
  std::vector<PartialMlo<T, Base>> partials;
  for (const merge_detail::Stream<T, Base>& stream : accumulators)
    partials.push_back(stream.partial());
  return merge(std::span<const PartialMlo<T, Base>>(partials), pairwise_tree(streams));
}

}  // namespace splitkv
