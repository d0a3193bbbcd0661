// What the program does, a function and a file a verb. Each returns the exit status.
#pragma once

#include "options.hpp"

namespace engine {

int generate(const Options& options, Device& device);

// Batch rows of log-uniform lengths: attention's time beside the plain read of the same bytes, and
// its results beside the dense ones.
int bench(const Options& options, Device& device);

// Graphs captured at full batch and length, replayed with fewer rows of other lengths on two
// streams at once, beside the same steps without graphs. 77 where the device has no graphs.
int graph_check(const Options& options, Device& device, Device& second);

}  // namespace engine
