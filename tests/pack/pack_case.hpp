// Packs as `splitkv pack` makes them, and runtimes that are given them.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <string>
#include <vector>

#include "runtime/splitkv_deploy.h"
#include "tests/api/decode_case.hpp"
#include "tests/cli/process.hpp"

namespace splitkv::pack_test {

// Sets a variable while it lives; null: not set.
class Variable {
 public:
  Variable(const char* name, const char* value);
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;
  ~Variable();

 private:
  const char* name_;
  bool was_set_;
  std::string before_;
};

// `splitkv pack ARGUMENTS... --out PATH`.
cli_test::Finished make_pack(const std::string& path, std::vector<std::string> arguments);

std::string contents(const std::string& path);
void overwrite(const std::string& path, const std::string& bytes);

// "LEVEL line" of each log line.
struct LoggedRuntime {
  explicit LoggedRuntime(uint32_t flags = 0, const char* cache_dir = nullptr,
                         const char* pack = nullptr);

  testing_support::Answer opened;
  testing_support::RuntimeOwner runtime;
  std::vector<std::string> lines;

  splitkv_runtime* get() const { return runtime.get(); }
  bool logged(const std::string& words) const;
  testing_support::Answer open_pack(const std::string& path) const;
};

bool says(const std::string& text, const std::string& words);

}  // namespace splitkv::pack_test
