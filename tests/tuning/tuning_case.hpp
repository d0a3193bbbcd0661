// Records to write and read, a folder of their own for each test, and a log that can be read.
#pragma once

#include <string>
#include <vector>

#include "runtime/log.hpp"
#include "runtime/tuning_file.hpp"

namespace splitkv::tuning_test {

inline constexpr const char* kProblem = "attention q=bf16 kv=bf16 heads=32/8 dim=128";

// Goes with the object.
class TempFolder {
 public:
  TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  ~TempFolder();

  std::string operator/(const std::string& name) const { return path_ + '/' + name; }

 private:
  std::string path_;
};

// The H200's facts as far as they are known without one.
Target target();
// Of kProblem on target(): `splits` tells records apart.
TuningRecord record(int64_t batch, int64_t kv_len, RowLengths rows, int splits);

std::string contents(const std::string& path);
void overwrite(const std::string& path, const std::string& text);

struct KeptLog {
  std::vector<std::string> warnings;
  Log log();
};

}  // namespace splitkv::tuning_test
