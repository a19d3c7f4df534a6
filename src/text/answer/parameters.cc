#include "text/answer/parameters.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "formats/json_text.h"
#include "text/answer/call_literals.h"

namespace ballast {
namespace {

/// Types of JSON as bits; 0: not said.
using Types = unsigned;
constexpr Types kNull = 1, kBoolean = 2, kInteger = 4, kNumber = 8, kString = 16, kArray = 32,
                kObject = 64;

/// Schemas may refer to themselves.
constexpr int kDeepest = 32;
/// Schemas that are looked at for one parameter: references may multiply.
constexpr int kMost = 10'000;

Types named(std::string_view type) {
  return type == "null"      ? kNull
         : type == "boolean" ? kBoolean
         : type == "integer" ? kInteger
         : type == "number"  ? kNumber | kInteger
         : type == "string"  ? kString
         : type == "array"   ? kArray
         : type == "object"  ? kObject
                             : 0;
}

Types type_of(const Json& value) {
  const bool whole =
      value.is_number_float() && std::floor(value.get<double>()) == value.get<double>();
  return value.is_null()             ? kNull
         : value.is_boolean()        ? kBoolean
         : value.is_number_integer() ? kInteger
         : value.is_number()         ? (whole ? kNumber | kInteger : kNumber)
         : value.is_string()         ? kString
         : value.is_array()          ? kArray
                                     : kObject;
}

/// Types of keywords that say nothing of others.
Types implied(const Json& schema) {
  const auto has = [&](std::initializer_list<const char*> names) {
    return std::ranges::any_of(names, [&](const char* name) { return schema.contains(name); });
  };
  return has({"properties", "required", "patternProperties", "additionalProperties"}) ? kObject
         : has({"items", "prefixItems", "minItems", "maxItems", "uniqueItems"})       ? kArray
         : has({"pattern", "minLength", "maxLength"})                                 ? kString
         : has({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})
             ? kNumber | kInteger
             : 0;
}

/// A part of a reference, in which % and ~ escape characters.
std::string unescaped(std::string_view part) {
  std::string out;
  for (std::size_t at = 0; at < part.size(); ++at) {
    const auto digit = [&](std::size_t i) {
      const char c = i < part.size() ? part[i] : ' ';
      return c >= '0' && c <= '9'                 ? c - '0'
             : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                  : -1;
    };
    if (part[at] == '%' && digit(at + 1) >= 0 && digit(at + 2) >= 0) {
      out += static_cast<char>(16 * digit(at + 1) + digit(at + 2));
      at += 2;
    } else {
      out += part[at];
    }
  }
  for (const auto& [from, to] : {std::pair("~1", "/"), std::pair("~0", "~")}) {
    for (std::size_t at = 0; (at = out.find(from, at)) != std::string::npos; ++at) {
      out.replace(at, 2, to);
    }
  }
  return out;
}

/// What a function's schema says of one parameter.
class Parameter {
 public:
  Parameter(const Json& root, const std::string& name) : root_(root), name_(name) {
    types_ = of_member(root, 0);
  }
  Types types() const { return types_; }
  /// Whether the schema lists this text among its values.
  bool lists(std::string_view text) const {
    return std::ranges::find(texts_, text) != texts_.end();
  }

 private:
  /// Both hold; where they exclude each other, either is something.
  static Types both(Types a, Types b) { return a == 0 || b == 0 || (a & b) == 0 ? a | b : a & b; }

  /// The types of the member that has the parameter's name, of an object's schema.
  Types of_member(const Json& schema, int depth) {
    if (!enter(schema, depth)) return 0;
    Types out = 0;
    const auto properties = schema.find("properties");
    const bool known =
        properties != schema.end() && properties->is_object() && properties->contains(name_);
    if (known) {
      out = of((*properties)[name_], depth + 1);
    } else if (const auto others = schema.find("additionalProperties"); others != schema.end()) {
      out = of(*others, depth + 1);
    }
    return with_parts(schema, out, depth,
                      [this](const Json& part, int d) { return of_member(part, d); });
  }

