// Few kernels for many buckets.
#pragma once

#include <vector>

namespace splitkv {

// ratios[bucket][kernel]: how much slower than the floor the kernel's best schedule is there;
// infinity where it cannot serve the bucket. The fewest kernels, `most` at most, among which every
// bucket finds one within `slack` (0.02) of its best; where that takes more than `most`, those
// `most` whose worst loss is least. Of equally many, those with the least sum of losses.
// Indices, ascending. Buckets that no kernel serves do not count.
std::vector<int> fewest_kernels(const std::vector<std::vector<double>>& ratios, int most,
                                double slack);

}  // namespace splitkv
