#include "serve/grammar/schema_keywords.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "serve/http/api_error.h"
#include "text/tokenizer/utf8.h"

namespace ballast::serve {
namespace {

constexpr std::array kTypes = {"object", "array", "string", "number", "integer", "boolean", "null"};
/// Keywords that say nothing about which texts are valid. $defs are looked up where they are named.
constexpr std::array kAnnotations = {"title",
                                     "description",
                                     "default",
                                     "examples",
                                     "example",
                                     "$comment",
                                     "deprecated",
                                     "readOnly",
                                     "writeOnly",
                                     "discriminator",
                                     "externalDocs",
                                     "xml",
                                     "contentEncoding",
                                     "contentMediaType",
                                     "contentSchema",
                                     "$defs",
                                     "definitions",
                                     "$schema",
                                     "$id",
                                     "id",
                                     "$anchor",
                                     "$vocabulary",
                                     "markdownDescription"};
/// Keywords that values of one type alone are held to.
constexpr std::array<std::pair<std::string_view, std::string_view>, 21> kOfTypes = {
    {{"properties", "object"},
     {"required", "object"},
     {"additionalProperties", "object"},
     {"unevaluatedProperties", "object"},
     {"propertyNames", "object"},
     {"items", "array"},
     {"prefixItems", "array"},
     {"additionalItems", "array"},
     {"minItems", "array"},
     {"maxItems", "array"},
     {"uniqueItems", "array"},
     {"unevaluatedItems", "array"},
     {"minLength", "string"},
     {"maxLength", "string"},
     {"pattern", "string"},
     {"format", "string"},
     {"minimum", "number"},
     {"maximum", "number"},
     {"exclusiveMinimum", "number"},
     {"exclusiveMaximum", "number"},
     {"multipleOf", "number"}}};

/// Texts of a format, not all of them: days end with the 28th, which every month has, times are in
/// UTC, addresses are short.
struct Format {
  std::string_view name;
  std::string_view expression;
};
#define BALLAST_DATE "[12]\\d{3}-(0[1-9]|1[012])-(0[1-9]|1\\d|2[0-8])"
#define BALLAST_TIME "([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\dZ"
#define BALLAST_HOST "([a-z0-9]{1,24}(-[a-z0-9]{1,24})?\\.){1,4}[a-z]{2,24}"
#define BALLAST_BYTE "(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define BALLAST_PATH "(:\\d{1,4})?(/[A-Za-z0-9._~-]+)*/?(\\?[A-Za-z0-9._~=&-]*)?"
constexpr std::array<Format, 19> kFormats = {{
    {"date", "^" BALLAST_DATE "$"},
    {"time", "^" BALLAST_TIME "$"},
    {"date-time", "^" BALLAST_DATE "T" BALLAST_TIME "$"},
    {"duration", "^P(\\d{1,3}D(T\\d{1,3}H)?|T\\d{1,3}[HMS])$"},
    {"uuid", "^[0-9a-f]{8}-[0-9a-f]{4}-[1-5][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$"},
    {"email", "^[A-Za-z0-9]+([._+-][A-Za-z0-9]+)*@" BALLAST_HOST "$"},
    {"hostname", "^" BALLAST_HOST "$"},
    {"uri", "^https?://" BALLAST_HOST BALLAST_PATH "$"},
    {"ipv4", "^(" BALLAST_BYTE "\\.){3}" BALLAST_BYTE "$"},
    {"ipv6", "^([0-9a-f]{1,4}:){7}[0-9a-f]{1,4}$"},
    {"idn-email", "^[A-Za-z0-9]+([._+-][A-Za-z0-9]+)*@" BALLAST_HOST "$"},
    {"idn-hostname", "^" BALLAST_HOST "$"},
    {"iri", "^https?://" BALLAST_HOST BALLAST_PATH "$"},
    {"uri-reference", "^(https?://" BALLAST_HOST ")?(/[A-Za-z0-9._~-]+)+$"},
    {"iri-reference", "^(https?://" BALLAST_HOST ")?(/[A-Za-z0-9._~-]+)+$"},
    {"uri-template", "^https?://" BALLAST_HOST "(/([A-Za-z0-9._~-]+|\\{[a-z]+\\}))*$"},
    {"json-pointer", "^(/[A-Za-z0-9_ -]*)*$"},
    {"relative-json-pointer", "^(0|[1-9]\\d?)(#|(/[A-Za-z0-9_ -]*)*)$"},
    {"regex", "^[A-Za-z0-9 _-]*$"},
}};
#undef BALLAST_DATE
#undef BALLAST_TIME
#undef BALLAST_HOST
#undef BALLAST_PATH
#undef BALLAST_BYTE

const Format* known_format(const Json& name) {
  if (!name.is_string()) return nullptr;
  const auto at = std::ranges::find(kFormats, std::string_view(name.get_ref<const std::string&>()),
                                    &Format::name);
  return at == kFormats.end() ? nullptr : &*at;
}

std::vector<std::string> types_said(Fields& f, const Json& json) {
  const Json* type = f.find("type");
  if (type == nullptr) {
    std::vector<std::string> out;
    for (const auto& [name, of] : kOfTypes) {
      const auto at = json.find(name);
      const bool says =
          at != json.end() && !at->is_null() && (name != "format" || known_format(*at) != nullptr);
      if (says && std::ranges::count(out, of) == 0) out.emplace_back(of);
    }
    return out;
  }
  const Json all = type->is_array() ? *type : Json::array({*type});
  std::vector<std::string> out;
  for (const Json& one : all) {
    if (!one.is_string() || std::ranges::find(kTypes, one.get<std::string>()) == kTypes.end()) {
      refuse(f.full("type"), "{}: {} is unknown; known: {}", f.full("type"), shown(one),
             fmt::join(kTypes, ", "));
    }
    if (std::ranges::count(out, one.get<std::string>()) == 0) out.push_back(one);
  }
  if (out.empty()) refuse(f.full("type"), "{}: no type is given", f.full("type"));
  return out;
}

}  // namespace

bool is_annotation(std::string_view name) {
  return name.starts_with("x-") || std::ranges::find(kAnnotations, name) != kAnnotations.end();
}

std::string shortened(const std::string& where) {
  constexpr std::size_t kLongest = 400;
  return where.size() <= kLongest ? where : to_utf8(where.substr(0, kLongest - 3)) + "...";
}

bool stands_alone(const Json& json, std::string_view keyword) {
  for (const auto& [name, value] : json.items()) {
    if (name != keyword && !value.is_null() && !is_annotation(name)) return false;
  }
  return true;
}

std::vector<std::string> types_of(Fields& f, const Json& json) {
  std::vector<std::string> out = types_said(f, json);
  if (f.flag("nullable", false) && !out.empty() && std::ranges::count(out, "null") == 0) {
    out.emplace_back("null");
  }
  return out;
}

void end_keywords(Fields& f, const Json& json, const std::vector<std::string>& types) {
  const auto has = [&](std::string_view type) {
    return std::ranges::any_of(types, [&](const std::string& one) {
      return one == type || (type == "number" && one == "integer");
    });
  };
  for (const auto& [name, value] : json.items()) {
    const auto at = std::ranges::find(kOfTypes, std::string_view(name),
                                      [](const auto& pair) { return pair.first; });
    if (is_annotation(name) || (at != kOfTypes.end() && !has(at->second))) {
      f.ignore({name.c_str()});
    }
  }
  f.end();
}

std::optional<std::string_view> format_expression(const Json& name) {
  const Format* const format = known_format(name);
  return format == nullptr ? std::nullopt : std::optional(format->expression);
}

bool is_of(const Json& value, std::string_view type) {
  if (type == "integer") {
    return value.is_number_integer() ||
           (value.is_number() && value.get<double>() == std::trunc(value.get<double>()));
  }
  return type == "object"    ? value.is_object()
         : type == "array"   ? value.is_array()
         : type == "string"  ? value.is_string()
         : type == "number"  ? value.is_number()
         : type == "boolean" ? value.is_boolean()
                             : value.is_null();
}

char letter_of(const Json& value) {
  return value.is_object()    ? 'o'
         : value.is_array()   ? 'a'
         : value.is_string()  ? 's'
         : value.is_number()  ? 'n'
         : value.is_boolean() ? 'b'
                              : '0';
}

}  // namespace ballast::serve
