// Runs emitted source with a fault planted in it, beneath the C API, and says whether a comparison
// with the fp64 reference notices.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "codegen/kernel_source.hpp"
#include "compiler/result.hpp"

namespace splitkv::testing_support {

// What a mutant is run on.
struct Setting {
  const char* problem;
  const char* schedule;
  std::vector<int32_t> kv_len;
};

// `from` stands in the emitted source of `setting` and is replaced by `to`: in the one place where
// CUDA source has it, or wherever it stands in LLVM IR, which repeats what a loop says once.
struct Mutant {
  const char* name;
  const char* part;  // merge, mask, tail, partition, walk, score, output, cluster ...
  Setting setting;
  const char* from;
  const char* to;
};

std::span<const Mutant> cuda_mutants();
std::span<const Mutant> llvm_mutants();
// Of CUDA source, where only the emulated device shows them reliably.
std::span<const Mutant> race_mutants();

// Puts `to` for `from` in emitted source, as Mutant says. An error says how often it stands there.
Outcome plant(KernelSource& source, const std::string& from, const std::string& to);

struct Verdict {
  std::string failure;  // empty, or why the run could not be made (a planted fault that does not
                        // compile proves nothing)
  bool right = false;   // within the accuracy contract, twice in a row
};

// Runs emitted source on one device: "cpu" or "cuda:0".
class Planter {
 public:
  explicit Planter(std::string device);
  ~Planter();

  // Whether the device has what the setting asks of its architecture: clusters are not on all.
  bool suits(const Setting& setting);

  // Empty `from`: the source as it was emitted.
  Verdict run(const Setting& setting, const std::string& from, const std::string& to);

 private:
  struct Parts;
  std::string device_;
  std::unique_ptr<Parts> parts_;
};

}  // namespace splitkv::testing_support
