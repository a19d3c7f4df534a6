// JSON results: keys in the order in which they were set, the same bytes for the same content.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace ballast {

using Json = nlohmann::ordered_json;

/// Indented, ending in a newline. Text that is not UTF-8 is made so, NaN and infinity become null.
inline std::string to_text(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + '\n';
}

/// The text with what is not UTF-8 replaced.
inline std::string to_utf8(std::string_view text) {
  return Json::parse(Json(text).dump(-1, ' ', false, Json::error_handler_t::replace));
}

}  // namespace ballast
