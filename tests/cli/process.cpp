#include "tests/cli/process.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <iterator>

namespace splitkv::cli_test {
namespace {

std::string contents(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> list;
  for (std::string& word : words) list.push_back(word.data());
  list.push_back(nullptr);
  return list;
}

}  // namespace

Finished run_splitkv(const std::vector<std::string>& arguments,
                     const std::vector<std::string>& environment) {
  const Folder folder;
  const std::string out = folder.file("out"), err = folder.file("err");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, out.c_str(), O_WRONLY | O_CREAT, 0600);
  posix_spawn_file_actions_addopen(&actions, 2, err.c_str(), O_WRONLY | O_CREAT, 0600);

  std::vector<std::string> words = {SPLITKV_TEST_BINARY};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<std::string> variables = environment;
  for (char** variable = environ; *variable != nullptr; ++variable) variables.push_back(*variable);
  pid_t child = 0;
  const int fault = posix_spawn(&child, SPLITKV_TEST_BINARY, &actions, nullptr,
                                pointers(words).data(), pointers(variables).data());
  posix_spawn_file_actions_destroy(&actions);
  if (fault != 0) {
    ADD_FAILURE() << SPLITKV_TEST_BINARY << " does not start: error " << fault;
    return {};
  }
  int state = 0;
  waitpid(child, &state, 0);
  const int status = WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state);
  return {status, contents(out), contents(err)};
}

std::string line_of(const std::string& text, const std::string& label) {
  const size_t at = text.starts_with(label) ? 0 : text.find("\n" + label);
  if (at == std::string::npos) return "";
  const size_t begin = text.find_first_not_of(" \n", at + label.size() + (at > 0));
  return begin == std::string::npos ? "" : text.substr(begin, text.find('\n', begin) - begin);
}

Folder::Folder() {
  std::string name = (std::filesystem::temp_directory_path() / "splitkv_cli_XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) ADD_FAILURE() << "no folder at " << name;
  path_ = name;
}

Folder::~Folder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace splitkv::cli_test