  Types of(const Json& schema, int depth) {
    if (!enter(schema, depth)) return 0;
    Types out = 0;
    if (const auto type = schema.find("type"); type != schema.end()) {
      for (const Json& one : type->is_array() ? *type : Json::array({*type})) {
        if (one.is_string()) out |= named(one.get_ref<const std::string&>());
      }
    }
    const auto add_value = [&](const Json& value) {
      out |= type_of(value);
      if (value.is_string()) texts_.push_back(value.get<std::string>());
    };
    if (out == 0) {
      if (const auto value = schema.find("const"); value != schema.end()) add_value(*value);
      if (const auto list = schema.find("enum"); list != schema.end() && list->is_array()) {
        for (const Json& value : *list) add_value(value);
      }
    } else if (const auto list = schema.find("enum"); list != schema.end() && list->is_array()) {
      Types listed = 0;
      std::swap(out, listed);
      for (const Json& value : *list) add_value(value);
      out = both(out, listed);
    }
    out = with_parts(schema, out, depth, [this](const Json& part, int d) { return of(part, d); });
    if (out == 0) out = implied(schema);
    if (out != 0 && schema.value("nullable", Json()) == true) out |= kNull;  // OpenAPI's
    return out;
  }

  /// `own` with what the schema's parts say.
  template <typename Look>
  Types with_parts(const Json& schema, Types own, int depth, Look&& look) {
    for (const char* name : {"anyOf", "oneOf"}) {
      const auto list = schema.find(name);
      if (list == schema.end() || !list->is_array()) continue;
      Types any = 0;
      for (const Json& part : *list) any |= look(part, depth + 1);
      own = both(own, any);
    }
    if (const auto list = schema.find("allOf"); list != schema.end() && list->is_array()) {
      for (const Json& part : *list) own = both(own, look(part, depth + 1));
    }
    if (const Json* other = target(schema)) own = both(own, look(*other, depth + 1));
    return own;
  }

  /// Whether a schema is one, and may still be looked at.
  bool enter(const Json& schema, int depth) {
    return schema.is_object() && depth < kDeepest && ++looked_ < kMost;
  }

  /// The schema that another refers to; nullptr: none.
  const Json* target(const Json& schema) const {
    const auto at = schema.find("$ref");
    if (at == schema.end() || !at->is_string()) return nullptr;
    std::string_view rest = at->get_ref<const std::string&>();
    if (!rest.starts_with('#')) return nullptr;
    rest.remove_prefix(1);
    const Json* out = &root_;
    while (!rest.empty()) {
      if (!rest.starts_with('/')) return nullptr;
      rest.remove_prefix(1);
      const std::string key = unescaped(rest.substr(0, rest.find('/')));
      rest.remove_prefix(std::min(rest.find('/'), rest.size()));
      if (out->is_array()) {
        const bool number = !key.empty() && key.size() < 6 &&
                            key.find_first_not_of("0123456789") == std::string::npos;
        if (!number || static_cast<std::size_t>(std::stoi(key)) >= out->size()) return nullptr;
        out = &(*out)[static_cast<std::size_t>(std::stoi(key))];
      } else {
        if (!out->is_object() || !out->contains(key)) return nullptr;
        out = &(*out)[key];
      }
    }
    return out;
  }

  const Json& root_;
  const std::string& name_;
  int looked_ = 0;
  Types types_ = 0;
  std::vector<std::string> texts_;  ///< that enum and const list
};

/// The JSON of a text that is some, or that Python would read.
std::optional<std::string> value_of(std::string_view text, Types types, bool may_be_text) {
  const auto fits = [&](const std::string& json) {
    try {
      return (type_of(parse_json_text<Json>(json, "a parameter")) & types) != 0;
    } catch (const Error&) {  // a model may write anything
      return false;
    }
  };
  if (fits(std::string(text))) return std::string(text);
  if (may_be_text && text.starts_with('[')) return std::nullopt;  // [so] is a text
  LiteralReader reader(text);
  const std::optional<std::string> read = reader.value();
  if (read && reader.rest().find_first_not_of(" \t\r\n") == std::string_view::npos && fits(*read)) {
    return read;
  }
  return std::nullopt;
}

}  // namespace

std::string parameter_json(std::string_view text, const Json& parameters, const std::string& name) {
  const Parameter parameter(parameters, name);
  const Types types = parameter.types() & ~kString;
  if (types != 0 && !parameter.lists(text)) {
    std::string_view bare = text.substr(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
    bare = bare.substr(0, bare.find_last_not_of(" \t\r\n") + 1);
    if (const auto value = value_of(bare, types, (parameter.types() & kString) != 0)) {
      return *value;
    }
  }
  return Json(std::string(text)).dump();
}

}  // namespace ballast
