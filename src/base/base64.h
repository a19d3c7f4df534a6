// Bytes as text.
#pragma once

#include <string>
#include <string_view>

namespace ballast {

/// The bytes of a base64 text, up to its padding or the first letter of no base64.
std::string decode_base64(std::string_view text);

}  // namespace ballast
