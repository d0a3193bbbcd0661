#include "tests/pack/pack_case.hpp"

#include <fstream>
#include <iterator>

namespace splitkv::pack_test {

using testing_support::Answer;
using testing_support::answer_of;

Variable::Variable(const char* name, const char* value) : name_(name) {
  const char* before = getenv(name);
  was_set_ = before != nullptr;
  if (was_set_) before_ = before;
  if (value != nullptr) setenv(name, value, 1);
  if (value == nullptr) unsetenv(name);
}

Variable::~Variable() {
  if (was_set_) setenv(name_, before_.c_str(), 1);
  if (!was_set_) unsetenv(name_);
}

cli_test::Finished make_pack(const std::string& path, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "pack");
  arguments.insert(arguments.end(), {"--out", path});
  return cli_test::run_splitkv(arguments);
}

std::string contents(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

void overwrite(const std::string& path, const std::string& bytes) {
  std::ofstream stream(path, std::ios::binary | std::ios::trunc);
  stream << bytes;
}

LoggedRuntime::LoggedRuntime(uint32_t flags, const char* cache_dir, const char* pack) {
  splitkv_options options = SPLITKV_INIT(splitkv_options);
  options.flags = flags;
  options.cache_dir = cache_dir;
  options.pack = pack;
  options.threads = 1;
  options.log = [](void* user, splitkv_log_level level, const char* line) {
    static_cast<LoggedRuntime*>(user)->lines.push_back(std::to_string(int(level)) + ' ' + line);
  };
  options.log_user = this;
  splitkv_runtime* handle = nullptr;
  opened = answer_of([&](splitkv_message* m) { return splitkv_open(&options, &handle, m); });
  runtime.reset(handle);
}

bool LoggedRuntime::logged(const std::string& words) const {
  for (const std::string& line : lines) {
    if (says(line, words)) return true;
  }
  return false;
}

Answer LoggedRuntime::open_pack(const std::string& path) const {
  return answer_of(
      [&](splitkv_message* m) { return splitkv_open_pack(runtime.get(), path.c_str(), m); });
}

bool says(const std::string& text, const std::string& words) {
  return text.find(words) != std::string::npos;
}

}  // namespace splitkv::pack_test
