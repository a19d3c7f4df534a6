#include "serve/http/fields.h"

#include <algorithm>
#include <cmath>

#include "formats/json_text.h"
#include "report/terminal.h"
#include "serve/http/api_error.h"

namespace ballast::serve {
namespace {

constexpr std::size_t kValues = 1'000'000;

}  // namespace

std::string line(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string shown(const Json& value) {
  std::string text = line(value);
  if (text.size() > 60) text = to_utf8(text.substr(0, 57)) + "...";
  return text;
}

std::string shown_text(std::string_view text) {
  constexpr std::size_t kLongest = 80;
  if (text.size() <= kLongest) return terminal_text(text);
  std::size_t end = kLongest;
  while (end > 0 && (text[end] & 0xc0) == 0x80) --end;
  return terminal_text(text.substr(0, end)) + "…";
}

void unsupported(const std::string& place, const Json& value, const std::string& known) {
  throw ApiError(400, "unsupported_parameter",
                 fmt::format("{}: {} is not supported; known: {}", place, shown(value), known),
                 place);
}

Json parse_object(std::string_view text) {
  Json json;
  try {
    json = parse_json_text<Json>(text, "the body", {.values = kValues});
  } catch (const Error& error) {
    throw ApiError(400, "invalid_json", error.what());
  }
  if (!json.is_object()) throw ApiError(400, "invalid_json", "the body must be a JSON object");
  return json;
}

Fields::Fields(const Json& object, std::string where) : object_(object), where_(std::move(where)) {
  if (!object.is_object()) {
    const std::string name = where_.substr(0, where_.find_last_not_of('.') + 1);
    refuse(name, "{}: {} is not an object", name, shown(object));
  }
}

const Json* Fields::find(const char* name) {
  known_.insert(name);
  const auto at = object_.find(name);
  return at == object_.end() || at->is_null() ? nullptr : &*at;
}

std::optional<std::string> Fields::text(const char* name) {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) refuse(full(name), "{}: {} is not a string", full(name), shown(*value));
  return value->get<std::string>();
}

const Json& Fields::value(const char* name) {
  const Json* value = find(name);
  if (value == nullptr) refuse(full(name), "{} is missing", full(name));
  return *value;
}

std::string Fields::needed(const char* name) {
  value(name);
  return *text(name);
}

const Json& Fields::list(const char* name) {
  const Json& list = value(name);
  if (!list.is_array()) refuse(full(name), "{}: {} is not an array", full(name), shown(list));
  return list;
}

Fields Fields::inside(const char* name) { return Fields(value(name), full(name) + "."); }

std::string Fields::one_of(const char* name, std::initializer_list<const char*> known,
                           const std::string& standard) {
  std::string value = text(name).value_or(standard);
  if (std::ranges::find(known, value) != known.end()) return value;
  refuse(full(name), "{}: {} is unknown; known: \"{}\"", full(name), shown(Json(value)),
         fmt::join(known, "\", \""));
}

bool Fields::flag(const char* name, bool standard) {
  const Json* value = find(name);
  if (value == nullptr) return standard;
  if (!value->is_boolean()) {
    refuse(full(name), "{}: {} is neither true nor false", full(name), shown(*value));
  }
  return value->get<bool>();
}

double Fields::number(const char* name, double low, double high, double standard) {
  const Json* value = find(name);
  if (value == nullptr) return standard;
  const double number = value->is_number() ? value->get<double>() : std::nan("");
  if (!(number >= low && number <= high)) {
    refuse(full(name), "{}: {} is not a number from {} to {}", full(name), shown(*value), low,
           high);
  }
  return number;
}

std::optional<std::uint64_t> Fields::count(const char* name, std::uint64_t low,
                                           std::uint64_t high) {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  const bool whole = value->is_number_unsigned();
  const std::uint64_t number = whole ? value->get<std::uint64_t>() : 0;
  if (!whole || number < low || number > high) {
    refuse(full(name), "{}: {} is not a whole number from {} to {}", full(name), shown(*value), low,
           high);
  }
  return number;
}

void Fields::only(const char* name, const Json& harmless) {
  const Json* value = find(name);
  if (value != nullptr && *value != harmless) {
    throw ApiError(400, "unsupported_parameter",
                   fmt::format("{}: {} is not supported; leave it out or give {}", full(name),
                               shown(*value), shown(harmless)),
                   full(name));
  }
}

void Fields::ignore(std::initializer_list<const char*> names) {
  for (const char* name : names) known_.insert(name);
}

void Fields::end() const {
  for (const auto& [name, value] : object_.items()) {
    if (known_.contains(name) || value.is_null()) continue;
    throw ApiError(400, "unknown_parameter",
                   fmt::format("{}: this field is not known or not supported; leave it out",
                               to_utf8(full(name))),
                   to_utf8(full(name)));
  }
}

}  // namespace ballast::serve
