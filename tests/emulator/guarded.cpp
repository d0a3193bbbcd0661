#include "tests/emulator/guarded.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>

namespace emulator {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kGuard = 256 * kPage;

size_t whole(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

Guarded::Guarded(size_t bytes, size_t alignment) {
  page_bytes_ = whole(std::max<size_t>(bytes, 1), std::max(alignment, kPage)) + 2 * kGuard;
  void* memory = mmap(nullptr, page_bytes_, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  pages_ = static_cast<unsigned char*>(memory);
  mprotect(pages_, kGuard, PROT_NONE);
  mprotect(pages_ + page_bytes_ - kGuard, kGuard, PROT_NONE);
  place(bytes, alignment);
}

Guarded::~Guarded() { munmap(pages_, page_bytes_); }

void Guarded::place(size_t bytes, size_t alignment) {
  unsigned char* end = pages_ + page_bytes_ - kGuard;
  bytes_ = bytes;
  data_ = end - whole(bytes, alignment);
  std::memset(data_, 0xff, bytes);
  // What lies in front is no more than is needed to notice a write there.
  unsigned char* begin = std::max(pages_ + kGuard, data_ - kPage);
  std::memset(begin, kOutside, size_t(data_ - begin));
  std::memset(data_ + bytes, kOutside, size_t(end - data_) - bytes);
}

bool Guarded::holds(const void* address) const {
  const auto* at = static_cast<const unsigned char*>(address);
  return at >= pages_ && at < pages_ + page_bytes_;
}

std::string Guarded::overrun() const {
  const auto is_touched = [](unsigned char byte) { return byte != kOutside; };
  const unsigned char* end = pages_ + page_bytes_ - kGuard;
  const unsigned char* begin = std::max(pages_ + kGuard, data_ - kPage);
  if (const auto* at = std::find_if(begin, static_cast<const unsigned char*>(data_), is_touched);
      at != data_) {
    return "a write " + relation_to(at);
  }
  if (const auto* at = std::find_if<const unsigned char*>(data_ + bytes_, end, is_touched);
      at != end) {
    return "a write " + relation_to(at);
  }
  return "";
}

std::string Guarded::relation_to(const void* address) const {
  const auto* at = static_cast<const unsigned char*>(address);
  if (at < data_) return std::to_string(data_ - at) + " bytes before the beginning of";
  if (at < data_ + bytes_) return std::to_string(at - data_) + " bytes within";
  return std::to_string(at - data_ - bytes_) + " bytes beyond the end of";
}

}  // namespace emulator
