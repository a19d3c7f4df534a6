// The parts of the Python module.
#pragma once

#include <pybind11/pybind11.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "ballast/cache.h"
#include "base/fail.h"

namespace ballast {
class Model;
struct TextModel;
}  // namespace ballast

namespace ballast::python {

namespace py = pybind11;

void add_cache(py::module_& m);
void add_codec(py::module_& m);
void add_library(py::module_& m);
void add_methods(py::module_& m);
void add_model(py::module_& m);
void add_evaluate(py::module_& m);  ///< of lab/, where it is built

/// Lets one call at a time use an object: another thread of Python gets an error, not a race.
class InUse {
 public:
  InUse(std::atomic<bool>& flag, const char* what) : flag_(flag) {
    require(!flag_.exchange(true),
            "this {} is in use by another call; give each thread its own, such as a clone", what);
  }
  ~InUse() { flag_ = false; }
  InUse(const InUse&) = delete;
  InUse& operator=(const InUse&) = delete;

 private:
  std::atomic<bool>& flag_;
};

/// Runs `body` without the interpreter's lock.
template <typename Body>
auto unlocked(Body&& body) {
  const py::gil_scoped_release release;
  return body();
}

/// The options of a cache from the keywords of Python. `bytes`: None, text as MemorySize reads it,
/// a float from 0 to 1 (a share of the exact bf16 cache), or an int.
struct CacheKeywords {
  std::string method;
  py::object bytes;
  std::string protocol, positions, key_type, value_type;
  std::uint64_t seed = 0;
  std::size_t expected_tokens = 0;
  int threads = 0;
  bool check_finite = true;

  CacheOptions parse(const Model* model = nullptr) const;
};

/// Of a _Model.
std::shared_ptr<const TextModel> text_model(const py::object& model);
/// Keys of a dict, by part, and their total.
py::dict bytes_dict(const CacheBytes& bytes);
/// Three arrays: positions, weights, normaliser weights.
py::tuple kept_arrays(const std::vector<KeptEntry>& kept);
py::object shape_object(const CacheShape& shape);

}  // namespace ballast::python
