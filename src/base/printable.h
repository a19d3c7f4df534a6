// Text of unknown origin for one-line messages.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace ballast {

/// The text with everything but printable ASCII escaped, shortened to about 80 characters.
inline std::string printable(std::string_view text) {
  std::string out;
  for (unsigned char c : text) {
    if (out.size() >= 80) return out + "…";
    if (c >= 0x20 && c < 0x7f) {
      out += static_cast<char>(c);
    } else {
      out += fmt::format("\\x{:02x}", c);
    }
  }
  return out;
}

}  // namespace ballast
