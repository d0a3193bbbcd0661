#include "options.hpp"

#include <charconv>
#include <limits>
#include <map>
#include <string_view>

namespace engine {
namespace {

using examples::kMost, examples::number, examples::numbers, examples::refuse;

template <class Value>
Value one_of(const std::string& option, const std::string& text,
             const std::map<std::string, Value>& names) {
  const auto found = names.find(text);
  if (found != names.end()) return found->second;
  std::string fits;
  for (const auto& [name, value] : names) fits += (fits.empty() ? "" : ", ") + name;
  refuse(option, text, fits);
}

bool take_flag(const std::string& option, Options& options) {
  if (option == "--chat") return options.chat = true;
  if (option == "--show-tokens") return options.show_tokens = true;
  if (option == "--deterministic") return options.engine.attention.deterministic = true;
  if (option == "--eager") return !(options.engine.runner.graphs = false);
  if (option == "--untimed") return !(options.engine.runner.times = false);
  return false;
}

// Options with a number: the least and the most that they take, and where it goes.
struct Number {
  int32_t least, most;
  int32_t* to;
};

std::map<std::string, Number> numbers_of(Options& options) {
  Limits& limits = options.engine.limits;
  return {
      {"--max-new", {1, kMost, &options.max_new}},
      {"--threads", {0, 4096, &options.threads}},
      {"--batch", {1, 4096, &limits.max_batch}},
      {"--page-size", {1, 4096, &limits.page_size}},
      {"--pages", {1, kMost, &limits.pages}},
      {"--chunk", {2, 64, &limits.chunk}},
      {"--prefill-tokens", {1, 65536, &limits.prefill_tokens}},
      {"--max-length", {2, 1 << 24, &limits.max_length}},
      {"--least", {1, 1 << 24, &options.least}},
      {"--most", {1, 1 << 24, &options.most}},
      {"--steps", {1, 1 << 20, &options.steps}},
      {"--layers", {1, 1024, &options.layers}},
      {"--rows", {1, 4096, &options.rows}},
  };
}

void take(const std::string& option, const std::string& value, Options& options) {
  const std::map<std::string, Number> counts = numbers_of(options);
  if (const auto found = counts.find(option); found != counts.end()) {
    *found->second.to = number(option, value, found->second.least, found->second.most);
    options.has_pages = options.has_pages || option == "--pages";
  } else if (option == "--model") {
    options.model = value;
  } else if (option == "--prompt") {
    options.prompts.push_back(value);
  } else if (option == "--forced") {
    options.forced = numbers(option, value);
  } else if (option == "--trace") {
    options.trace = value;
  } else if (option == "--device") {
    if (value != "cpu" && value.rfind("cuda:", 0) != 0) {
      throw BadOption("--device " + value + " is not understood; cpu or cuda:0 would fit");
    }
    if (value != "cpu") number(option, value.substr(5), 0, 1023);
    options.device = value;
  } else if (option == "--dtype") {
    options.dtype = one_of<Dtype>(option, value, {{"fp32", Dtype::fp32}, {"bf16", Dtype::bf16}});
  } else if (option == "--plant") {
    options.engine.attention.plant = one_of<Plant>(option, value,
                                                   {{"none", Plant::none},
                                                    {"scale", Plant::scale},
                                                    {"length", Plant::length},
                                                    {"page", Plant::page}});
  } else {
    throw BadOption(option + " is no option; --help lists them");
  }
}

void check(const Options& options) {
  if (options.verb == "generate" && (options.model.empty() || options.prompts.empty())) {
    throw BadOption("generate needs --model and --prompt; --help lists all options");
  }
  if (options.least > options.most) {
    throw BadOption("--least " + std::to_string(options.least) + " is above --most " +
                    std::to_string(options.most));
  }
  if (options.engine.limits.max_batch < options.rows && options.verb == "graph-check") {
    throw BadOption("--rows " + std::to_string(options.rows) + " is above --batch " +
                    std::to_string(options.engine.limits.max_batch));
  }
}

}  // namespace

const char* const kUsage =
    "engine generate --model DIR --prompt TEXT [--prompt TEXT ...]\n"
    "engine bench | graph-check\n"
    "A small decode engine around SplitKV: paged KV, continuous batching, CUDA graphs.\n"
    "  --model DIR         a folder that prepare_weights.py wrote; bench and graph-check take a\n"
    "                      model of the same heads with random weights where none is named\n"
    "  --prompt TEXT       a request each; special tokens may stand in it\n"
    "  --chat              wraps prompts as a user's turn, as SmolLM2-Instruct has it\n"
    "  --max-new N         tokens of an answer (64)\n"
    "  --forced A,B,...    tokens taken as the answer, whatever the model says\n"
    "  --show-tokens       prints tokens beside the text\n"
    "  --trace FILE        writes the logits behind each answer's tokens to FILE.<request>.npy\n"
    "  --device D          cpu, cuda:0, ... (cpu)\n"
    "  --dtype D           on a GPU: bf16, fp32 (bf16); the CPU computes in fp32\n"
    "  --threads N         on the CPU; 0: as many as the machine has (0)\n"
    "  --batch N           requests at once (8; bench and graph-check 64)\n"
    "  --page-size N       tokens of a page (16)\n"
    "  --pages N           of the cache (as many as --batch requests of --max-length need)\n"
    "  --max-length N      tokens of a request, prompt and answer (2048)\n"
    "  --chunk N           prompt tokens of a request in one step, at most 64 (64)\n"
    "  --prefill-tokens N  prompt tokens of all requests in one step (256)\n"
    "  --deterministic     a request's bits do not depend on the others\n"
    "  --eager             no graphs on a GPU\n"
    "  --untimed           no times of attention\n"
    "  --plant F           a fault that checks must notice: scale, length, page\n"
    "  --least N --most N --steps N   bench: lengths (64, 16384), timed steps (16)\n"
    "  --layers N          bench and graph-check without --model (4)\n"
    "  --rows N            graph-check: rows that live in the replay (37)\n"
    "Exit status: 0, 1 a check failed, 2 bad options, 3 something failed or is missing, 77 "
    "graph-check\n"
    "has no graphs to check.\n";

Options parse_options(int argc, const char* const* argv) {
  Options options;
  if (argc < 2) throw BadOption("a verb is needed: generate, bench, graph-check");
  options.verb = argv[1];
  const bool generates = options.verb == "generate";
  if (!generates && options.verb != "bench" && options.verb != "graph-check") {
    throw BadOption(options.verb + " is no verb; generate, bench, graph-check would fit");
  }
  if (!generates) options.engine.limits.max_batch = 64;
  if (options.verb == "graph-check") options.engine.limits.max_length = 131072;
  for (int i = 2; i < argc; ++i) {
    if (take_flag(argv[i], options)) continue;
    if (i + 1 == argc) throw BadOption(std::string(argv[i]) + " needs a value; --help lists them");
    take(argv[i], argv[i + 1], options);
    ++i;
  }
  check(options);
  return options;
}

}  // namespace engine
