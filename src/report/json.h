// JSON results: keys in the order in which they were set, the same bytes for the same content.
#pragma once

#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace ballast {

using Json = nlohmann::ordered_json;

/// Indented, ending in a newline. Text that is not UTF-8 is made so, NaN and infinity become null.
inline std::string to_text(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + '\n';
}

/// A number, NaN where to_text wrote null.
inline double number_of(const Json& json) {
  return json.is_null() ? std::numeric_limits<double>::quiet_NaN() : json.get<double>();
}

/// The text with what is not UTF-8 replaced.
inline std::string to_utf8(std::string_view text) {
  return Json::parse(Json(text).dump(-1, ' ', false, Json::error_handler_t::replace));
}

}  // namespace ballast
