// Memory that ends at a page which cannot be touched, and begins after one.
#pragma once

#include <cstddef>
#include <string>

namespace emulator {

// Bytes outside what was asked for, but in front of the guard: whoever changes them wrote too far.
inline constexpr unsigned char kOutside = 0xfd;

class Guarded {
 public:
  // The last byte lies less than `alignment` before the end; bytes are 0xff.
  Guarded(size_t bytes, size_t alignment);
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  ~Guarded();

  unsigned char* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  // Moves what is asked for within the same pages.
  void place(size_t bytes, size_t alignment);
  bool holds(const void* address) const;  // with the guards
  // "" or what was written outside.
  std::string overrun() const;
  // "12 bytes beyond the end of"
  std::string relation_to(const void* address) const;

 private:
  unsigned char* pages_ = nullptr;  // with the guards
  size_t page_bytes_ = 0;
  unsigned char* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace emulator
