#include <stdexcept>

#include "place.hpp"

#ifdef CONTEXT_PARALLEL_NCCL
#include <cuda_runtime.h>
#include <nccl.h>
#endif

namespace context_parallel {

#ifdef CONTEXT_PARALLEL_NCCL
namespace {

void check(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  throw std::runtime_error(std::string(call) + ": " + cudaGetErrorString(status));
}

void check(ncclResult_t status, const char* call) {
  if (status == ncclSuccess) return;
  throw std::runtime_error(std::string(call) + ": " + ncclGetErrorString(status));
}

// The current device of the thread stays what it is set to here; SplitKV works in the same primary
// context, and takes the runtime's stream for the driver's.
class GpuMemory : public Place {
 public:
  explicit GpuMemory(int device) {
    check(cudaSetDevice(device), "cudaSetDevice");
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  }
  ~GpuMemory() override { cudaStreamDestroy(stream_); }

  void* stream() const override { return stream_; }
  cudaStream_t cuda_stream() const { return stream_; }
  std::shared_ptr<void> allocate(size_t bytes) override {
    void* data = nullptr;
    check(cudaMalloc(&data, bytes > 0 ? bytes : 1), "cudaMalloc");
    return std::shared_ptr<void>(data, cudaFree);
  }
  void upload(void* to, const void* from, size_t bytes) override {
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream_), "cudaMemcpyAsync");
    wait();
  }
  void download(void* to, const void* from, size_t bytes) override {
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_), "cudaMemcpyAsync");
    wait();
  }
  void copy(void* to, const void* from, size_t bytes) override {
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_), "cudaMemcpyAsync");
  }
  void wait() override { check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }

 private:
  cudaStream_t stream_ = nullptr;
};

// Calls return when the transfer is in the stream, so that a join behind it waits for it there.
class NcclLink : public Link {
 public:
  NcclLink(MPI_Comm processes, int rank, int size, cudaStream_t stream)
      : Link(rank, size), stream_(stream) {
    ncclUniqueId meeting{};
    if (rank == 0) check(ncclGetUniqueId(&meeting), "ncclGetUniqueId");
    MPI_Bcast(&meeting, sizeof(meeting), MPI_BYTE, 0, processes);
    check(ncclCommInitRank(&ring_, size, meeting, rank), "ncclCommInitRank");
  }
  ~NcclLink() override { ncclCommDestroy(ring_); }

  void all_gather(const float* own, float* all, size_t count) override {
    check(ncclAllGather(own, all, count, ncclFloat, ring_, stream_), "ncclAllGather");
    count_sent(count * sizeof(float));
    count_received(size_t(size() - 1) * count * sizeof(float));
  }
  void send(const float* data, size_t count, int to) override {
    check(ncclSend(data, count, ncclFloat, to, ring_, stream_), "ncclSend");
    count_sent(count * sizeof(float));
  }
  void receive(float* data, size_t count, int from) override {
    check(ncclRecv(data, count, ncclFloat, from, ring_, stream_), "ncclRecv");
    count_received(count * sizeof(float));
  }

 private:
  cudaStream_t stream_;
  ncclComm_t ring_ = nullptr;
};

}  // namespace

Transport open_nccl(MPI_Comm processes, int device) {
  int rank = 0, size = 0;
  MPI_Comm_rank(processes, &rank);
  MPI_Comm_size(processes, &size);
  auto memory = std::make_unique<GpuMemory>(device);
  auto link = std::make_unique<NcclLink>(processes, rank, size, memory->cuda_stream());
  return {std::move(memory), std::move(link)};
}
#else
Transport open_nccl(MPI_Comm, int device) {
  throw std::runtime_error("--target cuda:" + std::to_string(device) +
                           " needs a build that found NCCL and CUDA's runtime (nccl.h, "
                           "cuda_runtime.h, libnccl, libcudart); cpu would fit");
}
#endif

}  // namespace context_parallel
