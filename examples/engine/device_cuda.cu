// The device interface on a GPU: cuBLAS for the products, a small kernel for each other step. They
// are written to be read; attention, which is SplitKV's, is where the time goes with long rows.
#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <stdexcept>

#include "device.hpp"

namespace engine {
namespace {

void check(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  throw std::runtime_error(std::string(call) + ": " + cudaGetErrorString(status));
}

void check(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw std::runtime_error(std::string(call) + ": " + cublasGetStatusString(status));
}

constexpr int kThreads = 256;

__device__ float to_float(float value) { return value; }
__device__ float to_float(__nv_bfloat16 value) { return __bfloat162float(value); }
__device__ void store(float* to, float value) { *to = value; }
__device__ void store(__nv_bfloat16* to, float value) { *to = __float2bfloat16_rn(value); }

// A block a row in gather, rms_norm, rotate, silu and argmax.
template <class T>
__global__ void gather_rows(T* out, const T* table, const int32_t* indices, int64_t width) {
  const T* from = table + int64_t(indices[blockIdx.x]) * width;
  T* to = out + int64_t(blockIdx.x) * width;
  for (int64_t i = threadIdx.x; i < width; i += blockDim.x) to[i] = from[i];
}

template <class T>
__global__ void rms_norm_rows(T* out, const T* in, const T* weight, int64_t width, float eps) {
  __shared__ float sums[kThreads];
  const T* from = in + int64_t(blockIdx.x) * width;
  T* to = out + int64_t(blockIdx.x) * width;
  float sum = 0;
  for (int64_t i = threadIdx.x; i < width; i += kThreads)
    sum += to_float(from[i]) * to_float(from[i]);
  sums[threadIdx.x] = sum;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (int(threadIdx.x) < half) sums[threadIdx.x] += sums[threadIdx.x + half];
  }
  __syncthreads();
  const float factor = rsqrtf(sums[0] / float(width) + eps);
  for (int64_t i = threadIdx.x; i < width; i += kThreads) {
    store(to + i, to_float(weight[i]) * (to_float(from[i]) * factor));
  }
}

template <class T>
__global__ void rotate_rows(Rotation r) {
  const int64_t row = blockIdx.x, half = r.dim / 2;
  T* heads = static_cast<T*>(r.rows_of_heads) + row * r.row_stride;
  const int64_t angles = int64_t(r.positions[row]) * half;
  for (int64_t pair = threadIdx.x; pair < r.heads * half; pair += blockDim.x) {
    const int64_t i = pair % half;
    T* first = heads + pair / half * r.dim + i;
    const float cosine = r.cosines[angles + i], sine = r.sines[angles + i];
    const float a = to_float(first[0]), b = to_float(first[half]);
    store(first, a * cosine - b * sine);
    store(first + half, b * cosine + a * sine);
  }
}

template <class T>
__global__ void silu_multiply_rows(T* out, const T* in, int64_t width) {
  const T* gate = in + int64_t(blockIdx.x) * 2 * width;
  T* to = out + int64_t(blockIdx.x) * width;
  for (int64_t i = threadIdx.x; i < width; i += blockDim.x) {
    const float x = to_float(gate[i]);
    store(to + i, x / (1 + expf(-x)) * to_float(gate[i + width]));
  }
}

__global__ void argmax_rows(int32_t* out, const float* rows, int64_t width) {
  __shared__ float values[kThreads];
  __shared__ int32_t places[kThreads];
  const float* row = rows + int64_t(blockIdx.x) * width;
  float best = -INFINITY;
  int32_t place = 0;
  for (int64_t i = threadIdx.x; i < width; i += kThreads) {
    if (row[i] > best) best = row[i], place = int32_t(i);
  }
  values[threadIdx.x] = best;
  places[threadIdx.x] = place;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (int(threadIdx.x) >= half) continue;
    const float other = values[threadIdx.x + half];
    const int32_t other_place = places[threadIdx.x + half];
    const bool is_first = other == values[threadIdx.x] && other_place < places[threadIdx.x];
    if (other > values[threadIdx.x] || is_first) {
      values[threadIdx.x] = other;
      places[threadIdx.x] = other_place;
    }
  }
  if (threadIdx.x == 0) out[blockIdx.x] = places[0];
}

