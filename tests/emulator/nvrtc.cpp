// A stand-in for libnvrtc: emitted source becomes C++, the system's compiler makes a library of it,
// and that takes the cubin's place.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include "tests/emulator/image.hpp"
#include "tests/emulator/scan.hpp"
#include "tests/emulator/translate.hpp"

#define EMULATED extern "C" __attribute__((visibility("default")))

namespace fs = std::filesystem;

struct _nvrtcProgram {
  std::string source;
  std::string log;
  std::string image;
};

namespace {

enum Result { kSuccess = 0, kInvalidInput = 3, kInvalidOption = 5, kCompilation = 6 };

// Of the compute capabilities that the emulator knows: 90 of "-arch=sm_90a", or 0.
int capability_in(std::string_view option) {
  constexpr std::string_view kPrefix = "-arch=sm_";
  return option.starts_with(kPrefix) ? std::atoi(option.data() + kPrefix.size()) : 0;
}

std::string contents_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A folder that goes away.
class Workplace {
 public:
  Workplace() {
    std::string name = (fs::temp_directory_path() / "splitkv-emulated-XXXXXX").string();
    if (mkdtemp(name.data()) != nullptr) path_ = name;
  }
  Workplace(const Workplace&) = delete;
  Workplace& operator=(const Workplace&) = delete;
  ~Workplace() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }

  bool exists() const { return !path_.empty(); }
  fs::path operator/(const char* name) const { return path_ / name; }

 private:
  fs::path path_;
};

// Like a GPU, kernels contract products and sums. Most are compiled to run once or twice, so that
// it is the compiler's time that counts: -O1 takes half as much again, and libraries take longer to
// link than to find what is in the process anyway.
std::string command_of(const Workplace& place) {
  const bool has_fma = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return std::string(EMULATOR_COMPILER) + " -std=c++20 -Og -fPIC -shared -nostdlib -w " +
         (has_fma ? "-march=x86-64-v3 -ffp-contract=fast " : "") + "-I" + EMULATOR_ROOT + " -o " +
         (place / "kernel.so").string() + " " + (place / "kernel.cpp").string() + " 2>" +
         (place / "log").string();
}

int compile(_nvrtcProgram& program, int capability) {
  std::string text;
  try {
    text = emulator::translate(program.source);
  } catch (const emulator::CannotTranslate& refused) {
    program.log = refused.why;
    return kCompilation;
  }
  const Workplace place;
  if (!place.exists()) {
    program.log = "no folder for temporary files";
    return kCompilation;
  }
  std::ofstream(place / "kernel.cpp") << "#define EMULATED_ARCH " << capability * 10
                                      << "\n#include \"tests/emulator/cuda.hpp\"\n#line 1 "
                                      << "\"splitkv_kernel.cu\"\n"
                                      << text;
  const int status = std::system(command_of(place).c_str());
  program.log = contents_of(place / "log");
  if (status != 0) return kCompilation;
  const std::string library = contents_of(place / "kernel.so");
  emulator::ImageHead head;
  head.bytes = library.size();
  program.image.assign(reinterpret_cast<const char*>(&head), sizeof(head));
  program.image += library;
  return kSuccess;
}

}  // namespace

EMULATED const char* nvrtcGetErrorString(int result) {
  switch (result) {
    case kSuccess:
      return "NVRTC_SUCCESS";
    case kInvalidInput:
      return "NVRTC_ERROR_INVALID_INPUT";
    case kInvalidOption:
      return "NVRTC_ERROR_INVALID_OPTION";
    default:
      return "NVRTC_ERROR_COMPILATION";
  }
}

EMULATED int nvrtcVersion(int* major, int* minor) {
  *major = 13;
  *minor = 0;
  return kSuccess;
}

EMULATED int nvrtcCreateProgram(_nvrtcProgram** program, const char* source, const char*,
                                int headers, const char* const*, const char* const*) {
  if (headers != 0) return kInvalidInput;  // emitted source has none
  *program = new _nvrtcProgram{source, "", ""};
  return kSuccess;
}

EMULATED int nvrtcDestroyProgram(_nvrtcProgram** program) {
  delete *program;
  *program = nullptr;
  return kSuccess;
}

EMULATED int nvrtcCompileProgram(_nvrtcProgram* program, int count, const char* const* options) {
  int capability = 0;
  for (int i = 0; i < count; ++i) capability = std::max(capability, capability_in(options[i]));
  return capability == 0 ? int(kInvalidOption) : compile(*program, capability);
}

EMULATED int nvrtcGetProgramLogSize(_nvrtcProgram* program, size_t* bytes) {
  *bytes = program->log.size() + 1;
  return kSuccess;
}

EMULATED int nvrtcGetProgramLog(_nvrtcProgram* program, char* log) {
  std::memcpy(log, program->log.c_str(), program->log.size() + 1);
  return kSuccess;
}

EMULATED int nvrtcGetCUBINSize(_nvrtcProgram* program, size_t* bytes) {
  *bytes = program->image.size();
  return kSuccess;
}

EMULATED int nvrtcGetCUBIN(_nvrtcProgram* program, char* image) {
  std::memcpy(image, program->image.data(), program->image.size());
  return kSuccess;
}
