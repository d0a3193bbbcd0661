// The C++ layer of the API throws; the verbs hand errors on as values.
#pragma once

#include "compiler/result.hpp"
#include "runtime/splitkv.hpp"

namespace splitkv::tool {

// What `body` gives, or the library's failure as an Error.
template <class Body>
auto guarded(const Body& body) -> Result<decltype(body())> {
  try {
    return body();
  } catch (const Failure& failure) {
    return Error{Status(failure.status()), failure.what()};
  }
}

}  // namespace splitkv::tool
