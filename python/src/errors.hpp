// What the library refuses becomes an exception of Python: splitkv.InvalidArgument and its kind.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <string>

#include "runtime/splitkv.h"

namespace splitkv::python {

// Throws the exception of `status`, made by splitkv/_errors.py. Needs the GIL.
[[noreturn]] void raise(splitkv_status status, const std::string& text);
[[noreturn]] void refuse(const std::string& text);  // of SPLITKV_INVALID_ARGUMENT

// Room for a message. Logs of compilers are long, other messages are a few lines.
class Message {
 public:
  static constexpr size_t kShort = 4096, kLong = size_t(1) << 18;

  explicit Message(size_t capacity) : text_(new char[capacity]) {
    message_.text = text_.get();
    message_.capacity = capacity;
    text_[0] = 0;
  }
  splitkv_message* get() { return &message_; }
  std::string text() const { return text_.get(); }

 private:
  std::unique_ptr<char[]> text_;
  splitkv_message message_ = SPLITKV_INIT(splitkv_message);
};

// call(message): for what takes microseconds; other threads of Python wait.
template <class Call>
void checked(const Call& call) {
  Message message(Message::kShort);
  const splitkv_status status = call(message.get());
  if (status != SPLITKV_OK) raise(status, message.text());
}

// The same while other threads of Python go on: whatever compiles, launches, computes or waits.
// `call` may touch nothing of Python.
template <class Call>
void checked_released(const Call& call, size_t capacity = Message::kShort) {
  Message message(capacity);
  splitkv_status status;
  {
    const nanobind::gil_scoped_release released;
    status = call(message.get());
  }
  if (status != SPLITKV_OK) raise(status, message.text());
}

}  // namespace splitkv::python
