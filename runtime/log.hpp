// Lines to the caller's log callback. Without a callback the library is silent.
#pragma once

#include <string>

#include "runtime/options.hpp"

namespace splitkv {

class Log {
 public:
  explicit Log(const RuntimeOptions& options) : call_(options.log), user_(options.log_user) {}

  void info(const std::string& line) const { write(SPLITKV_LOG_INFO, line); }
  void debug(const std::string& line) const { write(SPLITKV_LOG_DEBUG, line); }
  void warning(const std::string& line) const { write(SPLITKV_LOG_WARNING, line); }
  void error(const std::string& line) const { write(SPLITKV_LOG_ERROR, line); }

 private:
  void write(splitkv_log_level level, const std::string& line) const {
    if (call_ != nullptr) call_(user_, level, line.c_str());
  }

  void (*call_)(void*, splitkv_log_level, const char*);
  void* user_;
};

}  // namespace splitkv
