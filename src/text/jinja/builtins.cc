#include "text/jinja/builtins.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

#include "base/fail.h"
#include "text/jinja/strings.h"

namespace ballast::jinja {
namespace {

using Filter = Value (*)(const Value&, const Arguments&, Budget&);
using Test = bool (*)(const Value&, const Arguments&, Budget&);

std::string_view expect_text(const Value& value, const char* who) {
  require(value.string() != nullptr, "{} needs a string, not {}", who, value.type_name());
  return *value.string();
}

std::int64_t expect_integer(const Value& value, const char* who) {
  if (value.boolean()) return *value.boolean();
  require(value.integer() != nullptr, "{} needs an integer, not {}", who, value.type_name());
  return *value.integer();
}

std::string made(std::string text, Budget& budget) {
  budget.spend(text.size() + 1);
  return text;
}

std::int64_t length_of(const Value& value) {
  if (value.string()) return static_cast<std::int64_t>(characters(*value.string()).size());
  if (value.list()) return static_cast<std::int64_t>(value.list()->size());
  if (value.dict()) return static_cast<std::int64_t>(value.dict()->items.size());
  require(value.is_undefined(), "{} has no length", value.type_name());
  return 0;
}

List pairs_of(const Value& value, Budget& budget) {
  List out;
  if (value.is_undefined()) return out;
  require(value.dict() != nullptr, "items needs a dict, not {}", value.type_name());
  for (const auto& [key, item] : value.dict()->items) {
    budget.spend(key.size() + 16);
    out.emplace_back(List{key, item});
  }
  return out;
}

// "a.b" reaches into members of members.
Value attribute_path(Value value, std::string_view path) {
  while (true) {
    const std::size_t dot = path.find('.');
    value = member(value, path.substr(0, dot));
    if (dot == std::string_view::npos || value.is_undefined()) return value;
    path.remove_prefix(dot + 1);
  }
}

// select, reject, selectattr, rejectattr: (attribute,) test, arguments of the test.
Value choose(const Value& input, const Arguments& arguments, bool keep, bool by_attribute,
             Budget& budget) {
  std::size_t used = 0;
  std::string attribute;
  if (by_attribute) attribute = expect_text(arguments.get(used++, "attribute"), "selectattr");
  const Value test = arguments.get(used++, "test");
  Arguments rest;
  for (std::size_t i = used; i < arguments.positional.size(); ++i) {
    rest.positional.push_back(arguments.positional[i]);
  }
  List out;
  for (const Value& item : items_of(input, budget)) {
    const Value subject = by_attribute ? attribute_path(item, attribute) : item;
    const bool holds = test.is_undefined() ? subject.truth()
                                           : apply_test(std::string(expect_text(test, "select")),
                                                        subject, rest, budget);
    if (holds == keep) out.push_back(item);
  }
  return out;
}

Value map_items(const Value& input, const Arguments& arguments, Budget& budget) {
  const Value attribute = arguments.get(1, "attribute");
  List out;
  for (const Value& item : items_of(input, budget)) {
    if (!attribute.is_undefined()) {
      const Value found = attribute_path(item, expect_text(attribute, "map"));
      out.push_back(found.is_undefined() ? arguments.get(2, "default") : found);
    } else {
      Arguments rest;
      for (std::size_t i = 1; i < arguments.positional.size(); ++i) {
        rest.positional.push_back(arguments.positional[i]);
      }
      const Value filter = arguments.get(0, "filter");
      out.push_back(apply_filter(std::string(expect_text(filter, "map")), item, rest, budget));
    }
  }
  return out;
}

Value join(const Value& input, const Arguments& arguments, Budget& budget) {
  const std::string between = to_text(arguments.get(0, "d", ""), budget);
  const Value attribute = arguments.get(1, "attribute");
  std::string out;
  bool first = true;
  for (const Value& item : items_of(input, budget)) {
    if (!std::exchange(first, false)) out += made(between, budget);
    out += to_text(
        attribute.is_undefined() ? item : attribute_path(item, expect_text(attribute, "join")),
        budget);
  }
  return out;
}

Value sort_items(const Value& input, const Arguments& arguments, Budget& budget) {
  List items = items_of(input, budget);
  const bool reverse = arguments.get(0, "reverse", false).truth();
  const bool by_case = arguments.get(1, "case_sensitive", false).truth();
  const Value attribute = arguments.get(2, "attribute");
  std::vector<std::pair<Value, Value>> keyed;  // key, item
  for (const Value& item : items) {
    Value key =
        attribute.is_undefined() ? item : attribute_path(item, expect_text(attribute, "sort"));
    if (key.string() && !by_case) key = to_lower(made(*key.string(), budget));
    keyed.emplace_back(key, item);
  }
  // Comparing may fail, so it must do so before the sort relies on an order.
  for (std::size_t i = 1; i < keyed.size(); ++i) less(keyed[0].first, keyed[i].first, budget);
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    return reverse ? less(b.first, a.first, budget) : less(a.first, b.first, budget);
  });
  for (std::size_t i = 0; i < items.size(); ++i) items[i] = keyed[i].second;
  return items;
}

