#include "tools/splitkv/model_config.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>

namespace splitkv::tool {
namespace {

using Json = nlohmann::json;

// Which layers of a model type see a window only, where the file lists no layer_types.
enum class Sliding {
  none,         // the type ignores sliding_window
  all,          // every layer, where sliding_window is set
  alternating,  // layers 0, 2, 4, ...
  switched,     // where use_sliding_window is true: layers from max_window_layers on
};

struct ModelType {
  std::string_view name;
  Sliding sliding;
};

// Types whose decode attention is known here, as their published model code has it.
constexpr std::array kModelTypes = {
    ModelType{"bloom", Sliding::none},         ModelType{"deepseek_v2", Sliding::none},
    ModelType{"deepseek_v3", Sliding::none},   ModelType{"gpt_oss", Sliding::alternating},
    ModelType{"falcon", Sliding::none},        ModelType{"gemma", Sliding::none},
    ModelType{"gemma2", Sliding::alternating}, ModelType{"gpt2", Sliding::none},
    ModelType{"gpt_neox", Sliding::none},      ModelType{"llama", Sliding::none},
    ModelType{"mistral", Sliding::all},        ModelType{"mixtral", Sliding::all},
    ModelType{"mpt", Sliding::none},           ModelType{"phi3", Sliding::all},
    ModelType{"qwen2", Sliding::switched},     ModelType{"qwen2_moe", Sliding::switched},
    ModelType{"qwen3", Sliding::switched},     ModelType{"qwen3_moe", Sliding::switched},
    ModelType{"starcoder2", Sliding::all},
};

// A configuration with its name, for messages.
struct Config {
  const Json& json;
  const std::string& origin;

