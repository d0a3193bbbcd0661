// Memory of the stand-in for libcuda, and tensor maps of it.
#include <cstring>

#include "tests/emulator/device_memory.hpp"
#include "tests/emulator/driver.hpp"
#include "tests/emulator/tensor_map.hpp"

using namespace emulator;

namespace {

void* pointer_of(CUdeviceptr address) { return reinterpret_cast<void*>(address); }

// Whether a call may touch this memory.
CUresult may_touch(CUdeviceptr address, size_t bytes) {
  if (const CUresult none = needs_context()) return none;
  return bytes == 0 || is_device_memory(pointer_of(address), bytes) ? kSuccess : kInvalidValue;
}

// What a real driver refuses of a tensor, in a box of it and in the strides.
bool is_encodable(const TensorMapImage& map) {
  bool fits = map.data % 16 == 0;
  for (u32 d = 0; d < map.dimensions; ++d) {
    fits = fits && map.ends[d] > 0 && map.box[d] > 0 && map.box[d] <= 256;
    if (d > 0) fits = fits && map.strides[d - 1] % 16 == 0 && map.strides[d - 1] < 1ull << 40;
  }
  const u32 row_bytes = map.box[0] * map.element_bytes;
  return fits && row_bytes % 16 == 0 && (map.swizzle_bytes == 0 || row_bytes <= map.swizzle_bytes);
}

}  // namespace

EMULATED CUresult cuMemAlloc_v2(CUdeviceptr* address, size_t bytes) {
  if (const CUresult none = needs_context()) return none;
  if (bytes == 0) return kInvalidValue;
  void* data = allocate_device(bytes);
  *address = reinterpret_cast<CUdeviceptr>(data);
  return data != nullptr ? kSuccess : kOutOfMemory;
}

EMULATED CUresult cuMemFree_v2(CUdeviceptr address) {
  return address == 0 || free_device(pointer_of(address)) ? kSuccess : kInvalidValue;
}

EMULATED CUresult cuMemHostAlloc(void** data, size_t bytes, unsigned) {
  if (const CUresult none = needs_context()) return none;
  *data = allocate_device(bytes);
  return *data != nullptr ? kSuccess : kOutOfMemory;
}

EMULATED CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* address, void* data, unsigned) {
  *address = reinterpret_cast<CUdeviceptr>(data);
  return is_device_memory(data, 1) ? kSuccess : kInvalidValue;
}

EMULATED CUresult cuMemFreeHost(void* data) { return free_device(data) ? kSuccess : kInvalidValue; }

EMULATED CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
  *free = *total = size_t(1) << 30;
  return needs_context();
}

EMULATED CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t bytes) {
  if (const CUresult refused = may_touch(to, bytes)) return refused;
  std::memcpy(pointer_of(to), from, bytes);
  return kSuccess;
}

EMULATED CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t bytes) {
  if (const CUresult refused = may_touch(from, bytes)) return refused;
  std::memcpy(to, pointer_of(from), bytes);
  return kSuccess;
}

EMULATED CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t bytes) {
  if (const CUresult refused = may_touch(to, bytes)) return refused;
  std::memset(pointer_of(to), value, bytes);
  return kSuccess;
}

EMULATED CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes,
                                  CUstream stream) {
  return submit(stream, [=] { return cuMemsetD8_v2(to, value, bytes); });
}

EMULATED CUresult cuTensorMapEncodeTiled(void* encoded, int type, u32 dimensions, void* data,
                                         const u64* ends, const u64* strides, const u32* box,
                                         const u32* every, int interleave, int swizzle, int,
                                         int fill) {
  if (dimensions < 1 || dimensions > 5 || swizzle > kSwizzle128Bytes) return kInvalidValue;
  if (type > kTensorUint16 || interleave != kInterleaveNone || fill != kFillNone)
    return not_supported("this kind of tensor map");
  TensorMapImage map{};
  map.magic = TensorMapImage::kMagic;
  map.data = reinterpret_cast<u64>(data);
  map.dimensions = u16(dimensions);
  map.element_bytes = type == kTensorUint8 ? 1 : 2;
  map.swizzle_bytes = swizzle == 0 ? 0 : 16u << swizzle;
  for (u32 d = 0; d < dimensions; ++d) {
    if (every[d] != 1) return not_supported("a tensor map that leaves elements out");
    if (ends[d] >= u64(1) << 32) return kInvalidValue;
    map.ends[d] = u32(ends[d]);
    map.box[d] = box[d];
    if (d > 0) map.strides[d - 1] = strides[d - 1];
  }
  if (!is_encodable(map)) return kInvalidValue;
  std::memset(encoded, 0, 128);
  std::memcpy(encoded, &map, sizeof(map));
  return kSuccess;
}
