// Methods written in Python: a rank of tokens, registered like any other method.
#include <pybind11/stl.h>

#include <cmath>
#include <map>
#include <mutex>

#include "ballast/method.h"
#include "ballast/selection.h"
#include "bindings/python/arrays.h"
#include "bindings/python/bindings.h"

namespace ballast::python {
namespace {

/// Classes by the name of their method; under the interpreter's lock.
std::map<std::string, py::object, std::less<>>& classes() {
  static auto& all =
      *new std::map<std::string, py::object, std::less<>>;  // outlives the interpreter
  return all;
}

/// Texts of methods live as long as the process.
std::string_view keep_text(std::string text) { return *new std::string(std::move(text)); }

Needs needs_of(const py::object& attention, const std::string& name) {
  if (attention.is_none()) return {};
  const auto text = attention.cast<std::string>();
  if (text == "accumulated") return {.attention_sums = true};
  if (text == "recent") return {.recent_queries = true};
  fail("method {}: attention '{}'; known: None, 'accumulated', 'recent'", name, text);
}

py::object decode(const RowsView& rows) {
  const NewArray<float> out({rows.rows, rows.dim});
  rows.decode(MutableMatrix{out.data, rows.rows, rows.dim});
  return out.object;
}

/// Two arrays, one after the other.
py::object decode(const RowsView& a, const RowsView& b) {
  if (a.rows == 0) return decode(b);
  const NewArray<float> out({a.rows + b.rows, b.dim});
  a.decode(MutableMatrix{out.data, a.rows, b.dim});
  b.decode(MutableMatrix{out.data + a.rows * b.dim, b.rows, b.dim});
  return out.object;
}

class PythonMethod : public SelectionSummary {
 public:
  PythonMethod(const SummarySetup& setup, py::object instance)
      : SelectionSummary(setup, {.by_rule = setup.capacity}),
        watches_(setup.policy.needs().all_queries()),
        name_(setup.policy.info().name),
        instance_(std::move(instance)) {}
  ~PythonMethod() override {
    if (Py_IsInitialized() == 0) {
      (void)instance_.release();  // the interpreter has gone, and the object with it
      return;
    }
    const py::gil_scoped_acquire lock;
    instance_ = py::object();
  }

  void observe_recent(const Observed& observed) override {
    replace(attention_sums(), observed.held_attention());
  }

 protected:
  void prepare(const Block& block) override {
    const py::gil_scoped_acquire lock;
    // Where attention counts, entries are ranked anew beside the tokens that come in.
    const std::size_t held = watches_ ? store().size() : 0;
    const std::size_t n = held + block.size();
    const NewArray<Position> positions({n});
    for (std::size_t i = 0; i < n; ++i) {
      positions.data[i] =
          i < held ? store().position(i) : block.first + static_cast<Position>(i - held);
    }
    py::object attention = py::none();
    if (watches_) {
      const NewArray<float> sums({n});
      std::copy_n(attention_sums().data(), held, sums.data);
      std::ranges::copy(attention_of(block), sums.data + held);
      attention = sums.object;
    }
    const py::object type = py::module_::import("ballast").attr("Block");
    const RowsView none_keys = store().keys().slice(0, held),
                   none_values = store().values().slice(0, held);
    const py::object argument =
        type(decode(none_keys, block.keys), decode(none_values, block.values), positions.object,
             attention, block.now);
    const py::object ranks_object = instance_.attr("rank")(argument);
    const py::object owner = numpy("asarray")(ranks_object, "float32", "C");
    const auto dims = owner.attr("ndim").cast<std::size_t>(),
               size = owner.attr("size").cast<std::size_t>();
    require(
        dims == 1 && size == n,
        "method {}: rank() gave an array of {} dimensions and {} numbers for {} tokens; expected "
        "one number a token",
        name_, dims, size, n);
    const float* given = floats(view_array(owner, "rank()"), n, "rank()");
    for (std::size_t i = 0; i < n; ++i) {
      require(!std::isnan(given[i]), ErrorCode::not_finite,
              "method {}: the rank of token {} is NaN", name_, positions.data[i]);
    }
    std::copy_n(given, held, ranks().data());
    given_.assign(given + held, given + n);
  }
  float rank(const Block&, std::size_t i) override { return given_[i]; }
  void finish(const Block&) override { std::vector<float>().swap(given_); }

