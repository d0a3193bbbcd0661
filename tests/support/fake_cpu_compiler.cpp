#include "tests/support/fake_cpu_compiler.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <string>

#include "runtime/cpu/orc_interface.h"

#define EXPORTED extern "C" __attribute__((visibility("default")))

struct splitkv_orc_object {
  std::string bytes;
};
struct splitkv_orc_code {
  int unused = 0;
};

namespace {

struct Orders {
  std::mutex mutex;
  std::condition_variable changed;
  bool held = false;
  bool refused = false;
  std::string log;
  int begun = 0;
};

Orders& orders() {
  static Orders orders;
  return orders;
}

std::atomic<int> codes{0};

void nothing(const void*, long) {}

size_t write_text(const std::string& text, char* out, size_t capacity) {
  if (capacity > 0) std::snprintf(out, capacity, "%s", text.c_str());
  return text.size() + 1;
}

}  // namespace

namespace fake_cpu_compiler {

void reset() {
  const std::lock_guard lock(orders().mutex);
  orders().held = orders().refused = false;
  orders().begun = 0;
  orders().changed.notify_all();
}

void hold() {
  const std::lock_guard lock(orders().mutex);
  orders().held = true;
}

void let_go() {
  const std::lock_guard lock(orders().mutex);
  orders().held = false;
  orders().changed.notify_all();
}

void refuse(const char* log) {
  const std::lock_guard lock(orders().mutex);
  orders().refused = log != nullptr;
  orders().log = log != nullptr ? log : "";
}

int begun() {
  const std::lock_guard lock(orders().mutex);
  return orders().begun;
}

bool wait_until_begun(int count) {
  std::unique_lock lock(orders().mutex);
  return orders().changed.wait_for(lock, std::chrono::seconds(10),
                                   [&] { return orders().begun >= count; });
}

int live_codes() { return codes; }

}  // namespace fake_cpu_compiler

EXPORTED int splitkv_orc_version() { return SPLITKV_ORC_VERSION; }

EXPORTED size_t splitkv_orc_describe(const char* cpu, char* text, size_t capacity) {
  return write_text(std::string("0.0.0\n") + cpu + "\n+none\nno passes\n", text, capacity);
}

EXPORTED int splitkv_orc_compile(const splitkv_orc_request* request, splitkv_orc_object** object,
                                 char* message, size_t capacity) {
  std::unique_lock lock(orders().mutex);
  ++orders().begun;
  orders().changed.notify_all();
  orders().changed.wait(lock, [] { return !orders().held; });
  if (orders().refused) {
    write_text(orders().log, message, capacity);
    return 1;
  }
  *object = new splitkv_orc_object{std::string(request->ir, request->ir_bytes)};
  return 0;
}

EXPORTED int splitkv_orc_load(const splitkv_orc_load_request* request, splitkv_orc_result* result,
                              char*, size_t) {
  ++codes;
  result->code = new splitkv_orc_code;
  result->split = reinterpret_cast<void*>(&nothing);
  result->reduce = request->reduce_entry[0] != '\0' ? reinterpret_cast<void*>(&nothing) : nullptr;
  result->code_bytes = request->object_bytes;
  return 0;
}

EXPORTED const char* splitkv_orc_object_bytes(const splitkv_orc_object* object, size_t* bytes) {
  *bytes = object->bytes.size();
  return object->bytes.data();
}

EXPORTED void splitkv_orc_release_object(splitkv_orc_object* object) { delete object; }

EXPORTED void splitkv_orc_release(splitkv_orc_code* code) {
  --codes;
  delete code;
}
