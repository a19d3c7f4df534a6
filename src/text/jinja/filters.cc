// The filters of `|`.
#include <algorithm>
#include <cmath>
#include <map>

#include "base/fail.h"
#include "text/jinja/builtins.h"
#include "text/jinja/operators.h"
#include "text/jinja/sequence_filters.h"
#include "text/jinja/strings.h"

namespace ballast::jinja {
namespace {

using Filter = Value (*)(const Value&, const Arguments&);

std::string made(std::string text) {
  spend(text.size() + 1);
  return text;
}

std::int64_t length_of(const Value& value) {
  if (value.string()) return static_cast<std::int64_t>(count_characters(*value.string()));
  if (value.list()) return static_cast<std::int64_t>(value.list()->size());
  if (value.dict()) return static_cast<std::int64_t>(value.dict()->items.size());
  require(value.is_undefined(), "{} has no length", value.type_name());
  return 0;
}

// The nearest integer towards zero; undefined if Integer cannot hold it.
Value truncate_real(double value) {
  require(std::isfinite(value), "int: {} is no integer", value);
  return std::abs(value) < 1e38 ? Value(static_cast<Integer>(value)) : Value();
}

Value to_integer(const Value& input, const Arguments& arguments) {
  const Value otherwise = arguments.get(0, "default", 0);
  const std::int64_t base = expect_integer(arguments.get(1, "base", 10), "int");
  require(base == 0 || (base >= 2 && base <= 36), "int: base is {}; expected 0 or 2 to 36", base);
  require(!input.is_undefined(), "int of an undefined value");
  std::optional<Value> value;
  if (input.is_number()) {
    value = input.real() ? truncate_real(*input.real()) : Value(*input.whole());
  } else if (input.string()) {
    spend(16 + input.string()->size());
    value = parse_integer(*input.string(), static_cast<int>(base));
    const auto real = value ? std::nullopt : parse_real(*input.string());
    if (real && std::isfinite(*real)) value = truncate_real(*real);
  }
  if (!value) return otherwise;
  require(!value->is_undefined(), "int: the integer is too large");
  return *value;
}

Value to_real(const Value& input, const Arguments& arguments) {
  require(!input.is_undefined(), "float of an undefined value");
  if (input.is_number()) return input.as_real();
  if (input.string()) spend(16 + input.string()->size());
  const auto value = input.string() ? parse_real(*input.string()) : std::nullopt;
  return value ? Value(*value) : arguments.get(0, "default", 0.0);
}

// Hugging Face's own: tojson(ensure_ascii=False, indent=None, separators=None, sort_keys=False).
Value to_json_filter(const Value& input, const Arguments& arguments) {
  JsonStyle style;
  for (const auto& [name, value] : arguments.named) {
    const bool known =
        name == "ensure_ascii" || name == "indent" || name == "separators" || name == "sort_keys";
    require(known, ErrorCode::unsupported, "tojson: the argument '{}' is not supported",
            name.substr(0, 60));
  }
  style.ascii = arguments.get(0, "ensure_ascii", false).truth();
  style.sorted = arguments.get(3, "sort_keys", false).truth();
  const Value indent = arguments.get(1, "indent", None{});
  if (!indent.is_none()) {
    const std::int64_t spaces = indent.string() ? 0 : expect_integer(indent, "tojson");
    require(spaces <= 64 && (!indent.string() || indent.string()->size() <= 64),
            "tojson: the indent is more than 64 spaces");
    style.indent =
        indent.string()
            ? *indent.string()
            : std::string(static_cast<std::size_t>(std::max<std::int64_t>(spaces, 0)), ' ');
    style.item_separator = ",";
  }
  const Value separators = arguments.get(2, "separators", None{});
  if (!separators.is_none()) {
    require(separators.list() && separators.list()->size() == 2,
            "tojson: separators is {}; expected two strings", separators.type_name());
    style.item_separator = expect_text((*separators.list())[0], "tojson");
    style.key_separator = expect_text((*separators.list())[1], "tojson");
  }
  return to_json(input, style);
}

Value default_filter(const Value& input, const Arguments& arguments) {
  const bool also_false = arguments.get(1, "boolean", false).truth();
  return input.is_undefined() || (also_false && !input.truth())
             ? arguments.get(0, "default_value", "")
             : input;
}

Value indent_filter(const Value& input, const Arguments& arguments) {
  const Value width = arguments.get(0, "width", 4);
  std::string spaces;
  if (width.string()) {
    spaces = *width.string();
  } else {
    const std::int64_t count = expect_integer(width, "indent");
    require(count >= 0 && count <= 1000, "indent: width is {}; expected 0 to 1000", count);
    spaces.assign(static_cast<std::size_t>(count), ' ');
  }
  return indent(expect_text(input, "indent"), spaces, arguments.get(1, "first", false).truth(),
                arguments.get(2, "blank", false).truth());
}

const std::map<std::string, Filter, std::less<>>& filters() {
  static const std::map<std::string, Filter, std::less<>> table = {
      {"capitalize",
       [](const Value& v, const Arguments&) -> Value { return made(capitalize(to_text(v))); }},
      {"count", [](const Value& v, const Arguments&) -> Value { return length_of(v); }},
      {"d", default_filter},
      {"default", default_filter},
      {"dictsort", sort_dict},
      {"first",
       [](const Value& v, const Arguments&) -> Value {
         if (v.string()) return item_at(v, 0);
         const Items items = items_of(v);
         return items.empty() ? Value() : items[0];
       }},
      {"float", to_real},
      {"indent", indent_filter},
      {"int", to_integer},
      {"items", [](const Value& v, const Arguments&) -> Value { return pairs_of(v); }},
      {"join", join},
      {"last",
       [](const Value& v, const Arguments&) -> Value {
         if (v.string()) return item_at(v, -1);
         const Items items = items_of(v);
         return items.empty() ? Value() : items[items.size() - 1];
       }},
      {"length", [](const Value& v, const Arguments&) -> Value { return length_of(v); }},
      {"list", [](const Value& v, const Arguments&) -> Value { return items_of(v).list(); }},
      {"lower",
       [](const Value& v, const Arguments&) -> Value { return made(to_lower(to_text(v))); }},
      {"map", map_items},
      {"max", greatest},
      {"min", least},
      {"reject", [](const Value& v, const Arguments& a) { return choose(v, a, false, false); }},
      {"rejectattr", [](const Value& v, const Arguments& a) { return choose(v, a, false, true); }},
      {"replace",
       [](const Value& v, const Arguments& a) -> Value {
         const Value count = a.get(2, "count", None{});
         return replace(to_text(v), to_text(a.get(0, "old")), to_text(a.get(1, "new")),
                        count.is_none() ? -1 : expect_integer(count, "replace"));
       }},
      {"reverse",
       [](const Value& v, const Arguments&) -> Value {
         if (v.string()) return slice(v, None{}, None{}, -1);
         const Items items = items_of(v);
         return List(items.all().rbegin(), items.all().rend());
       }},
      {"safe", [](const Value& v, const Arguments&) { return v; }},
      {"select", [](const Value& v, const Arguments& a) { return choose(v, a, true, false); }},
      {"selectattr", [](const Value& v, const Arguments& a) { return choose(v, a, true, true); }},
      {"sort", sort_items},
      {"string", [](const Value& v, const Arguments&) -> Value { return to_text(v); }},
      {"title",
       [](const Value& v, const Arguments&) -> Value { return made(title_filter(to_text(v))); }},
      {"tojson", to_json_filter},
      {"trim",
       [](const Value& v, const Arguments& a) -> Value {
         const std::string text = to_text(v);
         const Value set = a.get(0, "chars", None{});
         if (set.string()) spend(8 * set.string()->size());  // it is sorted
         return std::string(strip(
             text, set.string() ? std::optional<std::string_view>(*set.string()) : std::nullopt,
             true, true));
       }},
      {"unique", unique},
      {"upper",
       [](const Value& v, const Arguments&) -> Value { return made(to_upper(to_text(v))); }},
  };
  return table;
}

}  // namespace

std::string_view expect_text(const Value& value, const char* who) {
  require(value.string() != nullptr, "{} needs a string, not {}", who, value.type_name());
  return *value.string();
}

std::int64_t expect_integer(const Value& value, const char* who) {
  const auto whole = value.whole();
  require(whole.has_value(), "{} needs an integer, not {}", who, value.type_name());
  return clamp_to_64(*whole);
}

Value apply_filter(const std::string& name, const Value& input, const Arguments& arguments) {
  const auto found = filters().find(name);
  require(found != filters().end(), ErrorCode::unsupported, "the filter '{}' is not supported",
          name.substr(0, 60));
  spend_on(input);
  spend_on(arguments);
  return found->second(input, arguments);
}

}  // namespace ballast::jinja
