#include "runtime/child_process.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>

#include <algorithm>
#include <cstring>
#include <string_view>

extern char** environ;

namespace splitkv {
namespace {

struct SpawnWords {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;

  SpawnWords() {
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
  }
  SpawnWords(const SpawnWords&) = delete;
  SpawnWords& operator=(const SpawnWords&) = delete;
  ~SpawnWords() {
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
  }
};

std::vector<std::string> environment_with(const std::vector<std::string>& words) {
  std::vector<std::string> variables;
  const auto name_of = [](std::string_view word) { return word.substr(0, word.find('=')); };
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const bool is_replaced = std::any_of(words.begin(), words.end(), [&](const std::string& word) {
      return name_of(word) == name_of(*variable);
    });
    if (!is_replaced) variables.emplace_back(*variable);
  }
  variables.insert(variables.end(), words.begin(), words.end());
  return variables;
}

// With the null that ends such lists. They point into the texts.
std::vector<char*> pointers_of(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

Result<pid_t> start_process(const std::vector<std::string>& command, int descriptor,
                            const std::vector<std::string>& environment, bool quiet) {
  SpawnWords words;
  posix_spawn_file_actions_adddup2(&words.actions, descriptor, 0);
  posix_spawn_file_actions_adddup2(&words.actions, descriptor, 1);
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 34)
  posix_spawn_file_actions_addclosefrom_np(&words.actions, 3);
#endif
  if (quiet) posix_spawn_file_actions_addopen(&words.actions, 2, "/dev/null", O_WRONLY, 0);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&words.attributes, &none);
  posix_spawnattr_setflags(&words.attributes, POSIX_SPAWN_SETSIGMASK);

  const std::vector<std::string> variables = environment_with(environment);
  const std::vector<char*> arguments = pointers_of(command), names = pointers_of(variables);
  pid_t process = -1;
  const int fault = posix_spawnp(&process, arguments.front(), &words.actions, &words.attributes,
                                 arguments.data(), names.data());
  if (fault == 0) return process;
  return Error{Status::internal, fmt::format("a measuring process ({}) cannot be started: {}",
                                             command.front(), std::strerror(fault))};
}

}  // namespace splitkv