  Error refuse(std::string_view what) const {
    return {Status::unsupported, fmt::format("{}: {}", origin, what)};
  }
  Error bad(std::string_view what) const {
    return invalid_argument(fmt::format("{}: {}", origin, what));
  }
  bool has(const char* key) const { return json.contains(key) && !json[key].is_null(); }
  bool is_true(const char* key) const {
    return has(key) && json[key].is_boolean() && json[key].get<bool>();
  }
};

// The first of these spellings that the file gives. Nothing when it gives none.
Result<std::optional<int>> integer(const Config& config, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    if (!config.has(key)) continue;
    const Json& value = config.json[key];
    if (!value.is_number_integer() || value.get<int64_t>() < 1 ||
        value.get<int64_t>() > 1'000'000'000) {
      return config.bad(fmt::format("{}={} is not a positive integer", key, value.dump()));
    }
    return std::optional<int>(value.get<int>());
  }
  return std::optional<int>();
}

Result<int> needed_integer(const Config& config, std::initializer_list<const char*> keys) {
  const auto found = integer(config, keys);
  if (!found) return found.error();
  if (!*found) return config.bad(fmt::format("none of {} is given", fmt::join(keys, ", ")));
  return **found;
}

Result<std::optional<double>> positive_number(const Config& config, const char* key) {
  if (!config.has(key)) return std::optional<double>();
  const Json& value = config.json[key];
  if (!value.is_number() || !(value.get<double>() > 0)) {
    return config.bad(fmt::format("{}={} is not a positive number", key, value.dump()));
  }
  return std::optional<double>(value.get<double>());
}

Result<ModelType> type_of(const Config& config) {
  if (!config.has("model_type") || !config.json["model_type"].is_string()) {
    return config.bad("model_type is not given");
  }
  const std::string type = config.json["model_type"];
  std::vector<std::string_view> names;
  for (const ModelType& known : kModelTypes) {
    if (known.name == type) return known;
    names.push_back(known.name);
  }
  return config.refuse(fmt::format(
      "model_type={} is not known here; known are {}. A problem text says the same directly", type,
      fmt::join(names, ", ")));
}

Result<DType> dtype_of(const Config& config) {
  for (const char* key : {"torch_dtype", "dtype"}) {
    if (!config.has(key)) continue;
    const std::string text = config.json[key].is_string() ? config.json[key].get<std::string>()
                                                          : config.json[key].dump();
    if (text == "float32") return DType::fp32;
    if (text == "float16") return DType::fp16;
    if (text == "bfloat16") return DType::bf16;
    return config.refuse(
        fmt::format("{}={}; float32, float16 and bfloat16 are supported", key, text));
  }
  return DType::fp32;
}

Result<int> kv_heads_of(const Config& config, std::string_view type, int q_heads) {
  if (type == "falcon" && !config.is_true("new_decoder_architecture")) {
    // The older Falcon code knows one kv head or as many as query heads; multi_query is its
    // default.
    const bool one = !config.has("multi_query") || config.is_true("multi_query");
    return one ? 1 : q_heads;
  }
  const auto given = integer(config, {"num_key_value_heads", "num_kv_heads"});
  if (!given) return given.error();
  return given->value_or(q_heads);
}

// Latent attention (MLA) as decoding runs it: the up-projections are absorbed into q and into the
// output, so all heads share one latent row (and its rotary part), whose latent part is V too.
Outcome read_latent(const Config& config, Problem& problem) {
  const auto q_heads = needed_integer(config, {"num_attention_heads"});
  if (!q_heads) return q_heads.error();
  const auto latent = needed_integer(config, {"kv_lora_rank"});
  if (!latent) return latent.error();
  const auto rope = needed_integer(config, {"qk_rope_head_dim"});
  if (!rope) return rope.error();
  const auto nope = needed_integer(config, {"qk_nope_head_dim"});
  if (!nope) return nope.error();
  problem.q_heads = *q_heads;
  problem.kv_heads = 1;
  problem.dim_qk = *latent + *rope;
  problem.dim_v = *latent;
  problem.v_in_k = true;
  // Scores are those of the heads before absorption; YaRN sharpens them.
  problem.scale = 1 / std::sqrt(double(*nope + *rope));
  if (!config.has("rope_scaling") || !config.json["rope_scaling"].is_object()) return Unit{};
  const Config scaling{config.json["rope_scaling"], config.origin + ": rope_scaling"};
  const auto all_dim = positive_number(scaling, "mscale_all_dim");
  if (!all_dim) return all_dim.error();
  const auto factor = positive_number(scaling, "factor");
  if (!factor) return factor.error();
  if (!*all_dim || factor->value_or(1) <= 1) return Unit{};
  const double mscale = 0.1 * **all_dim * std::log(**factor) + 1;
  *problem.scale *= mscale * mscale;
  return Unit{};
}

Outcome read_heads(const Config& config, std::string_view type, Problem& problem) {
  if (config.has("kv_lora_rank")) return read_latent(config, problem);
  const auto q_heads = needed_integer(config, {"num_attention_heads", "n_head", "n_heads"});
  if (!q_heads) return q_heads.error();
  const auto kv_heads = kv_heads_of(config, type, *q_heads);
  if (!kv_heads) return kv_heads.error();
  problem.q_heads = *q_heads;
  problem.kv_heads = *kv_heads;

  const auto head_dim = integer(config, {"head_dim"});
  if (!head_dim) return head_dim.error();
  if (*head_dim) {
    problem.dim_qk = problem.dim_v = **head_dim;
    return Unit{};
  }
  const auto width = needed_integer(config, {"hidden_size", "n_embd", "n_embed", "d_model"});
  if (!width) return width.error();
  if (*width % *q_heads != 0) {
    return config.bad(
        fmt::format("head_dim is not given, and the hidden size {} is no multiple of {} heads",
                    *width, *q_heads));
  }
  problem.dim_qk = problem.dim_v = *width / *q_heads;
  return Unit{};
}

Outcome read_mpt_score(const Config& config, Problem& problem) {
  if (!config.has("attn_config") || !config.json["attn_config"].is_object()) return Unit{};
  const Config attention{config.json["attn_config"], config.origin + ": attn_config"};
  problem.alibi = attention.is_true("alibi");
  const auto scale = positive_number(attention, "softmax_scale");
  if (!scale) return scale.error();
  if (*scale) problem.scale = **scale;
  return Unit{};
}

Outcome read_score(const Config& config, std::string_view type, Problem& problem) {
  if (type == "mpt") return read_mpt_score(config, problem);
  problem.alibi = type == "bloom" || (type == "falcon" && config.is_true("alibi"));
  problem.sink = type == "gpt_oss";
  if (type != "gemma2") return Unit{};
  const auto softcap = positive_number(config, "attn_logit_softcapping");
  if (!softcap) return softcap.error();
  const auto scalar = positive_number(config, "query_pre_attn_scalar");
  if (!scalar) return scalar.error();
  problem.softcap = softcap->value_or(0);
  if (*scalar && **scalar != problem.dim_qk) problem.scale = 1 / std::sqrt(**scalar);
  return Unit{};
}

// How many of the layers are sliding, by the list of layer_types.
Result<int> listed_sliding_layers(const Config& config, int layers) {
  const Json& types = config.json["layer_types"];
  if (!types.is_array() || int(types.size()) != layers) {
    return config.bad(
        fmt::format("layer_types lists {} layers; the model has {}", types.size(), layers));
  }
  int sliding = 0;
  for (const Json& type : types) {
    if (type == "sliding_attention") {
      ++sliding;
    } else if (type != "full_attention") {
      return config.refuse(
          fmt::format("layer_types: {} is not supported; full_attention and sliding_attention are",
                      type.dump()));
    }
  }
  return sliding;
}

Result<int> sliding_layers(const Config& config, Sliding rule, int layers) {
  if (config.has("layer_types")) return listed_sliding_layers(config, layers);
  if (!config.has("sliding_window")) return 0;
  switch (rule) {
    case Sliding::none:
      return 0;
    case Sliding::all:
      return layers;
    case Sliding::alternating:
      return (layers + 1) / 2;
    case Sliding::switched:
      break;
  }
  if (!config.is_true("use_sliding_window")) return 0;
  const auto first = needed_integer(config, {"max_window_layers"});
  if (!first) return first.error();
  return std::max(0, layers - *first);
}

Result<std::vector<ModelProblem>> divide_layers(const Config& config, const ModelType& type,
                                                const Problem& problem) {
  const auto layers = needed_integer(config, {"num_hidden_layers", "n_layer", "n_layers"});
  if (!layers) return layers.error();
  const auto sliding = sliding_layers(config, type.sliding, *layers);
  if (!sliding) return sliding.error();
  std::vector<ModelProblem> problems;
  if (*sliding > 0) {
    const auto window = needed_integer(config, {"sliding_window"});
    if (!window) return window.error();
    ModelProblem part{problem, *sliding, *sliding == *layers ? "all" : "sliding"};
    part.problem.window = *window;
    problems.push_back(part);
  }
  if (*sliding < *layers) {
    problems.push_back({problem, *layers - *sliding, *sliding == 0 ? "all" : "full"});
  }
  return problems;
}

}  // namespace

