#include "python/src/errors.hpp"

#include <nanobind/stl/string.h>

namespace nb = nanobind;

namespace splitkv::python {

void raise(splitkv_status status, const std::string& text) {
  const nb::object error = nb::module_::import_("splitkv._errors")
                               .attr("make_error")(int(status), splitkv_status_name(status), text);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  throw nb::python_error();
}

void refuse(const std::string& text) { raise(SPLITKV_INVALID_ARGUMENT, text); }

}  // namespace splitkv::python
