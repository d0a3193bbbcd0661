#include "tools/splitkv/verb.hpp"

#include <fmt/format.h>

#include <unistd.h>

#include <cstdio>

namespace splitkv::tool {

int report(const Error& error) {
  fmt::print(stderr, "splitkv: {}\n", error.message);
  switch (error.status) {
    case Status::invalid_argument:
    case Status::unsupported:
      return kExitBadInput;
    default:
      return kExitMachine;
  }
}

int bad_option(const std::string& option, const std::string& value, const std::string& what_works) {
  return report(invalid_argument(fmt::format("{}={}: {}", option, value, what_works)));
}

std::string own_program() {
  char path[4096];
  const ssize_t size = readlink("/proc/self/exe", path, sizeof(path));
  return size > 0 ? std::string(path, size_t(size)) : "";
}

}  // namespace splitkv::tool
