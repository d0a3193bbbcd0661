// Who has which page of the cache. A page holds page_size tokens of every layer.
#pragma once

#include <cstdint>
#include <vector>

namespace engine {

class PageAllocator {
 public:
  explicit PageAllocator(int32_t pages);

  // Appends `count` pages to `to`, or takes none and returns false where fewer are free.
  bool take(int32_t count, std::vector<int32_t>& to);

  // Takes the pages back and empties the list. Throws std::logic_error at a page that is free.
  void give_back(std::vector<int32_t>& pages);

  int32_t free_pages() const { return int32_t(free_.size()); }
  int32_t pages() const { return int32_t(taken_.size()); }

 private:
  std::vector<int32_t> free_;
  std::vector<bool> taken_;
};

}  // namespace engine
