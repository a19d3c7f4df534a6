// Bytes as text.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace ballast {

std::string encode_base64(std::span<const std::byte> bytes);

/// The bytes of a base64 text, up to its padding or the first letter of no base64.
std::string decode_base64(std::string_view text);

}  // namespace ballast