Value unique(const Value& input, const Arguments&, Budget& budget) {
  List out;
  for (const Value& item : items_of(input, budget)) {
    if (std::none_of(out.begin(), out.end(),
                     [&](const Value& seen) { return equal(seen, item, budget); })) {
      out.push_back(item);
    }
  }
  return out;
}

Value to_integer(const Value& input, const Arguments& arguments, Budget&) {
  const Value otherwise = arguments.get(0, "default", 0);
  if (input.real()) {
    const double value = std::trunc(*input.real());
    return std::abs(value) < 9e18 ? Value(static_cast<std::int64_t>(value)) : otherwise;
  }
  if (input.is_number()) return expect_integer(input, "int");
  if (!input.string()) return otherwise;
  const std::string_view text = strip(*input.string(), std::nullopt, true, true);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? Value(value) : otherwise;
}

Value to_real(const Value& input, const Arguments& arguments, Budget&) {
  if (input.is_number()) return input.as_real();
  const Value otherwise = arguments.get(0, "default", 0.0);
  if (!input.string()) return otherwise;
  const std::string_view text = strip(*input.string(), std::nullopt, true, true);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && std::isfinite(value) ? Value(value) : otherwise;
}

Value to_json_filter(const Value& input, const Arguments& arguments, Budget& budget) {
  const Value width = arguments.get(0, "indent", None{});
  for (const auto& [name, value] : arguments.named) {
    const bool known = name == "indent" || (name == "ensure_ascii" && !value.truth());
    require(known, ErrorCode::unsupported, "tojson: the argument '{}' is not supported", name);
  }
  if (width.is_none()) return to_json(input, -1, budget);
  const std::int64_t spaces = expect_integer(width, "tojson");
  require(spaces >= 0 && spaces <= 64, "tojson: indent is {}; expected 0 to 64", spaces);
  return to_json(input, static_cast<int>(spaces), budget);
}

Value extreme(const Value& input, Budget& budget, bool greatest) {
  const List items = items_of(input, budget);
  if (items.empty()) return {};
  return *std::max_element(items.begin(), items.end(), [&](const Value& a, const Value& b) {
    return greatest ? less(a, b, budget) : less(b, a, budget);
  });
}

Value round_number(const Value& input, const Arguments& arguments, Budget&) {
  require(input.is_number(), "round needs a number, not {}", input.type_name());
  const std::int64_t digits = expect_integer(arguments.get(0, "precision", 0), "round");
  require(digits >= 0 && digits <= 15, "round: precision is {}; expected 0 to 15", digits);
  const double scale = std::pow(10.0, static_cast<double>(digits));
  return std::nearbyint(input.as_real() * scale) / scale;
}

Value default_filter(const Value& input, const Arguments& arguments, Budget&) {
  const bool also_false = arguments.get(1, "boolean", false).truth();
  return input.is_undefined() || (also_false && !input.truth()) ? arguments.get(0, "value", "")
                                                                : input;
}

