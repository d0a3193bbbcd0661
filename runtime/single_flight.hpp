// A map from keys to values that are costly to make: at most one making a key is in flight.
#pragma once

#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "compiler/result.hpp"

namespace splitkv {

template <class Value>
class SingleFlight {
 public:
  struct Found {
    Value value;
    bool made;  // by this very call; false: it was there, or another thread was making it
  };

  // The value of `key`, made by make() -> Result<Value> where there is none yet. Callers that come
  // while it is being made wait and share the outcome. A failure is reported to all of them and
  // forgotten, so that the next call tries again.
  template <class Make>
  Result<Found> get(const std::string& key, const Make& make) {
    std::unique_lock lock(mutex_);
    const auto [position, fresh] = flights_.try_emplace(key, nullptr);
    if (!fresh) {
      const std::shared_ptr<Flight> flight = position->second;
      landed_.wait(lock, [&] { return flight->outcome.has_value(); });
      if (!*flight->outcome) return flight->outcome->error();
      return Found{**flight->outcome, false};
    }
    const auto flight = position->second = std::make_shared<Flight>();
    lock.unlock();
    Result<Value> outcome = made(make);
    lock.lock();
    flight->outcome = outcome;
    if (!outcome) flights_.erase(key);
    landed_.notify_all();
    if (!outcome) return outcome.error();
    return Found{*std::move(outcome), true};
  }

  // It is there, or being made.
  bool has(const std::string& key) {
    const std::lock_guard lock(mutex_);
    return flights_.contains(key);
  }

 private:
  struct Flight {
    std::optional<Result<Value>> outcome;
  };

  // Waiters must hear of an exception too: it becomes the error that everyone gets.
  template <class Make>
  static Result<Value> made(const Make& make) {
    try {
      return make();
    } catch (const std::bad_alloc&) {
      return Error{Status::out_of_memory, "host memory is used up"};
    } catch (const std::exception& exception) {
      return Error{Status::internal, exception.what()};
    }
  }

  std::mutex mutex_;
  std::condition_variable landed_;
  std::unordered_map<std::string, std::shared_ptr<Flight>> flights_;
};

}  // namespace splitkv
