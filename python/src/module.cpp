#include <nanobind/nanobind.h>

#include "python/src/handles.hpp"

NB_MODULE(_core, module) {
  // Handles may be alive when the interpreter ends; that is no fault to be printed.
  nanobind::set_leak_warnings(false);
  module.doc() = "SplitKV's C API for the classes of the package splitkv.";
  splitkv::python::add_runtime(module);
  splitkv::python::add_kernel(module);
  splitkv::python::add_merger(module);
  splitkv::python::add_appender(module);
}