const std::map<std::string, Filter, std::less<>>& filters() {
  static const std::map<std::string, Filter, std::less<>> table = {
      {"abs",
       [](const Value& v, const Arguments&, Budget&) -> Value {
         if (v.real()) return std::abs(*v.real());
         const std::int64_t i = expect_integer(v, "abs");
         return i < 0 ? Value(static_cast<std::int64_t>(-static_cast<std::uint64_t>(i))) : v;
       }},
      {"capitalize",
       [](const Value& v, const Arguments&, Budget& b) -> Value {
         return made(capitalize(expect_text(v, "capitalize")), b);
       }},
      {"count", [](const Value& v, const Arguments&, Budget&) -> Value { return length_of(v); }},
      {"d", default_filter},
      {"default", default_filter},
      {"dictsort",
       [](const Value& v, const Arguments&, Budget& b) -> Value {
         List pairs = pairs_of(v, b);
         std::stable_sort(pairs.begin(), pairs.end(), [](const Value& x, const Value& y) {
           return to_lower(*(*x.list())[0].string()) < to_lower(*(*y.list())[0].string());
         });
         return pairs;
       }},
      {"first",
       [](const Value& v, const Arguments&, Budget& b) -> Value {
         const List items = items_of(v, b);
         return items.empty() ? Value() : items.front();
       }},
      {"float", to_real},
      {"indent",
       [](const Value& v, const Arguments& a, Budget& b) -> Value {
         const std::int64_t width = expect_integer(a.get(0, "width", 4), "indent");
         require(width >= 0 && width <= 1000, "indent: width is {}; expected 0 to 1000", width);
         return indent(expect_text(v, "indent"), static_cast<std::size_t>(width),
                       a.get(1, "first", false).truth(), a.get(2, "blank", false).truth(), b);
       }},
      {"int", to_integer},
      {"items",
       [](const Value& v, const Arguments&, Budget& b) -> Value { return pairs_of(v, b); }},
      {"join", join},
      {"last",
       [](const Value& v, const Arguments&, Budget& b) -> Value {
         const List items = items_of(v, b);
         return items.empty() ? Value() : items.back();
       }},
      {"length", [](const Value& v, const Arguments&, Budget&) -> Value { return length_of(v); }},
      {"list", [](const Value& v, const Arguments&, Budget& b) -> Value { return items_of(v, b); }},
      {"lower",
       [](const Value& v, const Arguments&, Budget& b) -> Value {
         return made(to_lower(to_text(v, b)), b);
       }},
      {"map", map_items},
      {"max", [](const Value& v, const Arguments&, Budget& b) { return extreme(v, b, true); }},
      {"min", [](const Value& v, const Arguments&, Budget& b) { return extreme(v, b, false); }},
      {"reject",
       [](const Value& v, const Arguments& a, Budget& b) { return choose(v, a, false, false, b); }},
      {"rejectattr",
       [](const Value& v, const Arguments& a, Budget& b) { return choose(v, a, false, true, b); }},
      {"replace",
       [](const Value& v, const Arguments& a, Budget& b) -> Value {
         return replace(to_text(v, b), to_text(a.get(0, "old"), b), to_text(a.get(1, "new"), b),
                        expect_integer(a.get(2, "count", -1), "replace"), b);
       }},
      {"reverse",
       [](const Value& v, const Arguments&, Budget& b) -> Value {
         List items = items_of(v, b);
         std::reverse(items.begin(), items.end());
         if (!v.string()) return items;
         std::string out;
         for (const Value& item : items) out += *item.string();
         return made(std::move(out), b);
       }},
      {"round", round_number},
      {"safe", [](const Value& v, const Arguments&, Budget&) { return v; }},
      {"select",
       [](const Value& v, const Arguments& a, Budget& b) { return choose(v, a, true, false, b); }},
      {"selectattr",
       [](const Value& v, const Arguments& a, Budget& b) { return choose(v, a, true, true, b); }},
      {"sort", sort_items},
      {"string",
       [](const Value& v, const Arguments&, Budget& b) -> Value { return to_text(v, b); }},
      {"title",
       [](const Value& v, const Arguments&, Budget& b) -> Value {
         return made(title(to_text(v, b)), b);
       }},
      {"tojson", to_json_filter},
      {"trim",
       [](const Value& v, const Arguments& a, Budget& b) -> Value {
         const std::string text = to_text(v, b);
         const Value set = a.get(0, "chars", None{});
         return std::string(strip(
             text, set.string() ? std::optional<std::string_view>(*set.string()) : std::nullopt,
             true, true));
       }},
      {"unique", unique},
      {"upper",
       [](const Value& v, const Arguments&, Budget& b) -> Value {
         return made(to_upper(to_text(v, b)), b);
       }},
  };
  return table;
}

