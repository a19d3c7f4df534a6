// JSON results: keys keep insertion order, so equal content gives equal bytes.
#pragma once

#include <limits>
#include <string>
#include <string_view>

#include "formats/json_text.h"

namespace ballast {

/// Indented text that ends in a newline. Invalid UTF-8 is replaced; NaN and infinity become null.
inline std::string to_text(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + '\n';
}

/// The number, or NaN for the null that to_text() wrote.
inline double number_of(const Json& json) {
  return json.is_null() ? std::numeric_limits<double>::quiet_NaN() : json.get<double>();
}

/// The text with invalid UTF-8 replaced.
inline std::string to_utf8(std::string_view text) {
  return parse_own_json(Json(text).dump(-1, ' ', false, Json::error_handler_t::replace));
}

}  // namespace ballast
