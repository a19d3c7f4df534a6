// Experiments: what `ballast eval` runs, in this process, so that methods in Python take part.
#include <pybind11/stl.h>

#include <chrono>
#include <mutex>
#include <optional>

#include "base/output_file.h"
#include "bindings/python/bindings.h"
#include "experiments/experiment.h"
#include "formats/json_text.h"
#include "hub/choice.h"

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

/// The paths of models that are named by what is here.
void find_models(Parameters& parameters) {
  for (const Parameters::Entry& p : parameters.all()) {
    if (p.role == Parameters::Entry::Role::value) continue;
    std::string& path = *std::get<std::string*>(p.target);
    const bool needed = p.role == Parameters::Entry::Role::model;
    path = path.empty() && needed ? hub::only_model() : hub::resolve_model(path);
  }
}

/// `values`: an object of keywords as JSON. `json`: the file that the result also goes to; empty:
/// none. Returns the result as JSON.
std::string evaluate(const std::string& name, const std::string& values, const std::string& json,
                     py::object progress) {
  Steps steps(std::move(progress));
  const auto measure = [&] {
    Experiment::Call call = find_experiment(name).call();
    const Json given = parse_json_text<Json>(values, "the parameters");
    call.parameters.set(given);
    call.parameters.check();
    find_models(call.parameters);
    Work::Options options;
    options.command = command_of(name, call.parameters, given);
    options.quiet = true;
    options.advance = [&](double done) { steps.advance(done); };
    std::optional<OutputFile> file;
    if (!json.empty()) {
      options.log = json + ".progress";
      file.emplace(json);
    }
    Work work("eval " + name, std::move(options));
    const std::string text = to_text(run_experiment(call, work).to_json());
    if (file) {
      file->write(text);
      file->commit();
    }
    work.finish();
    return text;
  };
  try {
    return unlocked(measure);
  } catch (const Stopped&) {
    steps.raise();
  }
}

}  // namespace

void add_evaluate(py::module_& m) {
  m.def("_evaluate", &evaluate, py::arg("experiment"), py::arg("values"), py::arg("json"),
        py::arg("progress"));
}

}  // namespace ballast::python
