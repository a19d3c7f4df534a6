#include <fmt/format.h>

#include "ballast/codec.h"
#include "ballast/pack.h"
#include "bindings/python/arrays.h"
#include "bindings/python/bindings.h"

namespace ballast::python {
namespace {

/// The layers of keys and of values, and the arrays that they are in.
struct Layers {
  std::vector<Array> held;
  std::vector<MutableHeadsView> keys, values;

  std::vector<HeadsView> read_keys() const { return {keys.begin(), keys.end()}; }
  std::vector<HeadsView> read_values() const { return {values.begin(), values.end()}; }
};

/// Of an array of layers, or a sequence of arrays (tokens, heads, dim).
std::vector<MutableHeadsView> side_views(py::handle side, std::size_t heads, std::size_t dim,
                                         const char* name, std::vector<Array>& held) {
  if (!py::isinstance<py::list>(side) && !py::isinstance<py::tuple>(side)) {
    return layer_views(held.emplace_back(view_array(side, name)), 0, 0, heads, dim, name);
  }
  std::vector<MutableHeadsView> out;
  for (const py::handle layer : side) {
    const Array& array = held.emplace_back(view_array(layer, name));
    const HeadsView view = heads_view(array, heads, dim, name);
    out.push_back(
        {array.data, view.type, view.tokens, heads, dim, view.token_stride, view.head_stride});
  }
  return out;
}

Layers layers_of(const CacheShape& shape, py::handle kv, bool written) {
  Layers out;
  if (py::isinstance<py::list>(kv) || py::isinstance<py::tuple>(kv)) {
    const auto pair = py::reinterpret_borrow<py::sequence>(kv);
    if (pair.size() != 2) {
      throw py::value_error(fmt::format("kv: {} parts; expected keys and values", pair.size()));
    }
    out.keys = side_views(pair[0], shape.kv_heads, shape.key_dim, "keys", out.held);
    out.values = side_views(pair[1], shape.kv_heads, shape.value_dim, "values", out.held);
  } else {
    const Array& array = out.held.emplace_back(view_array(kv, "kv"));
    if (array.dims < 4 || array.size(0) != 2) {
      throw py::value_error(
          fmt::format("kv: shape {}; expected (2, layers, tokens, heads, dim), keys before values",
                      array.shape_text()));
    }
    out.keys = layer_views(array, 1, 0, shape.kv_heads, shape.key_dim, "kv");
    out.values = layer_views(array, 1, 1, shape.kv_heads, shape.value_dim, "kv");
  }
  for (const Array& array : out.held) {
    if (written && !array.writable) throw py::value_error("kv: an array is read-only");
  }
  return out;
}

/// Bytes of an object with Python's buffer protocol.
std::span<std::byte> bytes_of(const py::buffer_info& info, const char* name) {
  py::ssize_t dense = info.itemsize;
  for (py::ssize_t i = info.ndim - 1; i >= 0; --i) {
    if (info.shape[i] > 1 && info.strides[i] != dense) {
      throw py::value_error(fmt::format("{}: its bytes are not contiguous", name));
    }
    dense *= info.shape[i];
  }
  return {static_cast<std::byte*>(info.ptr), static_cast<std::size_t>(info.size * info.itemsize)};
}

Codec codec_of(CacheShape shape, std::string_view preset, std::string_view model,
               const std::string& basis) {
  if (basis.empty()) return Codec(std::move(shape), preset, model);
  auto loaded = std::make_shared<const PackBasis>(PackBasis::load(basis));
  return Codec(std::move(shape), preset, model, std::move(loaded));
}

py::bytes encode(const Codec& self, py::handle kv, std::int64_t position) {
  const Layers layers = layers_of(self.shape(), kv, false);
  const std::size_t tokens = layers.keys.empty() ? 0 : layers.keys[0].tokens;
  std::vector<std::byte> out(self.bound(tokens));
  const std::size_t size = unlocked(
      [&] { return self.encode(layers.read_keys(), layers.read_values(), out, position); });
  return py::bytes(reinterpret_cast<const char*>(out.data()), size);
}

std::size_t encode_into(const Codec& self, py::handle kv, const py::buffer& out,
                        std::int64_t position) {
  const Layers layers = layers_of(self.shape(), kv, false);
  const py::buffer_info info = out.request(true);
  const std::span<std::byte> bytes = bytes_of(info, "out");
  return unlocked(
      [&] { return self.encode(layers.read_keys(), layers.read_values(), bytes, position); });
}

void decode(const Codec& self, const py::buffer& chunk, py::handle kv) {
  const Layers layers = layers_of(self.shape(), kv, true);
  const py::buffer_info info = chunk.request();
  const std::span<const std::byte> bytes = bytes_of(info, "chunk");
  unlocked([&] { self.decode(bytes, layers.keys, layers.values); });
}

py::dict inspect(const py::buffer& chunk) {
  using py::literals::operator""_a;
  const py::buffer_info buffer = chunk.request();
  const ChunkInfo info = Codec::inspect(bytes_of(buffer, "chunk"));
  return py::dict("model"_a = info.model, "layers"_a = info.layers, "kv_heads"_a = info.kv_heads,
                  "key_dim"_a = info.key_dim, "value_dim"_a = info.value_dim,
                  "tokens"_a = info.tokens, "position"_a = info.position, "preset"_a = info.preset,
                  "bytes"_a = info.bytes);
}

}  // namespace

void add_codec(py::module_& m) {
  using py::literals::operator""_a;
  py::class_<Codec>(m, "Codec",
                    "Chunks of a cache as bytes, for servers that keep caches elsewhere.\n\n"
                    "shape: of the cache, or of a rank's part of its heads: a Shape, whose "
                    "rotary_frequencies say\n"
                    "how keys turn; preset: 'fast-4', 'fast-3' or 'fast-2', keys in 4 bits and "
                    "values in 4, 3 or\n"
                    "2; or 'pack-16' or 'pack-32', packed with a basis; model: a name; chunks of "
                    "another are\n"
                    "refused; basis: the file that `ballast calibrate` made of the model.\n\n"
                    "kv: an array (2, layers, tokens, heads, dim), keys before values, whose last "
                    "two dimensions\n"
                    "may be one; or keys and values as two arrays (layers, tokens, heads, dim), or "
                    "as two lists of\n"
                    "arrays (tokens, heads, dim). Arrays are read and written in place.")
      .def(py::init(&codec_of), "shape"_a, "preset"_a = "fast-4", "model"_a = "", "basis"_a = "")
      .def_property_readonly("shape", &Codec::shape)
      .def_property_readonly("preset", &Codec::preset)
      .def("bound", &Codec::bound, "tokens"_a,
           "The most bytes that a chunk of so many tokens can take.")
      .def("encode", &encode, "kv"_a, "position"_a = -1,
           "The chunk as bytes. position: of the first token in its text, -1 if not known.\n\n"
           "Raises ArgumentError on arrays that do not fit, or elements that are not finite.")
      .def(
          "encode_into", &encode_into, "kv"_a, "out"_a, "position"_a = -1,
          "Writes the chunk to a buffer of bound(tokens) bytes or more; returns the chunk's bytes.")
      .def("decode", &decode, "chunk"_a, "kv"_a,
           "Writes the rows of a chunk, behind which a buffer may hold other bytes.\n\n"
           "Raises FileError for one that is damaged, cut, or of another model, shape, preset or\n"
           "number of tokens.")
      .def_static("inspect", &inspect, "chunk"_a,
                  "What the head of a chunk says, as a dict. Raises FileError as decode().");
}

}  // namespace ballast::python
