#include "compiler/merge.hpp"

#include <utility>

namespace splitkv {

MergeTree pairwise_tree(int partials) {
  MergeTree tree;
  std::vector<int> round;
  for (int i = 0; i < partials; ++i) round.push_back(i);
  while (round.size() > 1) {
    std::vector<int> next;
    for (size_t i = 0; i + 1 < round.size(); i += 2) {
      next.push_back(partials + int(tree.joins.size()));
      tree.joins.push_back({round[i], round[i + 1]});
    }
    if (round.size() % 2 == 1) next.push_back(round.back());
    round = std::move(next);
  }
  return tree;
}

}  // namespace splitkv
