#include "text/tokenizer/utf8.h"

#include "ballast/engine/tokenizer.h"

namespace ballast {

Utf8Char next_utf8(std::string_view text, std::size_t begin) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(begin);
  if (lead < 0x80) return {lead, 1, Utf8Char::State::valid};
  if (lead < 0xc2 || lead > 0xf4) return {};
  const std::size_t length = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  char32_t code = lead & (0x7fu >> length);
  // The first continuation byte excludes overlong forms, surrogates and what is past U+10FFFF.
  unsigned low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
  unsigned high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
  for (std::size_t i = 1; i < length; ++i) {
    if (begin + i == text.size()) return {kReplacement, i, Utf8Char::State::unfinished};
    const unsigned next = byte(begin + i);
    if (next < low || next > high) return {kReplacement, i, Utf8Char::State::damaged};
    code = (code << 6) | (next & 0x3f);
    low = 0x80;
    high = 0xbf;
  }
  return {code, length, Utf8Char::State::valid};
}

void append_utf8(std::string& out, char32_t code) {
  const auto tail = [&](int shift) {
    out.push_back(static_cast<char>(0x80 | ((code >> shift) & 0x3f)));
  };
  if (code < 0x80) {
    out.push_back(static_cast<char>(code));
  } else if (code < 0x800) {
    out.push_back(static_cast<char>(0xc0 | (code >> 6)));
    tail(0);
  } else if (code < 0x10000) {
    out.push_back(static_cast<char>(0xe0 | (code >> 12)));
    tail(6);
    tail(0);
  } else {
    out.push_back(static_cast<char>(0xf0 | (code >> 18)));
    tail(12);
    tail(6);
    tail(0);
  }
}

std::string to_valid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const Utf8Char c = next_utf8(text, i);
    out += c.state == Utf8Char::State::valid ? text.substr(i, c.length) : kReplacementUtf8;
    i += c.length;
  }
  return out;
}

}  // namespace ballast
