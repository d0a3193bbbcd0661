// The command line.
#pragma once

#include <string>
#include <vector>

#include "../support/option_values.hpp"
#include "engine.hpp"

namespace engine {

struct Options {
  std::string verb;   // generate, bench, graph-check
  std::string model;  // a folder of prepare_weights.py; empty: a small model with random weights
  std::vector<std::string> prompts;
  bool chat = false;
  bool show_tokens = false;
  int32_t max_new = 64;
  std::vector<int32_t> forced;
  std::string trace;  // logits of request i go to <trace>.<i>.npy
  std::string device = "cpu";
  Dtype dtype = Dtype::bf16;  // on a GPU; the CPU computes in fp32
  int32_t threads = 0;
  bool has_pages = false;  // --pages was given; otherwise as many as the verb needs
  EngineOptions engine;
  // bench and graph-check
  int32_t least = 64, most = 16384, steps = 16, layers = 4, rows = 37;
};

using examples::BadOption;

extern const char* const kUsage;

// Throws BadOption.
Options parse_options(int argc, const char* const* argv);

}  // namespace engine
