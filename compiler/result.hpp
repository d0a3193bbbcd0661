// Expected failures are values: every fallible function returns Result<T>.
#pragma once

#include <cassert>
#include <string>
#include <utility>
#include <variant>

namespace splitkv {

// What kind of failure an Error is. The C API's status codes map one to one onto these.
enum class Status {
  ok,
  invalid_argument,  // a text does not parse, a pointer is missing, a size is wrong
  unsupported,       // a rule of the verifier refuses the request
  not_prepared,      // the call would have to compile or load, and may not here
  out_of_memory,
  compile_failed,   // NVRTC or LLVM refused generated source: log and source are in the message
  library_missing,  // libcuda, libnvrtc or the CPU compiler library cannot be opened
  device_error,     // the driver returned an error
  internal,
};

// One refusal of the verifier's table: which rule, which field, its value, the limit it breaks and
// what would fit instead. All in the words of the text form.
struct Refusal {
  std::string rule;
  std::string field;
  std::string value;
  std::string limit;
  std::string fits;

  bool operator==(const Refusal&) const = default;
};

struct Error {
  Status status = Status::internal;
  std::string message;

  bool operator==(const Error&) const = default;
};

// "head_dim_in_range: dim=264 is above 256; dim=256 would fit"
std::string to_string(const Refusal& refusal);

inline Error to_error(const Refusal& refusal) { return {Status::unsupported, to_string(refusal)}; }

inline Error invalid_argument(std::string message) {
  return {Status::invalid_argument, std::move(message)};
}

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& value() & { return *checked(); }
  const T& value() const& { return *checked(); }
  T&& value() && { return std::move(*checked()); }
  T& operator*() & { return *checked(); }
  const T& operator*() const& { return *checked(); }
  T&& operator*() && { return std::move(*checked()); }
  T* operator->() { return checked(); }
  const T* operator->() const { return checked(); }

  const Error& error() const {
    assert(!ok());
    return std::get<1>(state_);
  }

 private:
  T* checked() {
    assert(ok());
    return &std::get<0>(state_);
  }
  const T* checked() const {
    assert(ok());
    return &std::get<0>(state_);
  }
  std::variant<T, Error> state_;
};

// A Result without a value.
struct Unit {
  bool operator==(const Unit&) const = default;
};
using Outcome = Result<Unit>;

}  // namespace splitkv
