// The one reader of JSON from outside: files, lines of files, requests.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/fail.h"

namespace ballast {

/// Nesting beyond this is refused: some work on a document is recursive.
inline constexpr std::size_t kDeepestJson = 64;
/// A document takes up to forty times its text's memory.
inline constexpr std::size_t kMostJson = std::size_t{256} << 20;

/// Throws Error that begins with `source` if the text is longer than `most` bytes or nested deeper
/// than kDeepestJson, before any of it is parsed.
void check_json(std::string_view text, std::string_view source, std::size_t most = kMostJson);

/// Parses a whole text within the limits of check_json(). Throws Error that begins with `source`
/// and says at which byte, from 1, the text is not JSON; nothing of the text is in the message.
/// `Json`: nlohmann::json, or nlohmann::ordered_json to keep the order of keys.
template <typename Json = nlohmann::json>
Json parse_json_text(std::string_view text, std::string_view source, std::size_t most = kMostJson) {
  check_json(text, source, most);
  try {
    return Json::parse(text.begin(), text.end());
  } catch (const nlohmann::json::parse_error& e) {
    fail(ErrorCode::bad_file, "{}: not valid JSON at byte {}", source, e.byte);
  } catch (const nlohmann::json::exception&) {
    fail(ErrorCode::bad_file, "{}: a number in this JSON is too large", source);
  }
}

}  // namespace ballast
