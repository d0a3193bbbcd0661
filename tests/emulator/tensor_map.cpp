#include "tests/emulator/tensor_map.hpp"

#include <algorithm>
#include <cstring>

namespace emulator {
namespace {

// The innermost elements at `from` of which the tensor holds a run.
void read_run(const TensorMapImage& map, const u8* from, int first, u8* to) {
  for (u32 i = 0; i < map.box[0]; ++i) {
    const long long element = (long long)(first) + i;
    if (element < 0 || element >= map.ends[0]) continue;
    std::memcpy(to + i * map.element_bytes, from + element * map.element_bytes, map.element_bytes);
  }
}

}  // namespace

std::vector<u8> read_box(const TensorMapImage& map, const int* at) {
  u32 runs = 1;
  for (u32 d = 1; d < map.dimensions; ++d) runs *= map.box[d];
  const u32 run_bytes = map.box[0] * map.element_bytes;
  std::vector<u8> bytes(runs * run_bytes);
  for (u32 run = 0; run < runs; ++run) {
    const u8* from = reinterpret_cast<const u8*>(map.data);
    bool inside = true;
    u32 rest = run;
    for (u32 d = 1; d < map.dimensions; ++d) {
      const long long place = (long long)(at[d]) + rest % map.box[d];
      rest /= map.box[d];
      inside = inside && place >= 0 && place < map.ends[d];
      from += place * (long long)(map.strides[d - 1]);
    }
    if (inside) read_run(map, from, at[0], bytes.data() + run * run_bytes);
  }
  return bytes;
}

}  // namespace emulator
