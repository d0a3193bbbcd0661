#include "tools/splitkv/choices.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <optional>
#include <sstream>

#include "compiler/text.hpp"
#include "compiler/verifier.hpp"
#include "runtime/options.hpp"
#include "runtime/schedule_choice.hpp"
#ifdef SPLITKV_HAS_CPU
#include "runtime/cpu/host.hpp"
#endif
#ifdef SPLITKV_HAS_CUDA
#include "runtime/cuda/device.hpp"
#endif

namespace splitkv::tool {
namespace {

constexpr const char* kDeviceWords = "cpu, cpu:NAME (cpu:x86-64-v3), cuda, cuda:N";

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

std::string key_of(const std::string& word) { return word.substr(0, word.find('=')); }

bool replaces(const std::string& newer, const std::string& older) {
  const std::string a = key_of(newer), b = key_of(older);
  return a == b || (a == "kv" && (b == "k" || b == "v")) ||
         (a == "kv_scale" && (b == "k_scale" || b == "v_scale"));
}

// N of "cuda:N", 0 for "cuda"; nothing for an architecture.
std::optional<int> cuda_ordinal(const std::string& words) {
  if (words == "cuda") return 0;
  if (!words.starts_with("cuda:")) return std::nullopt;
  int ordinal = 0;
  const char* end = words.data() + words.size();
  const auto [stop, fault] = std::from_chars(words.data() + 5, end, ordinal);
  if (fault != std::errc() || stop != end || ordinal < 0) return std::nullopt;
  return ordinal;
}

bool is_cpu(const std::string& words) { return words == "cpu" || words.starts_with("cpu:"); }

[[maybe_unused]] Error not_built(const std::string& words, const char* option) {
  return {Status::unsupported,
          fmt::format("--target={}: this build has {}=OFF; a build with {}=ON would work", words,
                      option, option)};
}

bool has_cuda_device() {
#ifdef SPLITKV_HAS_CUDA
  const Result<const cuda::Driver*> driver = cuda::driver();
  int count = 0;
  return driver.ok() && (*driver)->cuDeviceGetCount(&count) == cuda::kSuccess && count > 0;
#else
  return false;
#endif
}

Result<Target> cuda_device_target([[maybe_unused]] const std::string& words,
                                  [[maybe_unused]] int ordinal) {
#ifdef SPLITKV_HAS_CUDA
  return cuda_target(ordinal);
#else
  return not_built(words, "SPLITKV_CUDA");
#endif
}

Log warnings_to_stderr() {
  RuntimeOptions options;
  options.log = [](void*, splitkv_log_level level, const char* line) {
    if (level <= SPLITKV_LOG_WARNING) fmt::print(stderr, "splitkv: {}\n", line);
  };
  return Log(options);
}

// A level that this machine cannot run is a target still, for emit and show.
Result<Target> cpu_target(const std::string& words) {
#ifdef SPLITKV_HAS_CPU
  Result<Target> target = resolve_cpu_target(words, 0);
  if (target.ok() || words == "cpu") return target;
#else
  if (words == "cpu") return not_built(words, "SPLITKV_CPU");
#endif
  return parse_target(words);
}

}  // namespace

std::string override_words(const std::string& text, const std::string& overrides) {
  std::vector<std::string> words = words_of(text);
  for (const std::string& word : words_of(overrides)) {
    if (word == "attention") continue;
    std::erase_if(words, [&](const std::string& older) { return replaces(word, older); });
    words.push_back(word);
  }
  std::string joined;
  for (const std::string& word : words) joined += (joined.empty() ? "" : " ") + word;
  return joined;
}

Result<std::vector<ModelProblem>> chosen_problems(const ProblemWords& words) {
  if (words.model.empty()) {
    if (words.text.empty()) {
      return invalid_argument(
          "a problem is missing: \"attention q=bf16 kv=bf16 heads=32/8 dim=128\" or "
          "--model=DIR/config.json would work");
    }
    const Result<Problem> problem = parse_problem(words.text);
    if (!problem) return problem.error();
    return std::vector<ModelProblem>{{*problem, 0, ""}};
  }
  Result<std::vector<ModelProblem>> problems = read_model(words.model);
  if (!problems || words.text.empty()) return problems;
  for (ModelProblem& part : *problems) {
    const Result<Problem> problem = parse_problem(override_words(print(part.problem), words.text));
    if (!problem) return problem.error();
    part.problem = *problem;
  }
  return problems;
}

Result<std::string> chosen_device(const std::string& words) {
  if (words.empty()) {
    if (has_cuda_device()) return std::string("cuda:0");
#ifdef SPLITKV_HAS_CPU
    return std::string("cpu");
#else
    return Error{Status::library_missing,
                 "no CUDA device is here and this build has SPLITKV_CPU=OFF; `splitkv doctor` says "
                 "what is missing"};
#endif
  }
  if (is_cpu(words)) {
#ifdef SPLITKV_HAS_CPU
    return words;
#else
    return not_built(words, "SPLITKV_CPU");
#endif
  }
  if (const auto ordinal = cuda_ordinal(words)) {
#ifdef SPLITKV_HAS_CUDA
    return fmt::format("cuda:{}", *ordinal);
#else
    return not_built(words, "SPLITKV_CUDA");
#endif
  }
  return invalid_argument(
      fmt::format("--target={} is no device to run on; {} would work", words, kDeviceWords));
}

Result<Target> chosen_target(const std::string& words) {
  if (words.empty()) {
    const Result<std::string> device = chosen_device("");
    if (!device) return device.error();
    return chosen_target(*device);
  }
  if (const auto ordinal = cuda_ordinal(words)) return cuda_device_target(words, *ordinal);
  if (is_cpu(words)) return cpu_target(words);
  if (words.starts_with("cuda:")) return parse_target(words);
  return invalid_argument(fmt::format(
      "--target={} is no target; {}, cuda:ARCH (cuda:sm_90a) would work", words, kDeviceWords));
}

Result<ScheduleChoice> chosen_schedule(const Problem& problem, const Workload& workload,
                                       const Target& target, const std::string& words) {
  if (const auto refusal = verify(problem, target)) return to_error(*refusal);
  static TunedSchedules tuned(warnings_to_stderr());
  return choose_schedule(problem, workload, target, words.empty() ? nullptr : words.c_str(),
                         read_environment().schedule, &tuned);
}

}  // namespace splitkv::tool
