// Starting a program that is talked to over one descriptor.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "compiler/result.hpp"

namespace splitkv {

// command: a program (found by PATH where its name has no slash) and its arguments. `descriptor`
// becomes its standard input and output; all others of this process but stderr are closed there
// (where the system can), and signals that the calling thread blocks are not blocked. environment:
// "NAME=VALUE", over the variables of this process. quiet: stderr goes to /dev/null.
Result<pid_t> start_process(const std::vector<std::string>& command, int descriptor,
                            const std::vector<std::string>& environment, bool quiet);

}  // namespace splitkv
