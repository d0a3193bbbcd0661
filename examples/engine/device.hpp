// What the engine needs of a device beside SplitKV: memory, the model's arithmetic between two
// attentions, graphs and times. One object is one stream of work: everything happens in the order
// of the calls, and on a GPU later than the call. Two objects of one GPU share its memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace engine {

class ThreadPool;

// Of activations, weights, K and V. Positions, tokens and logits are int32 and fp32 on all devices.
enum class Dtype { fp32, bf16 };
inline size_t size_of(Dtype dtype) { return dtype == Dtype::fp32 ? 4 : 2; }
inline const char* name_of(Dtype dtype) { return dtype == Dtype::fp32 ? "fp32" : "bf16"; }

// Elements of `dtype`, rounded to nearest even, as bytes; and back.
std::vector<std::byte> to_elements(Dtype dtype, const std::vector<float>& floats);
std::vector<float> from_elements(Dtype dtype, const std::vector<std::byte>& bytes);

using Memory = std::shared_ptr<void>;

// out[rows, n] = in[rows, k] * weight[n, k]^T, all dense.
struct Product {
  void* out = nullptr;
  const void* in = nullptr;
  const void* weight = nullptr;
  int64_t rows = 0, n = 0, k = 0;
  bool add = false;        // out += instead of out =
  bool is_logits = false;  // out is fp32 whatever the dtype
};

// Turns pairs (i, i + dim / 2) of the first `heads` heads of each row by the row's position.
struct Rotation {
  void* rows_of_heads = nullptr;
  const int32_t* positions = nullptr;  // [rows]
  const float* cosines = nullptr;      // [max_positions, dim / 2]; sines likewise
  const float* sines = nullptr;
  int64_t rows = 0, row_stride = 0, heads = 0, dim = 0;
};

// What was recorded of a stream's work, to be put on it again in one call.
class Graph {
 public:
  virtual ~Graph() = default;
  virtual void launch() = 0;
};

class Device {
 public:
  virtual ~Device() = default;

  virtual std::string target() const = 0;  // as SplitKV calls it: "cpu", "cuda:0"
  virtual void* stream() const = 0;        // what splitkv_run is given; nullptr on the CPU
  virtual Dtype dtype() const = 0;
  virtual ThreadPool* threads() const = 0;  // nullptr on a GPU

  virtual Memory allocate(size_t bytes) = 0;  // zeros
  // Memory of the process from which uploads need no waiting.
  virtual Memory allocate_staging(size_t bytes) = 0;
  // On the stream; `from` must stay as it is until wait().
  virtual void upload(void* to, const void* from, size_t bytes) = 0;
  virtual void download(void* to, const void* from, size_t bytes) = 0;  // waits
  virtual void wait() = 0;

  // out[i] = table[indices[i]], rows of `width` elements: embedding, and choosing rows.
  virtual void gather(void* out, const void* table, const int32_t* indices, int64_t rows,
                      int64_t width) = 0;
  virtual void rms_norm(void* out, const void* in, const void* weight, int64_t rows, int64_t width,
                        float eps) = 0;
  virtual void multiply(const Product& product) = 0;
  virtual void rotate(const Rotation& rotation) = 0;
  // out[rows, width] = silu(gate) * up of in[rows, gate | up].
  virtual void silu_multiply(void* out, const void* in, int64_t rows, int64_t width) = 0;
  // Of each row of fp32 the place of its largest number, the first of equal ones.
  virtual void argmax(int32_t* out, const float* rows_of_floats, int64_t rows, int64_t width) = 0;

  // Records what `work` puts on the stream instead of doing it; nullptr where there are no graphs.
  virtual bool has_graphs() const = 0;
  virtual std::unique_ptr<Graph> capture(const std::function<void()>& work) = 0;

  // A moment in the stream's order, inside of graphs too; after wait(), the time between two.
  virtual void mark(size_t moment) = 0;
  virtual double ms_between(size_t begin, size_t end) = 0;

  // Reads the bytes and does nothing else; for the time that no attention over them can beat.
  virtual void read(const void* data, size_t bytes) = 0;
};

std::unique_ptr<Device> open_cpu(ThreadPool& threads);

// Throws std::runtime_error, in a build without CUDA always.
std::unique_ptr<Device> open_cuda(int ordinal, Dtype dtype);
bool built_with_cuda();

}  // namespace engine
