// The filters of `|`.
#include <algorithm>
#include <cmath>
#include <map>

#include "base/fail.h"
#include "text/jinja/builtins.h"
#include "text/jinja/format.h"
#include "text/jinja/operators.h"
#include "text/jinja/sequence_filters.h"
#include "text/jinja/strings.h"

namespace ballast::jinja {
namespace {

using Filter = Value (*)(const Value&, const Arguments&, Budget&);

std::string made(std::string text, Budget& budget) {
  budget.spend(text.size() + 1);
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

Value to_integer(const Value& input, const Arguments& arguments, Budget& budget) {
  const Value otherwise = arguments.get(0, "default", 0);
  const std::int64_t base = expect_integer(arguments.get(1, "base", 10), "int");
  require(base == 0 || (base >= 2 && base <= 36), "int: base is {}; expected 0 or 2 to 36", base);
  require(!input.is_undefined(), "int of an undefined value");
  std::optional<Value> value;
  if (input.is_number()) {
    value = input.real() ? truncate_real(*input.real()) : Value(*input.whole());
  } else if (input.string()) {
    budget.spend(16 + input.string()->size());
    value = parse_integer(*input.string(), static_cast<int>(base));
    const auto real = value ? std::nullopt : parse_real(*input.string());
    if (real && std::isfinite(*real)) value = truncate_real(*real);
  }
  if (!value) return otherwise;
  require(!value->is_undefined(), "int: the integer is too large");
  return *value;
}

Value to_real(const Value& input, const Arguments& arguments, Budget& budget) {
  require(!input.is_undefined(), "float of an undefined value");
  if (input.is_number()) return input.as_real();
  if (input.string()) budget.spend(16 + input.string()->size());
  const auto value = input.string() ? parse_real(*input.string()) : std::nullopt;
  return value ? Value(*value) : arguments.get(0, "default", 0.0);
}

// Hugging Face's own: tojson(ensure_ascii=False, indent=None, separators=None, sort_keys=False).
Value to_json_filter(const Value& input, const Arguments& arguments, Budget& budget) {
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
  return to_json(input, style, budget);
}

Value round_number(const Value& input, const Arguments& arguments, Budget& budget) {
  require(input.is_number(), "round needs a number, not {}", input.type_name());
  const std::int64_t digits = expect_integer(arguments.get(0, "precision", 0), "round");
  const std::string method(expect_text(arguments.get(1, "method", "common"), "round"));
  require(digits >= -15 && digits <= 15, "round: precision is {}; expected -15 to 15", digits);
  require(method == "common" || method == "ceil" || method == "floor",
          "round: method is '{}'; known: common, ceil, floor", method.substr(0, 60));
  const double scale = std::pow(10.0, static_cast<double>(std::abs(digits)));
  if (method != "common") {
    const double scaled = digits < 0 ? input.as_real() / scale : input.as_real() * scale;
    const double whole = method == "ceil" ? std::ceil(scaled) : std::floor(scaled);
    return digits < 0 ? whole * scale : whole / scale;
  }
  if (const auto whole = input.whole()) {
    if (digits >= 0) return *whole;
    // Halves go to the even multiple.
    const auto unit = static_cast<Integer>(scale);
    Integer rest = *whole % unit;
    if (rest < 0) rest += unit;
    const Integer below = *whole - rest;
    const bool up = 2 * rest > unit || (2 * rest == unit && below / unit % 2 != 0);
    return up ? below + unit : below;
  }
  const double value = input.as_real();
  if (!std::isfinite(value)) return value;
  if (digits < 0) return std::nearbyint(value / scale) * scale;
  constexpr double kWhole = 9007199254740992.0;  // 2^53: from here on all are whole
  if (std::abs(value) >= kWhole) return value;
  budget.spend(32);
  return parse_real(fmt::format("{:.{}f}", value, digits)).value_or(value);
}

Value default_filter(const Value& input, const Arguments& arguments, Budget&) {
  const bool also_false = arguments.get(1, "boolean", false).truth();
  return input.is_undefined() || (also_false && !input.truth())
             ? arguments.get(0, "default_value", "")
             : input;
}

// As Python's urllib.parse.quote; `query`: of a form, where "/" is not safe and a space is "+".
std::string url_quoted(const Value& value, bool query, Budget& budget) {
  const std::string text = to_text(value, budget);
  budget.spend(3 * text.size());  // the most that it becomes
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool safe = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                      std::string_view("_.-~").find(c) != std::string_view::npos;
    if (safe || (c == '/' && !query)) {
      out += c;
    } else if (c == ' ' && query) {
      out += '+';
    } else {
      out += fmt::format("%{:02X}", byte);
    }
  }
  return out;
}

Value url_encode(const Value& input, const Arguments&, Budget& budget) {
  const bool parts = input.dict() || input.list() || input.is_undefined();
  if (!parts) return url_quoted(input, false, budget);
  std::string out;
  const Items items = input.dict() ? Items(pairs_of(input, budget)) : items_of(input, budget);
  for (const Value& each : items) {
    const Items pair = items_of(each, budget);
    require(pair.size() == 2, "urlencode needs pairs, not {}", each.type_name());
    if (!out.empty()) out += '&';
    out += url_quoted(pair[0], true, budget) + "=" + url_quoted(pair[1], true, budget);
  }
  return made(std::move(out), budget);
}

Value escape(const Value& input, const Arguments&, Budget& budget) {
  const std::string text = to_text(input, budget);
  budget.spend(5 * text.size());  // the most that it becomes
  return escape_html(text);
}

Value indent_filter(const Value& input, const Arguments& arguments, Budget& budget) {
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
                arguments.get(2, "blank", false).truth(), budget);
}

Value truncate(const Value& input, const Arguments& arguments, Budget& budget) {
  const auto length = expect_integer(arguments.get(0, "length", 255), "truncate");
  const std::string end = to_text(arguments.get(2, "end", "..."), budget);
  const auto end_size = static_cast<std::int64_t>(count_characters(end));
  const auto leeway = expect_integer(arguments.get(3, "leeway", 5), "truncate");
  require(length >= end_size && length < 1 << 30 && leeway >= 0 && leeway < 1 << 30,
          "truncate: length {} or leeway {} is out of range", length, leeway);
  if (length_of(input) <= length + leeway) return input;
  std::string out(first_characters(expect_text(input, "truncate"),
                                   static_cast<std::size_t>(length - end_size)));
  if (!arguments.get(1, "killwords", false).truth()) out = out.substr(0, out.rfind(' '));
  return made(out + end, budget);
}

const std::map<std::string, Filter, std::less<>>& filters() {
  static const std::map<std::string, Filter, std::less<>> table = {
      {"abs",
       [](const Value& v, const Arguments&, Budget&) -> Value {
         require(v.is_number(), "abs needs a number, not {}", v.type_name());
         if (v.real()) return std::abs(*v.real());
         return *v.whole() < 0 ? negate(v) : Value(*v.whole());
       }},
      {"attr",
       [](const Value& v, const Arguments& a, Budget& b) -> Value {
         const std::string name(expect_text(a.get(0, "name"), "attr"));
         if (v.dict() && !v.name_space() && !is_dict_method(name)) return {};
         return attribute_of(v, name, b);
       }},
      {"batch", batch},
      {"capitalize",
       [](const Value& v, const Arguments&, Budget& b) -> Value {
         return made(capitalize(to_text(v, b)), b);
       }},
      {"center",
       [](const Value& v, const Arguments& a, Budget& b) -> Value {
         const std::int64_t width = expect_integer(a.get(0, "width", 80), "center");
         require(width <= 1000, "center: width is {}; expected up to 1000", width);
         return center(to_text(v, b), static_cast<std::size_t>(std::max<std::int64_t>(width, 0)),
                       " ", b);
       }},
      {"count", [](const Value& v, const Arguments&, Budget&) -> Value { return length_of(v); }},
      {"d", default_filter},
      {"default", default_filter},
      {"dictsort", sort_dict},
      {"e", escape},
      {"escape", escape},
      {"first",
       [](const Value& v, const Arguments&, Budget& b) -> Value {
         if (v.string()) return item_at(v, 0, b);
         const Items items = items_of(v, b);
         return items.empty() ? Value() : items[0];
       }},
      {"float", to_real},
      {"forceescape", escape},
      {"format",
       [](const Value& v, const Arguments& a, Budget& b) -> Value {
         require(a.positional.empty() || a.named.empty(),
                 "format takes values by place or by name, not both");
         Dict named;
         for (const auto& [name, value] : a.named) named.set(name, value, b);
         return percent_format(to_text(v, b),
                               a.named.empty() ? Value::tuple(a.positional) : Value(named), b);
       }},
      {"groupby", group_by},
      {"indent", indent_filter},
      {"int", to_integer},
      {"items",
       [](const Value& v, const Arguments&, Budget& b) -> Value { return pairs_of(v, b); }},
      {"join", join},
      {"last",
       [](const Value& v, const Arguments&, Budget& b) -> Value {
         if (v.string()) return item_at(v, -1, b);
         const Items items = items_of(v, b);
         return items.empty() ? Value() : items[items.size() - 1];
       }},
      {"length", [](const Value& v, const Arguments&, Budget&) -> Value { return length_of(v); }},
      {"list",
       [](const Value& v, const Arguments&, Budget& b) -> Value { return items_of(v, b).list(); }},
      {"lower",
       [](const Value& v, const Arguments&, Budget& b) -> Value {
         return made(to_lower(to_text(v, b)), b);
       }},
      {"map", map_items},
      {"max", greatest},
      {"min", least},
      {"reject",
       [](const Value& v, const Arguments& a, Budget& b) { return choose(v, a, false, false, b); }},
      {"rejectattr",
       [](const Value& v, const Arguments& a, Budget& b) { return choose(v, a, false, true, b); }},
      {"replace",
       [](const Value& v, const Arguments& a, Budget& b) -> Value {
         const Value count = a.get(2, "count", None{});
         return replace(to_text(v, b), to_text(a.get(0, "old"), b), to_text(a.get(1, "new"), b),
                        count.is_none() ? -1 : expect_integer(count, "replace"), b);
       }},
      {"reverse",
       [](const Value& v, const Arguments&, Budget& b) -> Value {
         if (v.string()) return slice(v, None{}, None{}, -1, b);
         const Items items = items_of(v, b);
         return List(items.all().rbegin(), items.all().rend());
       }},
      {"round", round_number},
      {"safe", [](const Value& v, const Arguments&, Budget&) { return v; }},
      {"select",
       [](const Value& v, const Arguments& a, Budget& b) { return choose(v, a, true, false, b); }},
      {"selectattr",
       [](const Value& v, const Arguments& a, Budget& b) { return choose(v, a, true, true, b); }},
      {"slice", slices},
      {"sort", sort_items},
      {"string",
       [](const Value& v, const Arguments&, Budget& b) -> Value { return to_text(v, b); }},
      {"sum", sum},
      {"title",
       [](const Value& v, const Arguments&, Budget& b) -> Value {
         return made(title_filter(to_text(v, b)), b);
       }},
      {"tojson", to_json_filter},
      {"trim",
       [](const Value& v, const Arguments& a, Budget& b) -> Value {
         const std::string text = to_text(v, b);
         const Value set = a.get(0, "chars", None{});
         if (set.string()) b.spend(8 * set.string()->size());  // it is sorted
         return std::string(strip(
             text, set.string() ? std::optional<std::string_view>(*set.string()) : std::nullopt,
             true, true));
       }},
      {"truncate", truncate},
      {"unique", unique},
      {"upper",
       [](const Value& v, const Arguments&, Budget& b) -> Value {
         return made(to_upper(to_text(v, b)), b);
       }},
      {"urlencode", url_encode},
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

Value apply_filter(const std::string& name, const Value& input, const Arguments& arguments,
                   Budget& budget) {
  const auto found = filters().find(name);
  require(found != filters().end(), ErrorCode::unsupported, "the filter '{}' is not supported",
          name.substr(0, 60));
  budget.spend_on(input);
  budget.spend_on(arguments);
  return found->second(input, arguments, budget);
}

}  // namespace ballast::jinja
