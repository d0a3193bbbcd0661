// Where the tensors of a process lie, and how partials travel between processes.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace context_parallel {

// Memory of this process or of one GPU, with the stream on which everything there happens.
class Place {
 public:
  virtual ~Place() = default;
  virtual void* stream() const = 0;  // nullptr on the CPU
  // Contents are not set. Ends with the last copy of the pointer.
  virtual std::shared_ptr<void> allocate(size_t bytes) = 0;
  // From and to memory of the process; in the stream's order, and done when they return.
  virtual void upload(void* to, const void* from, size_t bytes) = 0;
  virtual void download(void* to, const void* from, size_t bytes) = 0;
  virtual void copy(void* to, const void* from, size_t bytes) = 0;  // both in this place
  virtual void wait() = 0;                                          // for all that was begun
};

// What was handed to the transport so far.
struct Traffic {
  uint64_t messages_sent = 0, bytes_sent = 0, bytes_received = 0;
};

// Moves floats that lie in a Place. Every call is in the order of the place's stream.
class Link {
 public:
  Link(int rank, int size) : rank_(rank), size_(size) {}
  virtual ~Link() = default;
  int rank() const { return rank_; }
  int size() const { return size_; }
  const Traffic& traffic() const { return traffic_; }

  // all: [size, count]; all processes call it.
  virtual void all_gather(const float* own, float* all, size_t count) = 0;
  virtual void send(const float* data, size_t count, int to) = 0;
  virtual void receive(float* data, size_t count, int from) = 0;

 protected:
  void count_sent(size_t bytes) {
    ++traffic_.messages_sent;
    traffic_.bytes_sent += bytes;
  }
  void count_received(size_t bytes) { traffic_.bytes_received += bytes; }

 private:
  int rank_, size_;
  Traffic traffic_;
};

struct Transport {
  std::unique_ptr<Place> place;
  std::unique_ptr<Link> link;  // ends before its place
};

// The CPU's memory, and MPI. Throws std::runtime_error.
Transport open_mpi(MPI_Comm processes);

// GPU `device`, and NCCL; MPI only tells the processes how to meet. Throws std::runtime_error, in a
// build without NCCL and CUDA's runtime always.
Transport open_nccl(MPI_Comm processes, int device);

}  // namespace context_parallel
