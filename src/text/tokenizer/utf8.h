// Decodes UTF-8 that may be damaged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ballast {

inline constexpr char32_t kReplacement = 0xfffd;
inline constexpr std::string_view kReplacementUtf8 = "\xef\xbf\xbd";

/// One character, or the longest part of one that is damaged (then its code is U+FFFD).
struct Utf8Char {
  enum class State : std::uint8_t { valid, damaged, unfinished };
  char32_t code = kReplacement;
  std::size_t length = 1;
  State state = State::damaged;  ///< unfinished: the text ends within the character
};

/// The character at `begin` < text.size().
Utf8Char next_utf8(std::string_view text, std::size_t begin);

/// Appends a Unicode scalar value.
void append_utf8(std::string& out, char32_t code);

}  // namespace ballast
