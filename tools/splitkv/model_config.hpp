// From a Hugging Face config.json to the attention problems of its decode step.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "compiler/problem.hpp"
#include "compiler/result.hpp"

namespace splitkv::tool {

struct ModelProblem {
  Problem problem;
  int layers = 0;     // how many layers of the model run it
  std::string which;  // "all", "sliding" or "full"

  bool operator==(const ModelProblem&) const = default;
};

// `json` is the text of a configuration, `origin` its name in messages. Sliding layers come first.
// A missing torch_dtype (or dtype) means fp32, as it does to the transformers library. Latent
// attention (MLA) becomes the problem that decoding runs, with V in K. Slopes and sinks are values
// of the model's weights and stay the caller's. Refused with the reason: model types whose
// attention is not known here.
Result<std::vector<ModelProblem>> derive_problems(std::string_view json, const std::string& origin);

// path: a config.json, or a folder that holds one.
Result<std::vector<ModelProblem>> read_model(const std::string& path);

}  // namespace splitkv::tool
