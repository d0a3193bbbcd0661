#include "tests/tuning/planted.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>

#include "codegen/kernel_source.hpp"
#include "runtime/cpu/cpu_module.hpp"
#include "runtime/disk_cache.hpp"
#include "runtime/kernel.hpp"
#include "runtime/kernel_key.hpp"

namespace splitkv::tuning_test {
namespace {

KernelSource source_of(const Problem& problem, const Schedule& schedule, const Target& target) {
  return emit(resolved(problem), schedule, target);
}

KernelKey key_of(const KernelSource& source, const Target& target) {
  return kernel_key(source, facts_of(*cpu_compiler(target), target));
}

// The split entry with another body.
KernelSource with_body(KernelSource source, const std::string& body) {
  const size_t head = source.text.find("define void @" + source.split_entry + "(");
  EXPECT_NE(head, std::string::npos);
  const size_t begin = source.text.find('\n', head), end = source.text.find("\n}\n", head);
  source.text.replace(begin, end - begin, "\n" + body);
  const std::string trap = "declare void @llvm.trap()\n";
  if (source.text.find(trap) == std::string::npos) source.text += trap;
  return source;
}

void rename(std::string& text, const std::string& from, const std::string& to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
}

// Attention with three times the scale, under the names of the entries that are looked for.
KernelSource with_other_scale(const KernelSource& source, Problem problem, const Schedule& schedule,
                              const Target& target) {
  problem.scale = 3 * scale_of(problem);
  KernelSource other = source_of(problem, schedule, target);
  rename(other.text, other.split_entry, source.split_entry);
  if (!other.reduce_entry.empty()) rename(other.text, other.reduce_entry, source.reduce_entry);
  other.split_entry = source.split_entry;
  other.reduce_entry = source.reduce_entry;
  return other;
}

KernelSource misbehaving(const Problem& problem, const Schedule& schedule, const Target& target,
                         Misdeed misdeed) {
  const KernelSource source = source_of(problem, schedule, target);
  switch (misdeed) {
    case Misdeed::writes_nothing:
      return with_body(source, "  ret void");
    case Misdeed::crashes:
      return with_body(source, "  call void @llvm.trap()\n  unreachable");
    case Misdeed::hangs:
      return with_body(source,
                       "  br label %again\nagain:\n  call void asm sideeffect \"\", \"\"()\n"
                       "  br label %again");
    case Misdeed::other_numbers:
      break;
  }
  return with_other_scale(source, problem, schedule, target);
}

}  // namespace

std::string kernel_digest(const Problem& problem, const Schedule& schedule, const Target& target) {
  return key_of(source_of(problem, schedule, target), target).digest;
}

void plant(const std::string& folder, const Problem& problem, const Schedule& schedule,
           const Target& target, Misdeed misdeed) {
  const Result<CpuObject> object =
      compile_cpu_object(misbehaving(problem, schedule, target, misdeed), target);
  ASSERT_TRUE(object.ok()) << object.error().message;
  const char* before = getenv("SPLITKV_NO_DISK");  // of tests of this label
  const std::string no_disk = before != nullptr ? before : "";
  setenv("SPLITKV_NO_DISK", "0", 1);
  RuntimeOptions options;
  options.cache_dir = folder;
  const Log log(options);
  DiskCache cache(options, log);
  const KernelSource source = source_of(problem, schedule, target);
  cache.replace(key_of(source, target), source, {{object->bytes}, "", 1.0});
  EXPECT_TRUE(cache.find(key_of(source, target)).has_value());
  setenv("SPLITKV_NO_DISK", no_disk.c_str(), 1);
}

}  // namespace splitkv::tuning_test
