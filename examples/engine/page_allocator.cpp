#include "page_allocator.hpp"

#include <stdexcept>
#include <string>

namespace engine {

PageAllocator::PageAllocator(int32_t pages) : taken_(size_t(pages), false) {
  for (int32_t page = pages - 1; page >= 0; --page) free_.push_back(page);
}

bool PageAllocator::take(int32_t count, std::vector<int32_t>& to) {
  if (count > free_pages()) return false;
  for (int32_t i = 0; i < count; ++i) {
    to.push_back(free_.back());
    taken_[size_t(free_.back())] = true;
    free_.pop_back();
  }
  return true;
}

void PageAllocator::give_back(std::vector<int32_t>& pages) {
  for (const int32_t page : pages) {
    if (!taken_.at(size_t(page))) {
      throw std::logic_error("page " + std::to_string(page) + " is given back but was not taken");
    }
    taken_[size_t(page)] = false;
    free_.push_back(page);
  }
  pages.clear();
}

}  // namespace engine
