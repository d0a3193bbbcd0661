// Each device header compiles alone, with what it includes and nothing else.
#include <gtest/gtest.h>

#include "codegen/cuda/flatten.hpp"
#include "codegen/embedded.hpp"
#include "runtime/cuda/nvrtc.hpp"

namespace splitkv {
namespace {

TEST(Templates, EachHeaderCompilesAlone) {
  if (const auto version = nvrtc_version(); !version) GTEST_SKIP() << version.error().message;
  ASSERT_GT(embedded_templates().size(), 8u);
  for (const EmbeddedFile& file : embedded_templates()) {
    const std::string_view roots[] = {file.name};
    KernelSource source;
    source.text = flatten_templates(roots) + "extern \"C\" __global__ void nothing() {}\n";
    source.split_entry = "nothing";
    const auto cubin = compile_cuda(source, "sm_90a");
    EXPECT_TRUE(cubin.ok()) << file.name << ": " << (cubin ? "" : cubin.error().message);
  }
}

}  // namespace
}  // namespace splitkv
