// Experiments: what `ballast eval` runs, in this process, so that methods in Python take part.
#include <pybind11/stl.h>

#include <chrono>
#include <mutex>
#include <optional>

#include "bindings/python/bindings.h"
#include "cli/in_process.h"

namespace ballast::python {
namespace {

/// Ends an experiment after Python has raised.
struct Stopped {};

/// Lets the interpreter handle signals between two steps, and tells `progress`, if not None.
class Steps {
 public:
  explicit Steps(py::object progress) : progress_(std::move(progress)) {}

  /// Called without the interpreter's lock, from any thread. Throws Stopped.
  void advance(double done) {
    const std::lock_guard lock(mutex_);
    if (raised_) throw Stopped{};
    const auto now = std::chrono::steady_clock::now();
    if (now < next_ && done < 1) return;
    next_ = now + std::chrono::milliseconds(50);
    const py::gil_scoped_acquire interpreter;
    try {
      if (PyErr_CheckSignals() != 0) throw py::error_already_set();
      if (!progress_.is_none()) progress_(done);
    } catch (py::error_already_set& error) {
      raised_.emplace(std::move(error));
      throw Stopped{};
    }
  }
  /// Under the interpreter's lock.
  [[noreturn]] void raise() { throw py::error_already_set(std::move(*raised_)); }

 private:
  py::object progress_;
  std::optional<py::error_already_set> raised_;
  std::chrono::steady_clock::time_point next_;
  std::mutex mutex_;
};

std::string evaluate(const std::vector<std::string>& words, py::object progress) {
  Steps steps(std::move(progress));
  try {
    return unlocked(
        [&] { return cli::run_eval(words, [&](double done) { steps.advance(done); }); });
  } catch (const Stopped&) {
    steps.raise();
  }
}

}  // namespace

void add_evaluate(py::module_& m) {
  m.def("_evaluate", &evaluate, py::arg("words"), py::arg("progress"));
}

}  // namespace ballast::python
