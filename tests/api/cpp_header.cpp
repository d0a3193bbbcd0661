// splitkv.hpp and splitkv_deploy.hpp are C++17.
#include "runtime/splitkv.hpp"

#include "runtime/splitkv_deploy.hpp"

static_assert(__cplusplus == 201703L, "compiled as C++17");

// The status and message that a runtime gives for a problem without heads.
std::pair<splitkv_status, std::string> cpp_header_throws_failures() {
  splitkv::Runtime runtime;
  try {
    runtime.prepare("cpu", "attention q=fp32 dim=64");
  } catch (const splitkv::Failure& failure) {
    return {failure.status(), failure.what()};
  }
  return {SPLITKV_OK, ""};
}
