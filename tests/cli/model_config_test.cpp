// Golden problem lines of well-known models, from the values of their published configurations.
#include "tools/splitkv/model_config.hpp"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include "compiler/text.hpp"
#include "tools/splitkv/choices.hpp"

namespace splitkv::tool {
namespace {

std::string model_path(const std::string& name) {
  return std::string(SPLITKV_TEST_MODELS) + "/" + name + ".json";
}

// "layers which: problem", a line each.
std::string lines_of(const Result<std::vector<ModelProblem>>& problems) {
  if (!problems) return "error: " + problems.error().message;
  std::string lines;
  for (const ModelProblem& part : *problems) {
    lines += fmt::format("{} {}: {}\n", part.layers, part.which, print(part.problem));
  }
  return lines;
}

struct Golden {
  const char* model;
  const char* lines;
};

constexpr Golden kGolden[] = {
    {"deepseek-v3",
     "61 all: attention q=bf16 kv=bf16 heads=128/1 dim=576/512 v_in_k=on "
     "scale=0.07216878364870323\n"},
    {"falcon-7b", "32 all: attention q=bf16 kv=bf16 heads=71/1 dim=64\n"},
    {"gemma-2-27b",
     "23 sliding: attention q=fp32 kv=fp32 heads=32/16 dim=128 scale=0.08333333333333333 "
     "softcap=50 window=4096\n"
     "23 full: attention q=fp32 kv=fp32 heads=32/16 dim=128 scale=0.08333333333333333 "
     "softcap=50\n"},
    {"gemma-2-9b",
     "21 sliding: attention q=fp32 kv=fp32 heads=16/8 dim=256 softcap=50 window=4096\n"
     "21 full: attention q=fp32 kv=fp32 heads=16/8 dim=256 softcap=50\n"},
    {"gpt-oss-20b",
     "12 sliding: attention q=bf16 kv=bf16 heads=64/8 dim=64 window=128 sink=on\n"
     "12 full: attention q=bf16 kv=bf16 heads=64/8 dim=64 sink=on\n"},
    {"gpt2", "12 all: attention q=fp32 kv=fp32 heads=12 dim=64\n"},
    {"llama-3.1-405b", "126 all: attention q=bf16 kv=bf16 heads=128/8 dim=128\n"},
    {"llama-3.1-70b", "80 all: attention q=bf16 kv=bf16 heads=64/8 dim=128\n"},
    {"llama-3.1-8b", "32 all: attention q=bf16 kv=bf16 heads=32/8 dim=128\n"},
    {"mistral-7b-v0.1", "32 all: attention q=bf16 kv=bf16 heads=32/8 dim=128 window=4096\n"},
    {"mpt-7b", "32 all: attention q=bf16 kv=bf16 heads=32 dim=128 alibi=on\n"},
    {"phi-3-mini-4k", "32 all: attention q=bf16 kv=bf16 heads=32 dim=96 window=2047\n"},
    {"qwen2.5-14b", "48 all: attention q=bf16 kv=bf16 heads=40/8 dim=128\n"},
    {"qwen2.5-7b", "28 all: attention q=bf16 kv=bf16 heads=28/4 dim=128\n"},
    {"qwen3-8b", "36 all: attention q=bf16 kv=bf16 heads=32/8 dim=128\n"},
    {"smollm2-135m", "30 all: attention q=bf16 kv=bf16 heads=9/3 dim=64\n"},
    {"starcoder2-3b", "30 all: attention q=bf16 kv=bf16 heads=24/2 dim=128 window=4096\n"},
};

TEST(ModelConfig, DerivesTheProblemLinesOfKnownModels) {
  for (const Golden& golden : kGolden) {
    EXPECT_EQ(lines_of(read_model(model_path(golden.model))), golden.lines) << golden.model;
  }
}

// DeepSeek's own code multiplies the scale by the square of 0.1 * mscale_all_dim * ln(factor) + 1.
TEST(ModelConfig, SharpensTheScaleOfLatentAttentionByYarn) {
  const auto problems = derive_problems(
      R"({"model_type": "deepseek_v3", "num_attention_heads": 128, "kv_lora_rank": 512,
          "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "num_hidden_layers": 61,
          "torch_dtype": "bfloat16", "rope_scaling": {"type": "yarn", "factor": 40, "mscale": 1.0,
          "mscale_all_dim": 1.0}})",
      "yarn");
  ASSERT_TRUE(problems.ok()) << problems.error().message;
  ASSERT_EQ(problems->size(), 1u);
  EXPECT_NEAR(*(*problems)[0].problem.scale, 0.1352337788608801, 1e-12);
}