Result<std::vector<ModelProblem>> derive_problems(std::string_view text,
                                                  const std::string& origin) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    return invalid_argument(fmt::format("{}: is not a JSON object", origin));
  }
  const Config config{json, origin};
  const auto type = type_of(config);
  if (!type) return type.error();
  const auto dtype = dtype_of(config);
  if (!dtype) return dtype.error();
  Problem problem;
  problem.q_dtype = problem.k_dtype = problem.v_dtype = problem.out_dtype = *dtype;
  const auto heads = read_heads(config, type->name, problem);
  if (!heads) return heads.error();
  const auto score = read_score(config, type->name, problem);
  if (!score) return score.error();
  return divide_layers(config, *type, problem);
}

Result<std::vector<ModelProblem>> read_model(const std::string& path) {
  std::error_code fault;
  const bool folder = std::filesystem::is_directory(path, fault);
  const std::string file = folder ? (std::filesystem::path(path) / "config.json").string() : path;
  std::ifstream stream(file, std::ios::binary);
  if (!stream) return invalid_argument(fmt::format("--model={} cannot be opened", file));
  const std::string text((std::istreambuf_iterator<char>(stream)),
                         std::istreambuf_iterator<char>());
  return derive_problems(text, file);
}

}  // namespace splitkv::tool
