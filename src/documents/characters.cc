#include "documents/characters.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <utility>
#include <vector>

#include "text/tokenizer/utf8.h"

namespace ballast {
namespace {

struct Named {
  std::string_view name;
  std::string characters;
};

std::vector<Named> read_names() {
  std::vector<Named> out;
  std::string_view rest = html_characters();
  while (!rest.empty()) {
    std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    Named one{line.substr(0, line.find(' ')), {}};
    for (std::size_t at = one.name.size(); at < line.size();) {
      std::uint32_t code = 0;
      const char* end =
          std::from_chars(line.data() + at + 1, line.data() + line.size(), code, 16).ptr;
      append_utf8(one.characters, code);
      at = static_cast<std::size_t>(end - line.data());
    }
    out.push_back(std::move(one));
  }
  return out;
}

/// Of the names, the longest with which the text begins.
const Named* name_at(std::string_view text) {
  static const std::vector<Named>& names = *new std::vector<Named>(read_names());
  constexpr std::size_t kLongest = 32;
  text = text.substr(0, kLongest);
  const auto is_name = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  };
  std::size_t size = 0;
  while (size < text.size() && is_name(text[size])) ++size;
  if (size < text.size() && text[size] == ';') ++size;
  for (; size > 1; --size) {
    const auto at = std::ranges::lower_bound(names, text.substr(0, size), {}, &Named::name);
    if (at != names.end() && at->name == text.substr(0, size)) return &*at;
  }
  return nullptr;
}

/// What the standard makes of a number: those of Windows-1252 where Unicode has controls.
char32_t numbered(std::uint32_t code) {
  constexpr std::array<char16_t, 32> kWindows = {
      0x20ac, 0x81,   0x201a, 0x192,  0x201e, 0x2026, 0x2020, 0x2021, 0x2c6,  0x2030, 0x160,
      0x2039, 0x152,  0x8d,   0x17d,  0x8f,   0x90,   0x2018, 0x2019, 0x201c, 0x201d, 0x2022,
      0x2013, 0x2014, 0x2dc,  0x2122, 0x161,  0x203a, 0x153,  0x9d,   0x17e,  0x178};
  if (code >= 0x80 && code < 0xa0) return kWindows[code - 0x80];
  if (code == 0 || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return kReplacement;
  return code;
}

/// The bytes of the reference at the beginning of the text, "&#" or "&#x" and digits; 0: none.
std::size_t number_at(std::string_view text, char32_t& code) {
  const bool hex = text.size() > 2 && (text[2] == 'x' || text[2] == 'X');
  const std::size_t begin = hex ? 3 : 2;
  std::size_t end = begin;
  std::uint32_t value = 0;
  for (; end < text.size(); ++end) {
    std::uint32_t digit = 0;
    const auto [stop, error] =
        std::from_chars(text.data() + end, text.data() + end + 1, digit, hex ? 16 : 10);
    if (error != std::errc()) break;
    value = std::min<std::uint32_t>(value * (hex ? 16 : 10) + digit, 0x110000);
  }
  if (end == begin) return 0;
  code = numbered(value);
  return end < text.size() && text[end] == ';' ? end + 1 : end;
}

}  // namespace

std::string with_characters(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t plain = std::min(text.find('&'), text.size());
    out += text.substr(0, plain);
    text.remove_prefix(plain);
    if (text.empty()) break;
    char32_t code = 0;
    if (text.starts_with("&#")) {
      if (const std::size_t size = number_at(text, code); size > 0) {
        append_utf8(out, code);
        text.remove_prefix(size);
        continue;
      }
    } else if (const Named* named = name_at(text.substr(1))) {
      out += named->characters;
      text.remove_prefix(1 + named->name.size());
      continue;
    }
    out += '&';
    text.remove_prefix(1);
  }
  return out;
}

}  // namespace ballast