const std::map<std::string, Test, std::less<>>& tests() {
  static const Test kEqual = [](const Value& v, const Arguments& a, Budget& b) {
    return equal(v, a.get(0, "other"), b);
  };
  static const Test kInteger = [](const Value& v, const Arguments&, Budget&) {
    return v.integer() != nullptr;
  };
  static const std::map<std::string, Test, std::less<>> table = {
      {"==", kEqual},
      {"boolean", [](const Value& v, const Arguments&, Budget&) { return v.boolean() != nullptr; }},
      {"callable",
       [](const Value& v, const Arguments&, Budget&) { return v.function() != nullptr; }},
      {"defined", [](const Value& v, const Arguments&, Budget&) { return !v.is_undefined(); }},
      {"divisibleby",
       [](const Value& v, const Arguments& a, Budget&) {
         const std::int64_t by = expect_integer(a.get(0, "num"), "divisibleby");
         require(by != 0, "divisibleby 0");
         return by == -1 || expect_integer(v, "divisibleby") % by == 0;
       }},
      {"eq", kEqual},
      {"equalto", kEqual},
      {"even", [](const Value& v, const Arguments&,
                  Budget&) { return expect_integer(v, "even") % 2 == 0; }},
      {"false",
       [](const Value& v, const Arguments&, Budget&) { return v.boolean() && !*v.boolean(); }},
      {"float", [](const Value& v, const Arguments&, Budget&) { return v.real() != nullptr; }},
      {"ge", [](const Value& v, const Arguments& a,
                Budget& b) { return !less(v, a.get(0, "other"), b); }},
      {"gt",
       [](const Value& v, const Arguments& a, Budget& b) { return less(a.get(0, "other"), v, b); }},
      {"in", [](const Value& v, const Arguments& a,
                Budget& b) { return contains(a.get(0, "seq"), v, b); }},
      {"integer", kInteger},
      {"iterable", [](const Value& v, const Arguments&,
                      Budget&) { return v.list() || v.dict() || v.string() || v.is_undefined(); }},
      {"le", [](const Value& v, const Arguments& a,
                Budget& b) { return !less(a.get(0, "other"), v, b); }},
      {"lower",
       [](const Value& v, const Arguments&, Budget& b) {
         const std::string text = to_text(v, b);
         return text == to_lower(text) && text != to_upper(text);
       }},
      {"lt",
       [](const Value& v, const Arguments& a, Budget& b) { return less(v, a.get(0, "other"), b); }},
      {"mapping", [](const Value& v, const Arguments&, Budget&) { return v.dict() != nullptr; }},
      {"ne", [](const Value& v, const Arguments& a,
                Budget& b) { return !equal(v, a.get(0, "other"), b); }},
      {"none", [](const Value& v, const Arguments&, Budget&) { return v.is_none(); }},
      {"number", [](const Value& v, const Arguments&, Budget&) { return v.is_number(); }},
      {"odd",
       [](const Value& v, const Arguments&, Budget&) { return expect_integer(v, "odd") % 2 != 0; }},
      {"sameas", kEqual},
      {"sequence", [](const Value& v, const Arguments&,
                      Budget&) { return v.list() || v.dict() || v.string() || v.is_undefined(); }},
      {"string", [](const Value& v, const Arguments&, Budget&) { return v.string() != nullptr; }},
      {"true",
       [](const Value& v, const Arguments&, Budget&) { return v.boolean() && *v.boolean(); }},
      {"undefined", [](const Value& v, const Arguments&, Budget&) { return v.is_undefined(); }},
      {"upper",
       [](const Value& v, const Arguments&, Budget& b) {
         const std::string text = to_text(v, b);
         return text == to_upper(text) && text != to_lower(text);
       }},
  };
  return table;
}

}  // namespace

Value apply_filter(const std::string& name, const Value& input, const Arguments& arguments,
                   Budget& budget) {
  const auto found = filters().find(name);
  require(found != filters().end(), ErrorCode::unsupported, "the filter '{}' is not supported",
          name.substr(0, 60));
  budget.spend_on(input);
  return found->second(input, arguments, budget);
}

bool apply_test(const std::string& name, const Value& input, const Arguments& arguments,
                Budget& budget) {
  const auto found = tests().find(name);
  require(found != tests().end(), ErrorCode::unsupported, "the test '{}' is not supported",
          name.substr(0, 60));
  budget.spend_on(input);
  return found->second(input, arguments, budget);
}

}  // namespace ballast::jinja
