// Protocol buffers' wire format, as far as a .model file needs it (developers.google.com,
// protocol-buffers, encoding).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace ballast {

/// A field: an integer, or bytes. Fields of fixed size are passed over.
struct WireField {
  std::uint64_t number = 0;
  std::optional<std::uint64_t> integer;
  std::string_view bytes;
  std::string_view whole;  ///< with its key
};

/// Calls `use(const WireField&)` for each field in turn; false where the bytes are damaged.
template <typename Use>
bool read_fields(std::string_view bytes, Use&& use) {
  std::size_t at = 0;
  const auto integer = [&]() -> std::optional<std::uint64_t> {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64 && at < bytes.size(); shift += 7) {
      const auto byte = static_cast<unsigned char>(bytes[at++]);
      value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    return std::nullopt;
  };
  while (at < bytes.size()) {
    const std::size_t begin = at;
    const auto key = integer();
    if (!key) return false;
    std::optional<std::uint64_t> size;
    switch (*key & 7) {
      case 0: {
        const auto value = integer();
        if (!value) return false;
        use(WireField{*key >> 3, value, {}, bytes.substr(begin, at - begin)});
        continue;
      }
      case 1:
        size = 8;
        break;
      case 2:
        size = integer();
        break;
      case 5:
        size = 4;
        break;
      default:
        return false;
    }
    if (!size || *size > bytes.size() - at) return false;
    at += *size;
    if ((*key & 7) == 2) {
      use(WireField{*key >> 3, std::nullopt, bytes.substr(at - *size, *size),
                    bytes.substr(begin, at - begin)});
    }
  }
  return true;
}

}  // namespace ballast