TEST(ModelConfig, TakesAlibiFromFalconAndBloom) {
  EXPECT_EQ(lines_of(derive_problems(
                R"({"model_type": "falcon", "num_attention_heads": 8, "hidden_size": 512,
                    "alibi": true, "num_hidden_layers": 2, "torch_dtype": "bfloat16"})",
                "falcon")),
            "2 all: attention q=bf16 kv=bf16 heads=8/1 dim=64 alibi=on\n");
  EXPECT_EQ(lines_of(derive_problems(
                R"({"model_type": "bloom", "n_head": 4, "hidden_size": 256, "n_layer": 3,
                    "torch_dtype": "float16"})",
                "bloom")),
            "3 all: attention q=fp16 kv=fp16 heads=4 dim=64 alibi=on\n");
}

TEST(ModelConfig, CountsTheLayersOfLayerTypes) {
  const auto problems = derive_problems(
      R"({"model_type": "qwen3", "num_attention_heads": 8, "num_key_value_heads": 2,
          "head_dim": 64, "num_hidden_layers": 3, "sliding_window": 512, "torch_dtype": "float16",
          "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]})",
      "three layers");
  EXPECT_EQ(lines_of(problems),
            "2 sliding: attention q=fp16 kv=fp16 heads=8/2 dim=64 window=512\n"
            "1 full: attention q=fp16 kv=fp16 heads=8/2 dim=64\n");
}

TEST(ModelConfig, ObeysQwensSwitchAndItsFirstSlidingLayer) {
  const auto problems = derive_problems(
      R"({"model_type": "qwen2", "num_attention_heads": 4, "hidden_size": 256,
          "num_hidden_layers": 10, "sliding_window": 128, "use_sliding_window": true,
          "max_window_layers": 7, "torch_dtype": "bfloat16"})",
      "switched");
  EXPECT_EQ(lines_of(problems),
            "3 sliding: attention q=bf16 kv=bf16 heads=4 dim=64 window=128\n"
            "7 full: attention q=bf16 kv=bf16 heads=4 dim=64\n");
}

TEST(ModelConfig, GivesTheOlderFalconAsManyKvHeadsAsQueryHeadsWithoutMultiQuery) {
  const auto problems = derive_problems(
      R"({"model_type": "falcon", "num_attention_heads": 8, "hidden_size": 512, "multi_query": false,
          "num_hidden_layers": 2, "torch_dtype": "bfloat16"})",
      "falcon");
  EXPECT_EQ(lines_of(problems), "2 all: attention q=bf16 kv=bf16 heads=8 dim=64\n");
}

struct Bad {
  const char* json;
  const char* message;
};

TEST(ModelConfig, NamesTheFieldOfABadConfiguration) {
  constexpr Bad kBad[] = {
      {"[1, 2]", "is not a JSON object"},
      {"{\"model_type\": ", "is not a JSON object"},
      {R"({"num_attention_heads": 8})", "model_type is not given"},
      {R"({"model_type": "resnet"})", "model_type=resnet is not known here"},
      {R"({"model_type": "llama"})", "num_attention_heads"},
      {R"({"model_type": "llama", "num_attention_heads": "8"})", "num_attention_heads=\"8\""},
      {R"({"model_type": "llama", "num_attention_heads": -8})", "num_attention_heads=-8"},
      {R"({"model_type": "llama", "num_attention_heads": 8, "hidden_size": 100,
           "num_hidden_layers": 1})",
       "100 is no multiple of 8 heads"},
      {R"({"model_type": "llama", "num_attention_heads": 8, "hidden_size": 512,
           "torch_dtype": "float8_e4m3fn"})",
       "torch_dtype=float8_e4m3fn"},
      {R"({"model_type": "llama", "num_attention_heads": 8, "hidden_size": 512})",
       "num_hidden_layers"},
      {R"({"model_type": "mpt", "d_model": 64, "n_heads": 1, "n_layers": 1,
           "attn_config": {"alibi": 3}, "layer_types": ["odd"]})",
       "layer_types: \"odd\" is not supported"},
      {R"({"model_type": "gemma2", "num_attention_heads": 8, "head_dim": 64,
           "num_hidden_layers": 1, "query_pre_attn_scalar": 0})",
       "query_pre_attn_scalar=0 is not a positive number"},
  };
  for (const Bad& bad : kBad) {
    const auto problems = derive_problems(bad.json, "config");
    ASSERT_FALSE(problems.ok()) << bad.json;
    EXPECT_NE(problems.error().message.find(bad.message), std::string::npos)
        << problems.error().message;
  }
}

TEST(ModelConfig, WordsBesideAModelOverrideWhatItDerives) {
  const auto problems = chosen_problems(
      {"q=fp16 kv=fp16 kv_layout=paged:16:nhd lse=natural", model_path("gemma-2-9b")});
  EXPECT_EQ(lines_of(problems),
            "21 sliding: attention q=fp16 kv=fp16 heads=16/8 dim=256 kv_layout=paged:16:nhd "
            "softcap=50 window=4096 lse=natural\n"
            "21 full: attention q=fp16 kv=fp16 heads=16/8 dim=256 kv_layout=paged:16:nhd "
            "softcap=50 lse=natural\n");
}

}  // namespace
}  // namespace splitkv::tool
