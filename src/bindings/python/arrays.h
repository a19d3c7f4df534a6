// Arrays of NumPy, PyTorch and others that speak DLPack, as they lie in memory.
#pragma once

#include <pybind11/pybind11.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "ballast/heads.h"
#include "ballast/matrix.h"
#include "ballast/storage.h"

namespace ballast::python {

namespace py = pybind11;

/// A view of an array while its owner lives. Nothing is copied or converted.
struct Array {
  enum class Kind : std::uint8_t { f32, f16, bf16, i32, other };
  static constexpr int kMostDims = 5;

  py::object owner;  ///< the array, or the DLPack capsule
  char* data = nullptr;
  Kind kind = Kind::other;
  bool writable = true;
  int dims = 0;
  std::array<std::int64_t, kMostDims> shape{};
  std::array<std::int64_t, kMostDims> strides{};  ///< in bytes
  std::string type;                               ///< as messages call it, where `kind` is other

  std::size_t size(int dim) const { return static_cast<std::size_t>(shape[dim]); }
  /// "(10, 8, 128)"
  std::string shape_text() const;
};

/// Throws TypeError on what is no array in the memory of the processor. `name` begins messages.
Array view_array(py::handle object, const char* name);

/// [tokens, heads, dim] with contiguous vectors. Throws ValueError or TypeError that says what is
/// wanted.
HeadsView heads_view(const Array& array, std::size_t heads, std::size_t dim, const char* name);
MutableHeadsView output_view(const Array& array, std::size_t heads, std::size_t dim,
                             const char* name);
/// Element `index` of the first dimension of an array of [..., layers, tokens, heads, dim] or
/// [..., layers, tokens, heads · dim], where `skip` dimensions (0 or 1) come before the layers: a
/// view for each layer.
std::vector<MutableHeadsView> layer_views(const Array& array, int skip, std::size_t index,
                                          std::size_t heads, std::size_t dim, const char* name);
/// A float32 matrix with contiguous rows.
ConstMatrix matrix_view(const Array& array, const char* name);
MutableMatrix output_matrix(const Array& array, const char* name);
/// Rows in float32, float16 or bfloat16.
RowsView rows_view(const Array& array, const char* name);
/// A contiguous vector of float32 or int32. Throws unless it has `count` elements.
const float* floats(const Array& array, std::size_t count, const char* name);
const std::int32_t* integers(const Array& array, std::size_t count, const char* name);

/// A function of NumPy. Neither it nor the arrays depend on how a version of NumPy lays its objects
/// out, which pybind11's own arrays do (NumPy 2 needs pybind11 2.12).
py::object numpy(const char* function);

/// A new array of NumPy, row-major.
template <typename T>
struct NewArray {
  static_assert(std::is_same_v<T, float> || std::is_same_v<T, std::int32_t>);
  py::object object;
  T* data = nullptr;

  explicit NewArray(std::initializer_list<std::size_t> shape) {
    py::tuple sizes(shape.size());
    std::size_t i = 0;
    for (const std::size_t n : shape) sizes[i++] = n;
    object = numpy("empty")(sizes, std::is_same_v<T, float> ? "float32" : "int32");
    data = reinterpret_cast<T*>(view_array(object, "array").data);
  }
  /// A copy of numbers.
  explicit NewArray(std::span<const T> from) : NewArray({from.size()}) {
    std::ranges::copy(from, data);
  }
};

/// A new array of the library and element type of `like`.
py::object new_array(py::handle like, std::initializer_list<py::ssize_t> shape, const char* name);

}  // namespace ballast::python
