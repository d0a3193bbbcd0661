// Products of warp groups. Operands are read, and results written, no sooner than a wait says that
// they must be: what overwrites an operand before then is noticed, as is a result read too early.
#include <cstring>
#include <utility>

#include "tests/emulator/meetings.hpp"
#include "tests/emulator/numbers.hpp"
#include "tests/emulator/tensor_map.hpp"

namespace emulator {
namespace {

constexpr u32 kAllLanes = 0xffffffff;
constexpr u32 kSum = 16;  // elements that one product adds up

// An operand in shared memory, as its descriptor tells: parts of 8 rows, each of 128 bytes, turned.
struct Operand {
  u32 start;    // bytes
  u32 leading;  // from 64 columns to the next
  u32 stride;   // from 8 rows to the next
};

Operand operand_of(u64 descriptor) {
  const auto field = [&](u32 bit) { return u32(descriptor >> bit & 0x3fff) << 4; };
  // Of an address a descriptor holds 18 bits; the others are those of the block.
  const u32 block = to_shared_address(dynamic_shared()) & ~0x3ffffu;
  const Operand operand{block + field(0), field(16), field(32)};
  if (descriptor >> 62 != 1 || (descriptor >> 49 & 7) != 0)
    fault(FaultKind::launch, "wgmma with a descriptor %016llx whose swizzle is not emulated",
          descriptor);
  if (operand.start / 128 % 8 != 0)
    fault(FaultKind::launch, "wgmma with an operand at 0x%08x, inside of a swizzle", operand.start);
  return operand;
}

// `index` is a row of a or a column of b, `k` an element of the sum. Turned operands have a row for
// each element of the sum.
float element(const GroupProduct& product, const Operand& operand, bool turned, u32 index, u32 k) {
  const u32 row = turned ? k : index, column = turned ? index : k;
  const u32 place = operand.start + row / 8 * operand.stride + row % 8 * 128 +
                    column / 64 * operand.leading + column % 64 * 2;
  u16 bits = 0;
  std::memcpy(&bits, shared_at("wgmma", swizzled(place, 128), 2), 2);
  return product.bf16 ? from_bf16(bits) : from_fp16(bits);
}

// The lane's own elements of d. Products of 16-bit numbers are exact in fp32, in which they are
// added up in the order of the sum.
void multiply(const GroupProduct& product) {
  const Operand a = operand_of(product.a), b = operand_of(product.b);
  const u32 thread = self().thread.x, lane = thread % 32;
  float rows[2][kSum];
  for (u32 r = 0; r < 2; ++r) {
    for (u32 k = 0; k < kSum; ++k)
      rows[r][k] = element(product, a, false, thread % 128 / 32 * 16 + lane / 4 + 8 * r, k);
  }
  for (u32 pair = 0; pair < product.d.size() / 4; ++pair) {
    for (u32 e = 0; e < 2; ++e) {
      float column[kSum];
      for (u32 k = 0; k < kSum; ++k)
        column[k] = element(product, b, product.turned_b, pair * 8 + lane % 4 * 2 + e, k);
      for (u32 r = 0; r < 2; ++r) {
        float& d = *product.d[pair * 4 + 2 * r + e];
        for (u32 k = 0; k < kSum; ++k) d += rows[r][k] * column[k];
      }
    }
  }
}

void meet_all(const char* what) {
  meet(what, kAllLanes, nullptr, [](Warp&, u32) {});
}

}  // namespace

void begin_group_products() {
  meet_all("wgmma.fence");
  self().began_products = true;
}

void multiply_64_rows(bool bf16, u32 columns, bool turned_b, float* const* d, u64 a, u64 b) {
  meet_all("wgmma.mma_async");
  if (!self().began_products)
    fault(FaultKind::launch, "wgmma.mma_async without a wgmma.fence before it");
  self().uncommitted_products.push_back(
      {bf16, turned_b, a, b, std::vector<float*>(d, d + columns / 2)});
}

void commit_group_products() {
  meet_all("wgmma.commit_group");
  self().products.push_back(std::exchange(self().uncommitted_products, {}));
}

void wait_group_products(u32 pending) {
  meet_all("wgmma.wait_group");
  auto& sets = self().products;
  if (sets.size() <= pending) return;
  const size_t done = sets.size() - pending;
  for (size_t i = 0; i < done; ++i) {
    for (const GroupProduct& product : sets[i]) multiply(product);
  }
  sets.erase(sets.begin(), sets.begin() + long(done));
  self().began_products = false;
}

}  // namespace emulator
