// The extension module ballast._ballast: what python/ballast is built on.
#include <pybind11/pybind11.h>

#include "ballast/error.h"
#include "ballast/threads.h"
#include "ballast/version.h"
#include "bindings/python/arrays.h"
#include "bindings/python/bindings.h"

namespace py = pybind11;

PYBIND11_MODULE(_ballast, m) {
  m.doc() = "The part of Ballast in C++; use it through the package ballast.";
  m.attr("__version__") = BALLAST_VERSION;
  ballast::python::NewArray<float>({0});  // imports NumPy
  // Error becomes the exception that ballast/errors.py has for its code.
  py::register_exception_translator([](std::exception_ptr pointer) {
    try {
      if (pointer) std::rethrow_exception(pointer);
    } catch (const ballast::Error& error) {
      const py::object raised =
          py::module_::import("ballast.errors")
              .attr("error_of")(std::string(to_string(error.code())), std::string(error.what()));
      PyErr_SetObject(py::type::handle_of(raised).ptr(), raised.ptr());
    }
  });
  ballast::python::add_cache(m);
  ballast::python::add_codec(m);
  ballast::python::add_methods(m);
  ballast::python::add_model(m);
  ballast::python::add_library(m);
#ifdef BALLAST_LAB
  ballast::python::add_evaluate(m);
#endif
  m.def(
      "set_threads", [](int count) { ballast::set_threads(count); }, py::arg("count"),
      "Threads of all that is given none of its own; 0: one for each core.");
  m.def(
      "threads", [] { return ballast::threads(); },
      "Threads of all that is given none of its own.");
}
