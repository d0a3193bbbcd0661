// The text of the device headers in templates/, put into the library when it is built, so that a
// program compiles kernels at run time without any file of this repository.
#pragma once

#include <span>
#include <string_view>

namespace splitkv {

struct EmbeddedFile {
  std::string_view name;  // as includes spell it: "merge.cuh"
  std::string_view text;
};

// Every templates/*.cuh, sorted by name. The texts live as long as the program.
std::span<const EmbeddedFile> embedded_templates();

}  // namespace splitkv
