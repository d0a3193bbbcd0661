// One append on the test's device: a cache full of bytes that mean nothing, new rows, where they
// go, and what every byte of the cache must be afterwards, from a reference of its own: codes of
// small floats by exhaustion, wider ones by arithmetic in double precision.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "compiler/problem.hpp"
#include "runtime/splitkv.hpp"
#include "tools/splitkv/device_memory.hpp"

namespace splitkv::testing_support {

struct AppendForm {
  std::string problem;
  std::string places = "slots";
  std::string type = "bf16";
  int64_t tokens = 0;
  int64_t blocks = 4;        // pages, or batch rows, in memory
  int64_t capacity = 24;     // tokens of a batch row
  bool interleaved = false;  // K and V in one allocation, block by block
  int64_t new_gap = 0;       // elements between new rows
  bool spaced = false;       // the cache's tokens lie twice as far apart as they need
  std::string device;        // empty: the tests' own
};

// Where a token goes; nowhere with a block of -1.
struct TokenPlace {
  int64_t block = -1, token = 0;
};
using TokenPlaces = std::vector<TokenPlace>;

// The bits of `value` in a cache's type; `scale`: null where it is not divided. A NaN gives
// kAnyNan.
inline constexpr uint32_t kAnyNan = 0xffffffff;
uint32_t reference_bits(DType type, float value, const float* scale);
// What a row's scale must be.
float reference_scale(DType type, const std::vector<float>& row);
// The number that stored bits are.
double reference_value(DType type, uint32_t bits);

class AppendCase {
 public:
  explicit AppendCase(const AppendForm& form);

  // New elements [tokens, kv_heads, dim]; normal numbers, some rows zero, some large. Tests change
  // them before they run; the appender's type rounds them.
  std::vector<float> k_new, v_new;
  // tensor: [1]; head: [kv_heads].
  std::vector<float> given_scales;

  // Tests fill in where tokens go; the rest is filled in here.
  splitkv_append_args args = sized<splitkv_append_args>();

  // A device copy that lives as long as this.
  template <class T>
  const T* place(const std::vector<T>& values) {
    return static_cast<const T*>(place_bytes(values.data(), values.size() * sizeof(T)));
  }

  // The failure of the call, if any. `go`: in place of the appender's own call.
  using Go = std::function<void(const splitkv_binding&, const splitkv_append_args&)>;
  std::string run(const Go& go = {});
  // What polling says afterwards.
  std::string poll();
  // Every byte of the cache and its scales is as expected. Once more with other places for more
  // runs. v empty: as K's.
  void expect_written(const TokenPlaces& k, const TokenPlaces& v = {});
  // The same as text: what differs, or nothing.
  std::string differences(const TokenPlaces& k, const TokenPlaces& v = {});

  const Problem& problem() const { return problem_; }
  const splitkv_tensors& tensors() const { return tensors_; }
  const splitkv_binding& binding() const { return binding_; }
  tool::DeviceMemory& memory() { return *memory_; }
  Runtime& runtime() { return runtime_; }
  const Appender& appender() const { return appender_; }

  // stored * scale of an element of K or V in what expect_written compared last.
  double read(bool of_v, const TokenPlace& at, int64_t head, int64_t element) const;
  uint32_t bits(bool of_v, const TokenPlace& at, int64_t head, int64_t element) const;
  float scale(bool of_v, const TokenPlace& at, int64_t head) const;

 private:
  struct Side;  // of K or V
  Side side(bool of_v) const;
  const void* place_bytes(const void* data, size_t bytes);
  void write_expected(const Side& side, const std::vector<float>& fresh, const TokenPlaces& places);
  std::string take_nans(int buffer, const std::vector<unsigned char>& found);
  std::vector<unsigned char> bring(const tool::Buffer& buffer) const;
  void place_new();

  AppendForm form_;
  Problem problem_;
  DType new_type_;
  Runtime runtime_;
  std::unique_ptr<tool::DeviceMemory> memory_;
  Appender appender_;
  splitkv_tensors tensors_ = sized<splitkv_tensors>();
  splitkv_binding binding_ = sized<splitkv_binding>();
  std::vector<tool::Buffer> placed_;
  // [0]: K, and V where it is interleaved; [1]: V.
  tool::Buffer cache_[2], scales_[2];
  std::vector<unsigned char> expected_[2], expected_scales_[2];
  struct NanElement {
    int buffer;
    size_t at;  // bytes
    DType type;
  };
  std::vector<NanElement> nans_;  // written by the run: any NaN fits
  size_t v_at_ = 0;               // bytes of V's start in cache_[0]
};

}  // namespace splitkv::testing_support