__global__ void read_all(const uint4* data, int64_t count, uint32_t* sink) {
  uint32_t mixed = 0;
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
#pragma unroll 4
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
    const uint4 four = __ldg(data + i);
    mixed ^= four.x ^ four.y ^ four.z ^ four.w;
  }
  if (mixed == 0x9e3779b9u) *sink = mixed;  // so that nothing is left out
}

class CudaGraph : public Graph {
 public:
  CudaGraph(cudaGraph_t graph, cudaStream_t stream) : stream_(stream) {
    const cudaError_t status = cudaGraphInstantiate(&graph_, graph, 0);
    cudaGraphDestroy(graph);
    check(status, "cudaGraphInstantiate");
  }
  ~CudaGraph() override { cudaGraphExecDestroy(graph_); }
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;
  void launch() override { check(cudaGraphLaunch(graph_, stream_), "cudaGraphLaunch"); }

 private:
  cudaGraphExec_t graph_ = nullptr;
  cudaStream_t stream_;
};

// T: the type of activations and weights.
template <class T>
class Cuda : public Device {
 public:
  explicit Cuda(int ordinal) : ordinal_(ordinal) {
    check(cudaSetDevice(ordinal), "cudaSetDevice");
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    check(cublasCreate(&cublas_), "cublasCreate");
    check(cublasSetStream(cublas_, stream_), "cublasSetStream");
    // Of the stream's own, so that graphs of two streams may run at once; 32 MiB is what cuBLAS
    // asks for on Hopper.
    constexpr size_t kWorkspace = 32u << 20;
    workspace_ = allocate(kWorkspace);
    check(cublasSetWorkspace(cublas_, workspace_.get(), kWorkspace), "cublasSetWorkspace");
    sink_ = allocate(4);
    check(cudaDeviceGetAttribute(&multiprocessors_, cudaDevAttrMultiProcessorCount, ordinal),
          "cudaDeviceGetAttribute");
  }
  ~Cuda() override {
    cudaStreamSynchronize(stream_);
    for (const cudaEvent_t event : events_) cudaEventDestroy(event);
    cublasDestroy(cublas_);
    cudaStreamDestroy(stream_);
  }
  Cuda(const Cuda&) = delete;
  Cuda& operator=(const Cuda&) = delete;

  std::string target() const override { return "cuda:" + std::to_string(ordinal_); }
  void* stream() const override { return stream_; }
  Dtype dtype() const override { return sizeof(T) == 4 ? Dtype::fp32 : Dtype::bf16; }
  ThreadPool* threads() const override { return nullptr; }

