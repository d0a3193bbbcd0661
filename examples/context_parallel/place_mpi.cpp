#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>
#include <stdexcept>

#include "place.hpp"

namespace context_parallel {
namespace {

class ProcessMemory : public Place {
 public:
  void* stream() const override { return nullptr; }
  std::shared_ptr<void> allocate(size_t bytes) override {
    constexpr size_t kLine = 64;
    void* data = std::aligned_alloc(kLine, (bytes / kLine + 1) * kLine);
    if (data == nullptr) throw std::bad_alloc();
    return std::shared_ptr<void>(data, std::free);
  }
  void upload(void* to, const void* from, size_t bytes) override { std::memcpy(to, from, bytes); }
  void download(void* to, const void* from, size_t bytes) override { std::memcpy(to, from, bytes); }
  void copy(void* to, const void* from, size_t bytes) override { std::memcpy(to, from, bytes); }
  void wait() override {}
};

int as_count(size_t count) {
  if (count > size_t(std::numeric_limits<int>::max())) {
    throw std::runtime_error("a partial of " + std::to_string(count) +
                             " floats is more than one MPI message holds; fewer batch rows, heads "
                             "or query tokens would fit");
  }
  return int(count);
}

// MPI's own error handler ends all processes where a call fails.
class MpiLink : public Link {
 public:
  MpiLink(MPI_Comm processes, int rank, int size) : Link(rank, size), processes_(processes) {}

  void all_gather(const float* own, float* all, size_t count) override {
    MPI_Allgather(own, as_count(count), MPI_FLOAT, all, as_count(count), MPI_FLOAT, processes_);
    count_sent(count * sizeof(float));
    count_received(size_t(size() - 1) * count * sizeof(float));
  }
  void send(const float* data, size_t count, int to) override {
    MPI_Send(data, as_count(count), MPI_FLOAT, to, 0, processes_);
    count_sent(count * sizeof(float));
  }
  void receive(float* data, size_t count, int from) override {
    MPI_Recv(data, as_count(count), MPI_FLOAT, from, 0, processes_, MPI_STATUS_IGNORE);
    count_received(count * sizeof(float));
  }

 private:
  MPI_Comm processes_;
};

}  // namespace

Transport open_mpi(MPI_Comm processes) {
  int rank = 0, size = 0;
  MPI_Comm_rank(processes, &rank);
  MPI_Comm_size(processes, &size);
  return {std::make_unique<ProcessMemory>(), std::make_unique<MpiLink>(processes, rank, size)};
}

}  // namespace context_parallel
