#include <pybind11/stl.h>

#include <cmath>

#include "ballast/cache.h"
#include "ballast/scoring.h"
#include "bindings/options.h"
#include "bindings/python/arrays.h"
#include "bindings/python/bindings.h"

namespace ballast::python {
namespace {

std::string bytes_text(const py::object& bytes) {
  if (bytes.is_none()) return {};
  if (py::isinstance<py::str>(bytes)) return bytes.cast<std::string>();
  if (py::isinstance<py::bool_>(bytes)) throw py::type_error("bytes: a bool; expected a size");
  if (py::isinstance<py::int_>(bytes)) return fmt::format("{}B", bytes.cast<std::uint64_t>());
  if (py::isinstance<py::float_>(bytes)) {
    const double share = bytes.cast<double>();
    return share == 1.0 ? "100%" : fmt::format("{:.17g}", share);
  }
  throw py::type_error(fmt::format(
      "bytes: a {}; expected a share such as 1/8, a number of bytes as int, or text such "
      "as '256M' or '40K/token'",
      Py_TYPE(bytes.ptr())->tp_name));
}

struct PyCache {
  explicit PyCache(Cache made) : cache(std::move(made)) {}

  Cache cache;
  std::atomic<bool> used = false;

  std::size_t query_heads() const {
    return cache.shape().kv_heads * cache.shape().queries_per_kv_head;
  }
};

/// `body` on the cache, alone and without the interpreter's lock.
template <typename Body>
auto with(PyCache& self, Body&& body) {
  const InUse use(self.used, "cache");
  return unlocked([&] { return body(self.cache); });
}

py::object forward(PyCache& self, std::size_t layer, py::handle keys, py::handle values,
                   py::handle queries, py::object out) {
  const CacheShape& s = self.cache.shape();
  const std::size_t heads = self.query_heads();
  const Array k = view_array(keys, "keys"), v = view_array(values, "values");
  const HeadsView key_view = heads_view(k, s.kv_heads, s.key_dim, "keys");
  const HeadsView value_view = heads_view(v, s.kv_heads, s.value_dim, "values");
  Array q, o;
  HeadsView query_view;
  MutableHeadsView out_view;
  if (!queries.is_none()) {
    q = view_array(queries, "queries");
    query_view = heads_view(q, heads, s.key_dim, "queries");
    if (out.is_none()) {
      out = new_array(queries,
                      {static_cast<py::ssize_t>(query_view.tokens), static_cast<py::ssize_t>(heads),
                       static_cast<py::ssize_t>(s.value_dim)},
                      "queries");
    }
    o = view_array(out, "out");
    out_view = output_view(o, heads, s.value_dim, "out");
  } else if (!out.is_none()) {
    throw py::value_error("out is given without queries to answer");
  }
  with(self, [&](Cache& c) { c.forward(layer, key_view, value_view, query_view, out_view); });
  return out;
}

py::object replay(PyCache& self, std::size_t layer, py::handle keys, py::handle values,
                  py::handle queries, py::object weights) {
  const CacheShape& s = self.cache.shape();
  const std::size_t heads = self.query_heads();
  const Array k = view_array(keys, "keys"), v = view_array(values, "values"),
              q = view_array(queries, "queries");
  const HeadsView key_view = heads_view(k, s.kv_heads, s.key_dim, "keys");
  const HeadsView value_view = heads_view(v, s.kv_heads, s.value_dim, "values");
  const HeadsView query_view = heads_view(q, heads, s.key_dim, "queries");
  const std::size_t tokens = key_view.tokens;
  Array w;
  std::span<const float> query_weights;
  if (!weights.is_none()) {
    w = view_array(weights, "query_weights");
    query_weights = {floats(w, tokens, "query_weights"), tokens};
  }
  // The library takes whole float32 rows here.
  const auto row = [](const HeadsView& view, const char* name) -> ConstMatrix {
    if (view.type != ElementType::f32 || (view.heads > 1 && view.head_stride != view.dim)) {
      throw py::value_error(
          fmt::format("{}: a replay pass takes float32 with heads side by side", name));
    }
    return {static_cast<const float*>(view.data), view.tokens, view.heads * view.dim,
            std::max(view.token_stride, view.heads * view.dim)};
  };
  const ConstMatrix key_rows = row(key_view, "keys"), value_rows = row(value_view, "values"),
                    query_rows = row(query_view, "queries");
  py::object out = new_array(queries,
                             {static_cast<py::ssize_t>(tokens), static_cast<py::ssize_t>(heads),
                              static_cast<py::ssize_t>(s.value_dim)},
                             "queries");
  const Array o = view_array(out, "out");
  const MutableHeadsView answers = output_view(o, heads, s.value_dim, "out");
  const MutableMatrix out_rows{static_cast<float*>(answers.data), tokens, heads * s.value_dim};
  with(self, [&](Cache& c) {
    scoring_of(c).replay(layer, key_rows, value_rows, query_rows, query_weights, out_rows);
  });
  return out;
}

/// The parts of one head as float32 arrays: a list of tuples (keys, values, log_weights, positions,
/// first_position, role).
py::list segments(PyCache& self, std::size_t layer, std::size_t head) {
  static constexpr const char* kRoles[] = {"both", "numerator", "normaliser"};
  const InUse use(self.used, "cache");
  const auto decode = [](const RowsView& rows) {
    const NewArray<float> out({rows.rows, rows.dim});
    rows.decode(MutableMatrix{out.data, rows.rows, rows.dim});
    return out.object;
  };
  py::list out;
  for (const Segment& s : self.cache.segments(layer, head)) {
    const std::size_t n = s.keys.rows;
    py::object values = py::none(), weights = py::none(), positions = py::none();
    if (s.role != Role::normaliser) values = decode(s.values);
    if (s.log_weights != nullptr) weights = NewArray<float>(std::span(s.log_weights, n)).object;
    if (s.positions != nullptr) positions = NewArray<Position>(std::span(s.positions, n)).object;
    out.append(py::make_tuple(decode(s.keys), values, weights, positions, s.first_position,
                              kRoles[static_cast<int>(s.role)]));
  }
  return out;
}

/// Segments come as tuples, as segments() makes them; trailing parts may be missing.
py::object attention(py::handle queries, const py::iterable& parts, py::object positions,
                     std::optional<float> scale, float softcap, int sliding_window,
                     py::object out) {
  const Array q = view_array(queries, "queries");
  const ConstMatrix query_rows = matrix_view(q, "queries");
  std::vector<Array> held;
  std::vector<Segment> runs;
  std::size_t value_dim = 0;
  for (const py::handle part : parts) {
    const auto fields = py::reinterpret_steal<py::tuple>(PySequence_Tuple(part.ptr()));
    if (!fields) throw py::error_already_set();
    const std::string at = fmt::format("segment {}: ", runs.size());
    const auto given = [&](std::size_t i) {
      return i < fields.size() && !py::object(fields[i]).is_none();
    };
    const auto hold = [&](std::size_t i, const char* name) -> const Array& {
      return held.emplace_back(view_array(fields[i], (at + name).c_str()));
    };
    if (!given(0)) throw py::value_error(at + "expected (keys, values, …); keys are missing");
    Segment run;
    const std::string role = given(5) ? fields[5].cast<std::string>() : "both";
    if (role != "both" && role != "numerator" && role != "normaliser") {
      throw py::value_error(at + "role '" + role + "'; known: both, numerator, normaliser");
    }
    run.role = role == "both"        ? Role::both
               : role == "numerator" ? Role::numerator
                                     : Role::normaliser;
    run.keys = rows_view(hold(0, "keys"), (at + "keys").c_str());
    const std::size_t n = run.keys.rows;
    if (run.role != Role::normaliser) {
      if (!given(1)) throw py::value_error(at + "values are missing");
      run.values = rows_view(hold(1, "values"), (at + "values").c_str());
      value_dim = run.values.dim;
      if (run.values.rows != n) {
        throw py::value_error(fmt::format("{}{} keys and {} values", at, n, run.values.rows));
      }
    }
    if (given(2)) run.log_weights = floats(hold(2, "log_weights"), n, (at + "log_weights").c_str());
    if (given(3)) run.positions = integers(hold(3, "positions"), n, (at + "positions").c_str());
    if (given(4)) run.first_position = fields[4].cast<Position>();
    if (n > 0) runs.push_back(run);
  }
  Queries asked{query_rows, {}, {}};
  Array p;
  if (!positions.is_none()) {
    p = view_array(positions, "positions");
    asked.positions = {integers(p, query_rows.rows, "positions"), query_rows.rows};
  }
  if (out.is_none()) {
    out = new_array(
        queries, {static_cast<py::ssize_t>(query_rows.rows), static_cast<py::ssize_t>(value_dim)},
        "queries");
  }
  const Array o = view_array(out, "out");
  const MutableMatrix answers = output_matrix(o, "out");
  if (answers.rows != query_rows.rows || answers.cols != value_dim) {
    throw py::value_error(fmt::format("out: shape {}; expected ({}, {})", o.shape_text(),
                                      query_rows.rows, value_dim));
  }
  const float standard = 1.0f / std::sqrt(static_cast<float>(query_rows.cols));
  unlocked([&] {
    attend(asked, runs, {scale.value_or(standard), softcap, sliding_window}, answers);
  });
  return out;
}

CacheShape make_shape(std::size_t layers, std::size_t kv_heads, std::size_t queries_per_kv_head,
                      std::size_t key_dim, std::optional<std::size_t> value_dim,
                      std::optional<float> scale, float softcap, int sliding_window,
                      std::vector<Position> sliding_windows, std::vector<float> alibi_slopes,
                      std::vector<float> rotary_frequencies, float rotary_magnitude,
                      bool rotary_pairs, const std::vector<std::vector<float>>& rotations) {
  CacheShape shape;
  shape.layers = layers;
  shape.kv_heads = kv_heads;
  shape.queries_per_kv_head = queries_per_kv_head;
  shape.key_dim = key_dim;
  shape.value_dim = value_dim.value_or(key_dim);
  shape.logits = {
      scale.value_or(1.0f / std::sqrt(static_cast<float>(std::max<std::size_t>(1, key_dim)))),
      softcap, sliding_window};
  shape.sliding_windows = std::move(sliding_windows);
  shape.alibi_slopes = std::move(alibi_slopes);
  shape.rotary = {std::move(rotary_frequencies), rotary_magnitude, rotary_pairs};
  for (const auto& of : rotations) shape.rotations.push_back({of, rotary_magnitude, rotary_pairs});
  return shape;
}

std::string shape_text(const CacheShape& s) {
  return fmt::format(
      "Shape(layers={}, kv_heads={}, queries_per_kv_head={}, key_dim={}, value_dim={}, scale={:g})",
      s.layers, s.kv_heads, s.queries_per_kv_head, s.key_dim, s.value_dim, s.logits.scale);
}

}  // namespace

CacheOptions CacheKeywords::parse(const Model* model) const {
  const std::string size = bytes_text(bytes);
  CacheOptions options;
  options.policy = parse_policy(method, size, model);
  options.protocol = parse_protocol(protocol);
  options.positions = parse_positions(positions);
  options.key_type = parse_storage_type(key_type);
  options.value_type = parse_storage_type(value_type.empty() ? key_type : value_type);
  options.seed = seed;
  options.expected_tokens = expected_tokens;
  options.pool = make_pool(threads);
  options.check_finite = check_finite;
  return choose_later(std::move(options), method, size, model);
}

py::dict bytes_dict(const CacheBytes& b) {
  using py::literals::operator""_a;
  return py::dict("total"_a = b.total(), "used"_a = b.used(), "sink"_a = b.sink,
                  "summary"_a = b.summary, "window"_a = b.window,
                  "attention_stats"_a = b.attention_stats, "rotary"_a = b.rotary,
                  "recurrent"_a = b.recurrent, "room"_a = b.room);
}

py::tuple kept_arrays(const std::vector<KeptEntry>& kept) {
  const NewArray<Position> positions({kept.size()});
  const NewArray<float> weights({kept.size()}), normaliser_weights({kept.size()});
  for (std::size_t i = 0; i < kept.size(); ++i) {
    positions.data[i] = kept[i].position;
    weights.data[i] = kept[i].weight;
    normaliser_weights.data[i] = kept[i].normaliser_weight;
  }
  return py::make_tuple(positions.object, weights.object, normaliser_weights.object);
}

py::object shape_object(const CacheShape& shape) { return py::cast(shape); }

void add_cache(py::module_& m) {
  using py::literals::operator""_a;
  py::class_<CacheShape>(
      m, "Shape",
      "The dimensions of a model's cache. Head dimensions: 1 to 256.\n\n"
      "value_dim: key_dim unless given; scale: of logits, 1/sqrt(key_dim) unless "
      "given;\nsoftcap: c > 0 makes a logit s c·tanh(s/c); sliding_window, "
      "sliding_windows: tokens seen,\n0 all, for every layer or one number a "
      "layer; alibi_slopes: one a query head;\nrotary_frequencies: radians per "
      "position; rolling positions need them, and keys of few bits\n(int4, q4, q3, q2) are then "
      "about their mean before rotation; rotations: the frequencies of each layer, where they "
      "differ.")
      .def(py::init(&make_shape), py::kw_only(), "layers"_a = 1, "kv_heads"_a = 1,
           "queries_per_kv_head"_a = 1, "key_dim"_a, "value_dim"_a = py::none(),
           "scale"_a = py::none(), "softcap"_a = 0.0f, "sliding_window"_a = 0,
           "sliding_windows"_a = std::vector<Position>(), "alibi_slopes"_a = std::vector<float>(),
           "rotary_frequencies"_a = std::vector<float>(), "rotary_magnitude"_a = 1.0f,
           "rotary_pairs"_a = false, "rotations"_a = std::vector<std::vector<float>>())
      .def_readonly("layers", &CacheShape::layers)
      .def_readonly("kv_heads", &CacheShape::kv_heads)
      .def_readonly("queries_per_kv_head", &CacheShape::queries_per_kv_head)
      .def_readonly("key_dim", &CacheShape::key_dim)
      .def_readonly("value_dim", &CacheShape::value_dim)
      .def_property_readonly("scale", [](const CacheShape& s) { return s.logits.scale; })
      .def_property_readonly("softcap", [](const CacheShape& s) { return s.logits.softcap; })
      .def("__repr__", &shape_text);

  py::class_<PyCache>(
      m, "Cache",
      "The cache of one sequence: all layers and KV heads.\n\n"
      "shape: a Shape; method: a method string such as 'balancekv:rate=0.25'; bytes: of the whole\n"
      "cache, a share of the exact bf16 cache as float (1/8), bytes as int, or '256M', "
      "'40K/token';\nprotocol: 'prefill' or 'stream'; positions: 'absolute' or 'rolling'; "
      "key_type, "
      "value_type: how\nrows are stored, 'f32', 'bf16', 'f16', 'int8', 'int4', 'q4', 'q3' or 'q2'; "
      "expected_tokens: of\nthe text, needed by a rate in stream; threads: of this cache, 0 the "
      "shared ones;\ncheck_finite: whether elements are looked at.\n\nRaises ArgumentError on a "
      "bad "
      "shape, method or option.")
      .def(py::init([](const CacheShape& shape, std::string method, py::object bytes,
                       std::string protocol, std::string positions, std::string key_type,
                       std::string value_type, std::uint64_t seed, std::size_t expected_tokens,
                       int threads, bool check_finite) {
             const CacheOptions options = CacheKeywords{std::move(method),
                                                        std::move(bytes),
                                                        std::move(protocol),
                                                        std::move(positions),
                                                        std::move(key_type),
                                                        std::move(value_type),
                                                        seed,
                                                        expected_tokens,
                                                        threads,
                                                        check_finite}
                                              .parse();
             return unlocked([&] { return std::make_unique<PyCache>(Cache(shape, options)); });
           }),
           "shape"_a, py::kw_only(), "method"_a = "", "bytes"_a = py::none(),
           "protocol"_a = "prefill", "positions"_a = "absolute", "key_type"_a = "bf16",
           "value_type"_a = "", "seed"_a = 0, "expected_tokens"_a = 0, "threads"_a = 0,
           "check_finite"_a = true)
      .def(
          "forward", &forward, "layer"_a, "keys"_a, "values"_a, "queries"_a = py::none(),
          "out"_a = py::none(),
          "Takes in tokens of one layer and answers their queries, causally.\n\n"
          "keys: (tokens, kv_heads, key_dim); values: (tokens, kv_heads, value_dim); queries:\n"
          "(tokens, kv_heads·queries_per_kv_head, key_dim), those of a KV head side by side; out:\n"
          "the same with value_dim, made as queries are if not given. float32, float16 or "
          "bfloat16\n(uint16 in NumPy), any strides but in the last dimension; nothing is copied "
          "or "
          "converted.\nqueries may be None where no output is needed and the method watches no "
          "attention.\n\nReturns out. Raises TypeError or ValueError for an array that does not "
          "fit, Error for a layer\nout of order or an element that is not finite; the cache is "
          "then "
          "as it was.")
      .def(
          "finish_prompt", [](PyCache& self) { with(self, [](Cache& c) { c.finish_prompt(); }); },
          "The prompt has ended: 'prefill' summarises its middle. Call it once.")
      .def_property_readonly(
          "needs_replay",
          [](PyCache& self) {
            const InUse use(self.used, "cache");
            return scoring_of(self.cache).needs_replay();
          },
          "Whether the method wants the text read a second time before the prompt ends.")
      .def(
          "start_replay",
          [](PyCache& self, std::size_t layer, py::object output_grams) {
            Array g;
            ConstMatrix grams;
            if (!output_grams.is_none()) {
              g = view_array(output_grams, "output_grams");
              grams = matrix_view(g, "output_grams");
            }
            with(self, [&](Cache& c) { scoring_of(c).start_replay(layer, grams); });
          },
          "layer"_a, "output_grams"_a = py::none(),
          "Before the replay pass of a layer. output_grams: for each query head W_O W_O^T of "
          "its\n"
          "part of the output projection, (heads·value_dim, value_dim), float32; None: the "
          "identity.")
      .def("replay", &replay, "layer"_a, "keys"_a, "values"_a, "queries"_a,
           "query_weights"_a = py::none(),
           "Replay pass: tokens that see everything read and each other, causally. Nothing of "
           "them is\nkept; each entry's score grows by what they look at. Shapes as for forward(), "
           "float32;\nquery_weights: 1/|x| of each token where it enters the layer. Returns their "
           "attention.")
      .def(
          "clone",
          [](PyCache& self) {
            return with(self, [](Cache& c) { return std::make_unique<PyCache>(c.clone()); });
          },
          "A copy that goes on by itself.")
      .def(
          "truncate",
          [](PyCache& self, std::size_t tokens) {
            with(self, [&](Cache& c) { c.truncate(tokens); });
          },
          "tokens"_a, "Forgets all tokens but the first `tokens`, where that is possible.")
      .def(
          "reserve",
          [](PyCache& self, std::size_t tokens) {
            with(self, [&](Cache& c) { c.reserve(tokens); });
          },
          "tokens"_a, "Makes room for a text of that many tokens at once.")
      .def(
          "save",
          [](PyCache& self, const std::string& path, const std::string& note) {
            with(self, [&](Cache& c) { c.save(path, note); });
          },
          "path"_a, "note"_a = "",
          "Writes a checksummed file, from which load() goes on to the bit.")
      .def_static(
          "load",
          [](const std::string& path, int threads) {
            return unlocked([&] {
              auto out = std::make_unique<PyCache>(Cache::load(path));
              set_host(out->cache, make_pool(threads), nullptr);
              return out;
            });
          },
          "path"_a, "threads"_a = 0, "The cache in a file. Raises FileError if it is damaged.")
      .def("_kept",
           [](PyCache& self, std::size_t layer, std::size_t head) {
             return kept_arrays(with(self, [&](Cache& c) { return c.kept(layer, head); }));
           })
      .def("_segments", &segments)
      .def(
          "tokens",
          [](PyCache& self, std::size_t layer) {
            const InUse use(self.used, "cache");
            require(layer < self.cache.shape().layers, "layer {} of a cache of {} layers", layer,
                    self.cache.shape().layers);
            return self.cache.tokens(layer);
          },
          "layer"_a = 0, "Tokens seen by a layer.")
      .def(
          "entries",
          [](PyCache& self, std::size_t layer) {
            const InUse use(self.used, "cache");
            require(layer < self.cache.shape().layers, "layer {} of a cache of {} layers", layer,
                    self.cache.shape().layers);
            return self.cache.entries(layer);
          },
          "layer"_a = 0, "Entries kept per KV head of a layer (the largest).")
      .def_property_readonly(
          "bytes",
          [](PyCache& self) { return with(self, [](Cache& c) { return c.bytes().total(); }); },
          "Bytes held.")
      .def_property_readonly(
          "bytes_by_part",
          [](PyCache& self) { return bytes_dict(with(self, [](Cache& c) { return c.bytes(); })); },
          "Bytes held, by part; 'used' is the total less the room for tokens to come.")
      .def_property_readonly(
          "reports",
          [](PyCache& self) { return with(self, [](Cache& c) { return reports_of(c); }); },
          "What the method has to say of how it went.")
      .def_property_readonly("shape", [](PyCache& self) { return self.cache.shape(); })
      .def_property_readonly("method",
                             [](PyCache& self) { return self.cache.options().policy.to_string(); })
      .def("__repr__", [](PyCache& self) {
        const InUse use(self.used, "cache");
        return fmt::format("Cache(method='{}', {} tokens, {} entries a head, {} bytes)",
                           self.cache.options().policy.to_string(), self.cache.tokens(),
                           self.cache.entries(), self.cache.bytes().total());
      });

  m.def("_attention", &attention, "queries"_a, "segments"_a, "positions"_a, "scale"_a, "softcap"_a,
        "sliding_window"_a, "out"_a);
}

}  // namespace ballast::python
