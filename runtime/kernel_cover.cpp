#include "runtime/kernel_cover.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace splitkv {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
// Besides the best one of each bucket, so many that lose least over all: all sets of four of 24 are
// some ten thousand.
constexpr size_t kCompromises = 8;

struct Loss {
  double worst = 0;  // of a bucket's best kernel of the set, as a multiple of its best of all
  double sum = 0;
};

class Cover {
 public:
  explicit Cover(const std::vector<std::vector<double>>& ratios) {
    for (const std::vector<double>& row : ratios) {
      const double best = row.empty() ? kNever : *std::min_element(row.begin(), row.end());
      if (best == kNever) continue;
      losses_.push_back(row);
      for (double& loss : losses_.back()) loss /= best;
    }
    const size_t kernels = losses_.empty() ? 0 : losses_.front().size();
    order_.resize(kernels);
    std::iota(order_.begin(), order_.end(), 0);
    std::stable_sort(order_.begin(), order_.end(),
                     [&](int a, int b) { return total_loss(a) < total_loss(b); });
    const auto bests = std::stable_partition(order_.begin(), order_.end(),
                                             [&](int kernel) { return is_best(kernel); });
    order_.resize(std::min(kernels, size_t(bests - order_.begin()) + kCompromises));
  }

  bool empty() const { return order_.empty(); }

  // The best set of exactly `size`.
  std::vector<int> best_of(int size, double slack, Loss& loss) const {
    std::vector<int> best, set;
    loss = {kNever, kNever};
    visit(0, size, slack, set, best, loss);
    return best;
  }
  int kernels() const { return int(order_.size()); }

 private:
  // Capped, so that a kernel that cannot serve one bucket still counts.
  double total_loss(int kernel) const {
    double total = 0;
    for (const auto& row : losses_) total += std::min(row[size_t(kernel)], 10.0);
    return total;
  }
  bool is_best(int kernel) const {
    return std::any_of(losses_.begin(), losses_.end(),
                       [&](const auto& row) { return row[size_t(kernel)] == 1; });
  }
  Loss loss_of(const std::vector<int>& set) const {
    Loss loss;
    for (const auto& row : losses_) {
      double least = kNever;
      for (const int kernel : set) least = std::min(least, row[size_t(kernel)]);
      loss.worst = std::max(loss.worst, least);
      loss.sum += least;
    }
    return loss;
  }
  static bool is_less(const Loss& a, const Loss& b, double slack) {
    const bool a_fits = a.worst <= 1 + slack, b_fits = b.worst <= 1 + slack;
    if (a_fits != b_fits) return a_fits;
    if (!a_fits && a.worst != b.worst) return a.worst < b.worst;
    return a.sum < b.sum;
  }
  void visit(size_t from, int size, double slack, std::vector<int>& set, std::vector<int>& best,
             Loss& least) const {
    if (int(set.size()) == size) {
      const Loss loss = loss_of(set);
      if (best.empty() || is_less(loss, least, slack)) best = set, least = loss;
      return;
    }
    for (size_t i = from; i < order_.size(); ++i) {
      set.push_back(order_[i]);
      visit(i + 1, size, slack, set, best, least);
      set.pop_back();
    }
  }

  std::vector<std::vector<double>> losses_;
  std::vector<int> order_;
};

}  // namespace

std::vector<int> fewest_kernels(const std::vector<std::vector<double>>& ratios, int most,
                                double slack) {
  const Cover cover(ratios);
  std::vector<int> set;
  if (cover.empty()) return set;
  for (int size = 1; size <= std::min(most, cover.kernels()); ++size) {
    Loss loss;
    set = cover.best_of(size, slack, loss);
    if (loss.worst <= 1 + slack) break;
  }
  std::sort(set.begin(), set.end());
  return set;
}

}  // namespace splitkv