  Memory allocate(size_t bytes) override {
    void* data = nullptr;
    check(cudaMalloc(&data, bytes > 0 ? bytes : 1), "cudaMalloc");
    Memory memory(data, cudaFree);
    check(cudaMemsetAsync(data, 0, bytes, stream_), "cudaMemsetAsync");
    wait();
    return memory;
  }
  Memory allocate_staging(size_t bytes) override {
    void* data = nullptr;
    check(cudaMallocHost(&data, bytes > 0 ? bytes : 1), "cudaMallocHost");
    return Memory(data, cudaFreeHost);
  }
  void upload(void* to, const void* from, size_t bytes) override {
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream_), "cudaMemcpyAsync");
  }
  void download(void* to, const void* from, size_t bytes) override {
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_), "cudaMemcpyAsync");
    wait();
  }
  void wait() override { check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }

  void gather(void* out, const void* table, const int32_t* indices, int64_t rows,
              int64_t width) override {
    gather_rows<<<grid(rows), kThreads, 0, stream_>>>(static_cast<T*>(out),
                                                      static_cast<const T*>(table), indices, width);
    check(cudaGetLastError(), "gather");
  }
  void rms_norm(void* out, const void* in, const void* weight, int64_t rows, int64_t width,
                float eps) override {
    rms_norm_rows<<<grid(rows), kThreads, 0, stream_>>>(
        static_cast<T*>(out), static_cast<const T*>(in), static_cast<const T*>(weight), width, eps);
    check(cudaGetLastError(), "rms_norm");
  }
  void rotate(const Rotation& rotation) override {
    rotate_rows<T><<<grid(rotation.rows), kThreads, 0, stream_>>>(rotation);
    check(cudaGetLastError(), "rotate");
  }
  void silu_multiply(void* out, const void* in, int64_t rows, int64_t width) override {
    silu_multiply_rows<<<grid(rows), kThreads, 0, stream_>>>(static_cast<T*>(out),
                                                             static_cast<const T*>(in), width);
    check(cudaGetLastError(), "silu_multiply");
  }
  void argmax(int32_t* out, const float* rows_of_floats, int64_t rows, int64_t width) override {
    argmax_rows<<<grid(rows), kThreads, 0, stream_>>>(out, rows_of_floats, width);
    check(cudaGetLastError(), "argmax");
  }

  // cuBLAS counts columns first: what it sees is out^T[n, rows] = weight[n, k] * in^T[k, rows].
  void multiply(const Product& p) override {
    const cudaDataType type = sizeof(T) == 4 ? CUDA_R_32F : CUDA_R_16BF;
    const float alpha = 1, beta = p.add ? 1 : 0;
    check(cublasGemmEx(cublas_, CUBLAS_OP_T, CUBLAS_OP_N, int(p.n), int(p.rows), int(p.k), &alpha,
                       p.weight, type, int(p.k), p.in, type, int(p.k), &beta, p.out,
                       p.is_logits ? CUDA_R_32F : type, int(p.n), CUBLAS_COMPUTE_32F,
                       CUBLAS_GEMM_DEFAULT),
          "cublasGemmEx");
  }

  bool has_graphs() const override { return true; }
  std::unique_ptr<Graph> capture(const std::function<void()>& work) override {
    check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal),
          "cudaStreamBeginCapture");
    cudaGraph_t graph = nullptr;
    is_capturing_ = true;
    try {
      work();
    } catch (...) {  // the capture is ended, then the failure goes on
      is_capturing_ = false;
      cudaStreamEndCapture(stream_, &graph);
      if (graph != nullptr) cudaGraphDestroy(graph);
      throw;
    }
    is_capturing_ = false;
    check(cudaStreamEndCapture(stream_, &graph), "cudaStreamEndCapture");
    return std::make_unique<CudaGraph>(graph, stream_);
  }

  void mark(size_t moment) override {
    while (events_.size() <= moment) {
      events_.push_back(nullptr);
      check(cudaEventCreate(&events_.back()), "cudaEventCreate");
    }
    // In a graph: recorded anew by every launch, and still to be asked for its time.
    check(
        cudaEventRecordWithFlags(events_[moment], stream_,
                                 is_capturing_ ? cudaEventRecordExternal : cudaEventRecordDefault),
        "cudaEventRecordWithFlags");
  }
  double ms_between(size_t begin, size_t end) override {
    float ms = 0;
    check(cudaEventElapsedTime(&ms, events_.at(begin), events_.at(end)), "cudaEventElapsedTime");
    return double(ms);
  }

  void read(const void* data, size_t bytes) override {
    read_all<<<unsigned(multiprocessors_ * 8), kThreads, 0, stream_>>>(
        static_cast<const uint4*>(data), int64_t(bytes / sizeof(uint4)),
        static_cast<uint32_t*>(sink_.get()));
    check(cudaGetLastError(), "read");
  }

 private:
  static unsigned grid(int64_t rows) { return unsigned(rows); }

  int ordinal_, multiprocessors_ = 0;
  cudaStream_t stream_ = nullptr;
  cublasHandle_t cublas_ = nullptr;
  Memory workspace_, sink_;
  std::vector<cudaEvent_t> events_;
  bool is_capturing_ = false;
};

}  // namespace

bool built_with_cuda() { return true; }

std::unique_ptr<Device> open_cuda(int ordinal, Dtype dtype) {
  int devices = 0;
  const cudaError_t status = cudaGetDeviceCount(&devices);
  if (status != cudaSuccess || ordinal >= devices) {
    throw std::runtime_error("--device cuda:" + std::to_string(ordinal) + ": there are " +
                             std::to_string(devices) + " GPUs here (" + cudaGetErrorString(status) +
                             "); cpu would fit");
  }
  if (dtype == Dtype::fp32) return std::make_unique<Cuda<float>>(ordinal);
  return std::make_unique<Cuda<__nv_bfloat16>>(ordinal);
}

}  // namespace engine
