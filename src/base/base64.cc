#include "base/base64.h"

namespace ballast {
namespace {

constexpr std::string_view kDigits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

}  // namespace

std::string encode_base64(std::span<const std::byte> bytes) {
  std::string out;
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    const std::size_t left = bytes.size() - at;
    unsigned three = 0;
    for (std::size_t i = 0; i < 3; ++i) {
      three = three << 8 | (i < left ? std::to_integer<unsigned>(bytes[at + i]) : 0);
    }
    for (std::size_t i = 0; i < 4; ++i) {
      out += i > left ? '=' : kDigits[three >> (18 - 6 * i) & 0x3f];
    }
  }
  return out;
}

std::string decode_base64(std::string_view text) {
  std::string out;
  unsigned bits = 0;
  int count = 0;
  for (char c : text) {
    const auto value = kDigits.find(c);
    if (value == std::string_view::npos) break;  // the padding
    bits = bits << 6 | static_cast<unsigned>(value);
    count += 6;
    if (count >= 8) {
      count -= 8;
      out.push_back(static_cast<char>(bits >> count));
    }
  }
  return out;
}

}  // namespace ballast