 private:
  bool watches_;  ///< attention
  std::string name_;
  py::object instance_;
  std::vector<float> given_;  ///< ranks of the block
};

/// The values of a method's own keys, as numbers and texts.
py::dict parameters_of(const Policy& policy) {
  py::dict out;
  for (const Parameter& p : policy.info().parameters) {
    const py::str key{std::string(p.name)};
    if (!policy.has(p.name)) continue;
    switch (p.kind) {
      case Parameter::Kind::integer:
        out[key] = policy.integer(p.name);
        break;
      case Parameter::Kind::real:
        out[key] = policy.real(p.name);
        break;
      case Parameter::Kind::choice:
        out[key] = std::string(policy.choice(p.name));
        break;
      default:
        out[key] = std::string(policy.text(p.name));
    }
  }
  return out;
}

std::unique_ptr<Summary> make(const SummarySetup& setup) {
  const py::gil_scoped_acquire lock;
  const auto found = classes().find(setup.policy.info().name);
  require(found != classes().end(), "method {}: its Python class is not registered",
          setup.policy.info().name);
  py::object instance = found->second();
  instance.attr("layer") = setup.random.layer;
  instance.attr("layers") = setup.layers;
  instance.attr("head") = setup.random.head;
  instance.attr("seed") = setup.random.seed;
  instance.attr("capacity") = setup.capacity;
  instance.attr("scale") = setup.logits.scale;
  instance.attr("parameters") = parameters_of(setup.policy);
  return std::make_unique<PythonMethod>(setup, std::move(instance));
}

Parameter parameter_of(const std::string& key, py::handle value, const std::string& method) {
  Parameter p;
  p.name = keep_text(key);
  p.help = keep_text("a key of " + method);
  if (py::isinstance<py::tuple>(value) || py::isinstance<py::list>(value)) {
    std::string choices, first;
    for (const py::handle choice : value) {
      const auto text = choice.cast<std::string>();
      if (choices.empty()) first = text;
      choices += (choices.empty() ? "" : "|") + text;
    }
    p.kind = Parameter::Kind::choice;
    p.choices = keep_text(choices);
    p.standard = keep_text(first);
    return p;
  }
  const bool whole = py::isinstance<py::int_>(value) && !py::isinstance<py::bool_>(value);
  if (!whole && !py::isinstance<py::float_>(value)) {
    throw py::type_error(
        fmt::format("method {}: parameter {} is a {}; expected the default as int "
                    "or float, or a tuple of texts to choose from",
                    method, key, Py_TYPE(value.ptr())->tp_name));
  }
  p.kind = whole ? Parameter::Kind::integer : Parameter::Kind::real;
  p.standard = keep_text(py::str(value).cast<std::string>());
  p.low = -1e15;
  p.high = 1e15;
  return p;
}

void register_class(const py::object& cls) {
  const auto name = cls.attr("name").cast<std::string>();
  if (!py::hasattr(cls, "rank")) fail("method {}: a method needs rank(self, block)", name);
  MethodInfo info;
  info.title = keep_text(cls.attr("title").cast<std::string>());
  info.paper = keep_text(cls.attr("paper").cast<std::string>());
  info.sink = cls.attr("sink").cast<std::size_t>();
  info.window = cls.attr("window").cast<std::size_t>();
  info.needs = needs_of(cls.attr("attention"), name);
  for (const auto& [key, value] : cls.attr("parameters").cast<py::dict>()) {
    info.parameters.push_back(parameter_of(key.cast<std::string>(), value, name));
  }
  if (info.needs.recent_queries &&
      std::ranges::find(info.parameters, "observe", &Parameter::name) == info.parameters.end()) {
    info.parameters.push_back({"observe", Parameter::Kind::integer, "32", 1, 65536, "",
                               "last tokens whose queries count"});
    info.step = 32;
  }
  info.make = &make;
  const auto known = classes().find(name);
  if (known != classes().end()) {
    // A cell of a notebook that runs again: the code may change, the description may not.
    const MethodInfo& before = find_method(name);
    bool same = before.sink == info.sink && before.window == info.window &&
                before.needs.attention_sums == info.needs.attention_sums &&
                before.needs.recent_queries == info.needs.recent_queries &&
                before.parameters.size() == info.parameters.size();
    for (std::size_t i = 0; same && i < info.parameters.size(); ++i) {
      same = before.parameters[i].name == info.parameters[i].name &&
             before.parameters[i].standard == info.parameters[i].standard &&
             before.parameters[i].choices == info.parameters[i].choices;
    }
    require(
        same,
        "method {} is registered with other sink, window, attention or parameters; give this one "
        "another name",
        name);
    known->second = cls;
    return;
  }
  info.name = keep_text(name);
  register_method(info);
  classes().emplace(name, cls);
}

py::list list_methods() {
  py::list out;
  for (const MethodInfo* info : methods()) {
    py::dict parameters;
    for (const Parameter& p : info->parameters) {
      parameters[py::str(std::string(p.name))] =
          py::make_tuple(std::string(p.standard), std::string(p.help));
    }
    out.append(py::make_tuple(std::string(info->name), std::string(info->title),
                              std::string(info->paper), parameters, info->global_budget));
  }
  return out;
}

}  // namespace

void add_methods(py::module_& m) {
  m.def("_register", &register_class);
  m.def("_methods", &list_methods);
}

}  // namespace ballast::python
