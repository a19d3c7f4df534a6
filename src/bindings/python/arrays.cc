#include "bindings/python/arrays.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

namespace ballast::python {
namespace {

// The structs of DLPack (github.com/dmlc/dlpack, version 0.8), as capsules named "dltensor" hold
// them.
struct DlDevice {
  std::int32_t type;  // 1: the processor's memory
  std::int32_t id;
};
struct DlDataType {
  std::uint8_t code;  // 0: int, 1: unsigned, 2: float, 4: bfloat
  std::uint8_t bits;
  std::uint16_t lanes;
};
struct DlTensor {
  void* data;
  DlDevice device;
  std::int32_t dims;
  DlDataType type;
  std::int64_t* shape;
  std::int64_t* strides;  // in elements; null: row-major
  std::uint64_t byte_offset;
};

constexpr const char* kElements = "float32, float16 or bfloat16 (in NumPy uint16 holds its bits)";

[[noreturn]] void type_error(const std::string& text) { throw py::type_error(text); }
[[noreturn]] void value_error(const std::string& text) { throw py::value_error(text); }

void set_dims(Array& out, std::int64_t dims, const char* name) {
  if (dims > Array::kMostDims) {
    value_error(fmt::format("{}: an array of {} dimensions; at most {} are used", name, dims,
                            Array::kMostDims));
  }
  out.dims = static_cast<int>(dims);
}

/// numpy.ndarray. NumPy is imported with the module: two threads that made their first array at
/// once would wait for each other, one for the import's lock, one for the interpreter's.
bool is_numpy(py::handle object) {
  static PyObject* const type = numpy("ndarray").release().ptr();
  return PyObject_TypeCheck(object.ptr(), reinterpret_cast<PyTypeObject*>(type)) != 0;
}

Array::Kind kind_of(std::string_view format) {
  if (format.starts_with('<') || format.starts_with('=')) format.remove_prefix(1);
  return format == "f"   ? Array::Kind::f32
         : format == "e" ? Array::Kind::f16
         : format == "H" ? Array::Kind::bf16
         : format == "i" ? Array::Kind::i32
                         : Array::Kind::other;
}

Array view_numpy(py::handle object, const char* name) {
  Array out;
  out.owner = py::reinterpret_borrow<py::object>(object);
  Py_buffer buffer;
  if (PyObject_GetBuffer(object.ptr(), &buffer, PyBUF_STRIDES | PyBUF_FORMAT) != 0) {
    PyErr_Clear();  // elements that the protocol has no letter for
    out.type = py::str(object.attr("dtype"));
    if (out.type != "bfloat16") return out;
    return view_numpy(object.attr("view")("uint16"), name);
  }
  struct Release {
    Py_buffer& buffer;
    ~Release() { PyBuffer_Release(&buffer); }
  } const release{buffer};
  out.data = static_cast<char*>(buffer.buf);
  out.writable = buffer.readonly == 0;
  set_dims(out, buffer.ndim, name);
  for (int i = 0; i < out.dims; ++i) {
    out.shape[i] = buffer.shape[i];
    out.strides[i] = buffer.strides[i];
  }
  out.kind = kind_of(buffer.format == nullptr ? "B" : buffer.format);
  if (out.kind == Array::Kind::other) out.type = py::str(object.attr("dtype"));
  return out;
}

/// The capsule of an object that speaks DLPack. torch's own function is quicker than its method.
py::object dlpack_of(py::handle object, const char* name) {
  static PyObject* tensor_type = nullptr;
  static PyObject* to_dlpack = nullptr;
  if (tensor_type == nullptr) {
    if (PyObject* torch = PyDict_GetItemString(PyImport_GetModuleDict(), "torch")) {
      tensor_type = py::object(py::handle(torch).attr("Tensor")).release().ptr();
      to_dlpack =
          py::object(py::module_::import("torch.utils.dlpack").attr("to_dlpack")).release().ptr();
    }
  }
  if (tensor_type != nullptr && PyObject_IsInstance(object.ptr(), tensor_type) == 1) {
    if (py::handle(object).attr("requires_grad").cast<bool>()) {
      value_error(
          fmt::format("{}: the tensor requires a gradient, which no cache passes on; use "
                      "torch.no_grad() or pass .detach()",
                      name));
    }
    if (py::handle(object).attr("device").attr("type").cast<std::string_view>() != "cpu") {
      value_error(fmt::format("{}: a tensor on {}; pass one in the processor's memory: .cpu()",
                              name, py::str(object.attr("device")).cast<std::string>()));
    }
    return py::handle(to_dlpack)(object);
  }
  if (!py::hasattr(object, "__dlpack__")) {
    type_error(
        fmt::format("{}: a {}; expected an array of NumPy, a tensor of PyTorch, or another "
                    "with __dlpack__",
                    name, Py_TYPE(object.ptr())->tp_name));
  }
  if (py::hasattr(object, "__dlpack_device__")) {
    const auto device = object.attr("__dlpack_device__")().cast<py::tuple>();
    if (py::int_(device[0]).cast<int>() != 1) {
      value_error(fmt::format("{}: an array on device {}; pass one in the processor's memory", name,
                              py::int_(device[0]).cast<int>()));
    }
  }
  return object.attr("__dlpack__")();
}

Array view_dlpack(py::handle object, const char* name) {
  Array out;
  out.owner = dlpack_of(object, name);
  // The capsule keeps its name, so that its own destructor gives the memory back.
  const auto* tensor =
      static_cast<const DlTensor*>(PyCapsule_GetPointer(out.owner.ptr(), "dltensor"));
  if (tensor == nullptr) throw py::error_already_set();
  if (tensor->device.type != 1) {
    value_error(fmt::format("{}: an array on device {}; pass one in the processor's memory", name,
                            tensor->device.type));
  }
  out.data = static_cast<char*>(tensor->data) + tensor->byte_offset;
  const DlDataType type = tensor->type;
  if (type.lanes == 1 && type.code == 2 && type.bits == 32) {
    out.kind = Array::Kind::f32;
  } else if (type.lanes == 1 && type.code == 2 && type.bits == 16) {
    out.kind = Array::Kind::f16;
  } else if (type.lanes == 1 && type.code == 4 && type.bits == 16) {
    out.kind = Array::Kind::bf16;
  } else if (type.lanes == 1 && type.code == 0 && type.bits == 32) {
    out.kind = Array::Kind::i32;
  } else {
    const char* codes[] = {"int", "uint", "float", "handle", "bfloat", "complex", "bool"};
    out.type = fmt::format("{}{}", type.code < 7 ? codes[type.code] : "type", type.bits);
  }
  set_dims(out, tensor->dims, name);
  std::int64_t dense = type.bits / 8;
  for (int i = out.dims - 1; i >= 0; --i) {
    out.shape[i] = tensor->shape[i];
    out.strides[i] = tensor->strides == nullptr ? dense : tensor->strides[i] * (type.bits / 8);
    dense *= out.shape[i];
  }
  return out;
}

const char* kind_name(const Array& array) {
  switch (array.kind) {
    case Array::Kind::f32:
      return "float32";
    case Array::Kind::f16:
      return "float16";
    case Array::Kind::bf16:
      return "bfloat16";
    case Array::Kind::i32:
      return "int32";
    case Array::Kind::other:
      return array.type.c_str();
  }
  return "";
}

ElementType element_of(const Array& array, const char* name) {
  switch (array.kind) {
    case Array::Kind::f32:
      return ElementType::f32;
    case Array::Kind::f16:
      return ElementType::f16;
    case Array::Kind::bf16:
      return ElementType::bf16;
    default:
      type_error(
          fmt::format("{}: elements are {}; expected {}", name, kind_name(array), kElements));
  }
}

void expect_kind(const Array& array, Array::Kind kind, const char* wanted, const char* name) {
  if (array.kind == kind) return;
  type_error(fmt::format("{}: elements are {}; expected {}", name, kind_name(array), wanted));
}

/// The stride of dimension i in elements; a dimension of one element may have any.
std::size_t stride(const Array& array, int i, std::size_t bytes, const char* name) {
  if (array.shape[i] <= 1) return 0;
  const std::int64_t step = array.strides[i];
  if (step < 0 || step % static_cast<std::int64_t>(bytes) != 0) {
    value_error(
        fmt::format("{}: dimension {} has a stride of {} bytes; expected a multiple of {} "
                    "from 0: pass a copy",
                    name, i, step, bytes));
  }
  return static_cast<std::size_t>(step) / bytes;
}

void expect_contiguous(const Array& array, std::size_t bytes, const char* name) {
  const int last = array.dims - 1;
  if (array.shape[last] > 1 && array.strides[last] != static_cast<std::int64_t>(bytes)) {
    value_error(
        fmt::format("{}: elements of the last dimension lie {} bytes apart; vectors must be "
                    "contiguous: pass a copy such as numpy.ascontiguousarray(…) or "
                    ".contiguous()",
                    name, array.strides[last]));
  }
  if (reinterpret_cast<std::uintptr_t>(array.data) % bytes != 0) {
    value_error(fmt::format("{}: elements are not aligned to {} bytes: pass a copy", name, bytes));
  }
}

void expect_writable(const Array& array, const char* name) {
  if (!array.writable) value_error(fmt::format("{}: the array is read-only", name));
}

template <typename View, typename Data>
View view_heads(const Array& a, std::size_t heads, std::size_t dim, const char* name) {
  const ElementType type = element_of(a, name);
  if (a.dims != 3 || (a.size(0) != 0 && (a.size(1) != heads || a.size(2) != dim))) {
    value_error(
        fmt::format("{}: shape {}; expected (tokens, {}, {}): tokens, heads, dimension of a "
                    "head",
                    name, a.shape_text(), heads, dim));
  }
  const std::size_t bytes = element_bytes(type);
  expect_contiguous(a, bytes, name);
  return {static_cast<Data>(a.data), type, a.size(0), heads, dim, stride(a, 0, bytes, name),
          stride(a, 1, bytes, name)};
}

template <typename T>
MatrixView<T> view_matrix(const Array& a, const char* name) {
  expect_kind(a, Array::Kind::f32, "float32", name);
  if (a.dims != 2) {
    value_error(fmt::format("{}: shape {}; expected two dimensions", name, a.shape_text()));
  }
  expect_contiguous(a, sizeof(float), name);
  return {reinterpret_cast<T*>(a.data), a.size(0), a.size(1),
          std::max(stride(a, 0, sizeof(float), name), a.size(1))};
}

template <typename T>
const T* view_vector(const Array& a, std::size_t count, const char* name) {
  if (a.dims != 1 || a.size(0) != count) {
    value_error(fmt::format("{}: shape {}; expected ({},)", name, a.shape_text(), count));
  }
  expect_contiguous(a, sizeof(T), name);
  return reinterpret_cast<const T*>(a.data);
}

}  // namespace

std::string Array::shape_text() const {
  std::string out = "(";
  for (int i = 0; i < dims; ++i) out += fmt::format("{}{}", i == 0 ? "" : ", ", shape[i]);
  return out + (dims == 1 ? ",)" : ")");
}

py::object numpy(const char* function) { return py::module_::import("numpy").attr(function); }

Array view_array(py::handle object, const char* name) {
  return is_numpy(object) ? view_numpy(object, name) : view_dlpack(object, name);
}

HeadsView heads_view(const Array& array, std::size_t heads, std::size_t dim, const char* name) {
  return view_heads<HeadsView, const void*>(array, heads, dim, name);
}

MutableHeadsView output_view(const Array& array, std::size_t heads, std::size_t dim,
                             const char* name) {
  expect_writable(array, name);
  return view_heads<MutableHeadsView, void*>(array, heads, dim, name);
}

std::vector<MutableHeadsView> layer_views(const Array& array, int skip, std::size_t index,
                                          std::size_t heads, std::size_t dim, const char* name) {
  const ElementType type = element_of(array, name);
  const std::size_t bytes = element_bytes(type);
  const int tokens = skip + 1, last = array.dims - 1;
  const bool apart = array.dims == skip + 4;
  if (!(apart && array.size(last - 1) == heads && array.size(last) == dim) &&
      !(array.dims == skip + 3 && array.size(last) == heads * dim)) {
    value_error(
        fmt::format("{}: shape {}; expected ({}layers, tokens, {}, {}), or the last two as "
                    "one",
                    name, array.shape_text(), skip == 0 ? "" : "2, ", heads, dim));
  }
  expect_contiguous(array, bytes, name);
  const std::size_t layer_stride = stride(array, skip, bytes, name);
  const std::size_t first = skip == 0 ? 0 : index * stride(array, 0, bytes, name);
  std::vector<MutableHeadsView> out;
  for (std::size_t l = 0; l < array.size(skip); ++l) {
    out.push_back({array.data + (first + l * layer_stride) * bytes, type, array.size(tokens), heads,
                   dim, stride(array, tokens, bytes, name),
                   apart ? stride(array, last - 1, bytes, name) : dim});
  }
  return out;
}

ConstMatrix matrix_view(const Array& array, const char* name) {
  return view_matrix<const float>(array, name);
}

MutableMatrix output_matrix(const Array& array, const char* name) {
  expect_writable(array, name);
  return view_matrix<float>(array, name);
}

RowsView rows_view(const Array& a, const char* name) {
  const ElementType type = element_of(a, name);
  if (a.dims != 2) {
    value_error(fmt::format("{}: shape {}; expected (entries, dimension)", name, a.shape_text()));
  }
  const std::size_t bytes = element_bytes(type);
  expect_contiguous(a, bytes, name);
  // Kernels read 16-bit rows in steps of 16 bytes.
  if (bytes == 2 && a.size(1) % 8 != 0) {
    value_error(
        fmt::format("{}: rows of {} elements in 16 bits; expected a multiple of 8, or "
                    "float32",
                    name, a.size(1)));
  }
  RowsView view;
  view.type = type == ElementType::f32   ? StorageType::f32
              : type == ElementType::f16 ? StorageType::f16
                                         : StorageType::bf16;
  view.rows = a.size(0);
  view.dim = a.size(1);
  view.stride = std::max(stride(a, 0, bytes, name), a.size(1)) * bytes;
  view.data = reinterpret_cast<const std::byte*>(a.data);
  return view;
}

const float* floats(const Array& array, std::size_t count, const char* name) {
  expect_kind(array, Array::Kind::f32, "float32", name);
  return view_vector<float>(array, count, name);
}

const std::int32_t* integers(const Array& array, std::size_t count, const char* name) {
  expect_kind(array, Array::Kind::i32, "int32", name);
  return view_vector<std::int32_t>(array, count, name);
}

py::object new_array(py::handle like, std::initializer_list<py::ssize_t> shape, const char* name) {
  if (!is_numpy(like) && !py::hasattr(like, "new_empty")) {
    type_error(fmt::format("{}: pass out=, an array of yours to write to; a {} makes none", name,
                           Py_TYPE(like.ptr())->tp_name));
  }
  py::tuple sizes(shape.size());
  std::size_t i = 0;
  for (py::ssize_t n : shape) sizes[i++] = n;
  return is_numpy(like) ? numpy("empty")(sizes, like.attr("dtype"))
                        : py::object(like.attr("new_empty")(sizes));
}

}  // namespace ballast::python
