// The JSON library's messages without its own names.
#pragma once

#include <exception>
#include <string>
#include <string_view>

namespace ballast {

/// what() without "[json.exception.…] " before it.
inline std::string json_reason(const std::exception& error) {
  std::string_view text = error.what();
  if (text.starts_with("[json.exception.")) {
    const std::size_t end = text.find("] ");
    if (end != std::string_view::npos) text.remove_prefix(end + 2);
  }
  return std::string(text);
}

}  // namespace ballast
