#include <chrono>
#include <cstdio>
#include <fstream>
#include <map>

#include "tokenizer.hpp"
#include "verbs.hpp"

namespace engine {
namespace {

// One user's turn in SmolLM2-Instruct's chat template.
std::string as_chat(const std::string& prompt) {
  return "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging "
         "Face<|im_end|>\n<|im_start|>user\n" +
         prompt + "<|im_end|>\n<|im_start|>assistant\n";
}

// numpy's format, version 1: magic, length of the header, header, numbers.
void write_npy(const std::string& path, const std::vector<float>& numbers, size_t columns) {
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (" +
                       std::to_string(numbers.size() / columns) + ", " + std::to_string(columns) +
                       "), }";
  constexpr size_t kPrefix = 10, kAlignment = 64;
  while ((kPrefix + header.size() + 1) % kAlignment != 0) header += ' ';
  header += '\n';
  std::ofstream file(path, std::ios::binary);
  file.write("\x93NUMPY\x01\x00", 8);
  const char length[] = {char(header.size() & 255), char(header.size() >> 8)};
  file.write(length, 2);
  file << header;
  file.write(reinterpret_cast<const char*>(numbers.data()), std::streamsize(numbers.size() * 4));
  if (!file.flush()) throw std::runtime_error("--trace " + path + " cannot be written");
}

void print_tokens(const char* what, int64_t id, const std::vector<int32_t>& tokens) {
  std::printf("%s %lld:", what, (long long)id);
  for (const int32_t token : tokens) std::printf(" %d", token);
  std::printf("\n");
}

void print_counters(const Counters& c, int64_t layers, double seconds, size_t answers) {
  std::printf("%lld tokens computed, %zu answered in %.2f s: %.1f answered a second\n",
              (long long)c.tokens, answers, seconds, double(answers) / seconds);
  std::printf(
      "attention calls: %lld for answers (%lld layers x %lld steps), %lld for prompts (%lld "
      "layers x %lld steps)\n",
      (long long)c.decode_attention_calls, (long long)layers, (long long)c.decode_steps,
      (long long)c.prefill_attention_calls, (long long)layers, (long long)c.prefill_steps);
  if (c.graph_launches > 0) std::printf("graph launches: %lld\n", (long long)c.graph_launches);
  if (c.step_ms > 0) {
    std::printf("attention, with the writing of K and V: %.1f %% of %.1f ms on the device\n",
                100 * c.attention_ms / c.step_ms, c.step_ms);
  }
}

}  // namespace

int generate(const Options& options, Device& device) {
  const Tokenizer tokenizer(options.model);
  EngineOptions settings = options.engine;
  if (!options.has_pages) {
    settings.limits.pages =
        settings.limits.max_batch * settings.limits.pages_of(settings.limits.max_length);
  }
  const Weights weights = load_weights(options.model);
  Engine engine(device, weights, settings);
  std::map<int64_t, std::vector<float>> traces;
  if (!options.trace.empty()) {
    engine.on_logits = [&](const Request& request, const std::vector<float>& logits) {
      std::vector<float>& trace = traces[request.id];
      trace.insert(trace.end(), logits.begin(), logits.end());
    };
  }
  for (size_t i = 0; i < options.prompts.size(); ++i) {
    Request request;
    request.id = int64_t(i);
    const std::string& prompt = options.prompts[i];
    request.prompt = tokenizer.encode(options.chat ? as_chat(prompt) : prompt);
    request.forced = options.forced;
    request.max_new = options.forced.empty() ? options.max_new : int32_t(options.forced.size());
    if (options.forced.empty()) request.stop_token = weights.config.stop_token;
    engine.submit(std::move(request));
  }
  const auto begin = std::chrono::steady_clock::now();
  std::map<int64_t, Request> done;
  size_t answered = 0;
  while (engine.step()) {
    for (Request& request : engine.take_done()) {
      answered += request.generated.size();
      done[request.id] = std::move(request);
    }
  }
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  for (const auto& [id, request] : done) {
    if (options.show_tokens) print_tokens("prompt", id, request.prompt);
    if (options.show_tokens) print_tokens("answer", id, request.generated);
    std::printf("--- %lld\n%s\n", (long long)id, tokenizer.decode(request.generated).c_str());
  }
  std::printf("---\n");
  print_counters(engine.counters(), weights.config.layers, taken.count(), answered);
  for (const auto& [id, trace] : traces) {
    write_npy(options.trace + "." + std::to_string(id) + ".npy", trace,
              size_t(weights.config.vocab));
  }
  return 0;
}

}  // namespace engine
