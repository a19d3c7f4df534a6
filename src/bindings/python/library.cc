#include "library/library.h"

#include <pybind11/functional.h>
#include <pybind11/stl.h>

#include <optional>

#include "bindings/python/bindings.h"
#include "library/library_json.h"
#include "library/reading.h"

namespace ballast::python {
namespace {

/// What it returns is JSON, as the program writes it.
struct PyLibrary {
  PyLibrary(std::shared_ptr<const TextModel> text, const std::string& folder)
      : library(folder), model(std::move(text)) {}

  Library library;
  std::shared_ptr<const TextModel> model;
  std::optional<LibraryAsker> asker;
  std::atomic<bool> used = false;
};

std::string add(PyLibrary& self, const std::vector<std::string>& paths, const std::string& cache,
                const std::string& pack, const std::function<bool(double)>& progress) {
  const InUse use(self.used, "library");
  AddingProgress told;
  told.tokens = [&](std::size_t done, std::size_t all, std::size_t) {
    return !progress || progress(static_cast<double>(done) / static_cast<double>(all));
  };
  const LibraryUpdate made = unlocked([&] {
    return add_documents(self.library, self.model, SectionStorage(self.model->model, cache, pack),
                         paths, told);
  });
  return to_text(Json{{"added", made.added},
                      {"changed", made.changed},
                      {"removed", made.removed},
                      {"left_out", made.left_out}});
}

std::string ask(PyLibrary& self, const std::string& question, std::size_t sections,
                std::size_t max_tokens, float temperature, std::uint64_t seed) {
  const InUse use(self.used, "library");
  AskOptions options;
  options.sections = sections;
  options.generate.max_tokens = max_tokens;
  options.generate.sampling.temperature = temperature;
  options.generate.sampling.seed = seed;
  return unlocked([&] {
    require_model(self.library, *self.library.content(), self.model->model);
    if (!self.asker) self.asker.emplace(self.library, self.model);
    return to_text(to_json(question, self.asker->ask(question, options), self.library));
  });
}

}  // namespace

void add_library(py::module_& m) {
  py::class_<PyLibrary>(m, "_Library")
      .def(py::init([](const py::object& model, const std::string& folder) {
        return std::make_unique<PyLibrary>(text_model(model), folder);
      }))
      .def("add", &add)
      .def("ask", &ask)
      .def("documents",
           [](PyLibrary& self) {
             return unlocked(
                 [&] { return to_text(to_json(*self.library.content(), self.library)); });
           })
      .def("remove", [](PyLibrary& self, const std::vector<std::string>& names) {
        unlocked([&] { self.library.remove_named(names); });
      });
}

}  // namespace ballast::python
