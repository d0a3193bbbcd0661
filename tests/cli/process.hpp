// Runs the splitkv binary as a user would.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace splitkv::cli_test {

struct Finished {
  int status = -1;  // exit status; 128 + the signal where one ended it
  std::string out;
  std::string err;
};

// Arguments go to the binary as they are; no shell takes part. `environment` holds "NAME=value"
// entries added to this process's own.
Finished run_splitkv(const std::vector<std::string>& arguments,
                     const std::vector<std::string>& environment = {});

// The rest of the first line that begins with `label`, or "".
std::string line_of(const std::string& text, const std::string& label);

// A folder that goes with the object.
class Folder {
 public:
  Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder();

  std::string file(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

}  // namespace splitkv::cli_test
