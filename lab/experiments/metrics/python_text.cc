#include "experiments/metrics/python_text.h"

#include <unicode/locid.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>

#include <algorithm>

#include "text/tokenizer/utf8.h"

namespace ballast {

std::u32string to_code_points(std::string_view text) {
  std::u32string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const Utf8Char c = next_utf8(text, i);
    out.push_back(c.code);
    i += c.length;
  }
  return out;
}

std::string to_utf8(std::u32string_view code_points) {
  std::string out;
  out.reserve(code_points.size());
  for (char32_t c : code_points) append_utf8(out, c);
  return out;
}

std::size_t count_code_points(std::string_view text) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < text.size(); ++count) i += next_utf8(text, i).length;
  return count;
}

std::string to_lower(std::string_view text) {
  // The final sigma of Greek depends on its neighbours, so the text goes through ICU as a whole.
  const auto ascii = [](char c) { return static_cast<unsigned char>(c) < 0x80; };
  if (std::all_of(text.begin(), text.end(), ascii)) {
    std::string out(text);
    for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
    return out;
  }
  icu::UnicodeString wide =
      icu::UnicodeString::fromUTF8(icu::StringPiece(text.data(), static_cast<int>(text.size())));
  wide.toLower(icu::Locale::getRoot());
  std::string out;
  wide.toUTF8String(out);
  return out;
}

bool is_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x1f);
  return c == 0x85 || (U_GET_GC_MASK(static_cast<UChar32>(c)) & U_GC_Z_MASK) != 0;
}

bool is_word_character(char32_t c) {
  return c == '_' || (U_GET_GC_MASK(static_cast<UChar32>(c)) & (U_GC_L_MASK | U_GC_N_MASK)) != 0;
}

std::vector<std::string> split_whitespace(std::string_view text) {
  std::vector<std::string> words;
  bool within = false;
  for (std::size_t i = 0; i < text.size();) {
    const Utf8Char c = next_utf8(text, i);
    const bool space = is_space(c.code);
    if (!space && !within) words.emplace_back();
    if (!space) words.back() += text.substr(i, c.length);
    within = !space;
    i += c.length;
  }
  return words;
}

std::vector<std::string> split_at(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (;;) {
    const std::size_t end = text.find(separator);
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::string strip(std::string_view text) {
  std::size_t begin = text.size(), end = text.size();
  bool found = false;
  for (std::size_t i = 0; i < text.size();) {
    const Utf8Char c = next_utf8(text, i);
    i += c.length;
    if (is_space(c.code)) continue;
    if (!found) begin = i - c.length;
    found = true;
    end = i;
  }
  return std::string(text.substr(begin, end - begin));
}

std::string first_line(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of('\n'), text.size()));
  return std::string(text.substr(0, text.find('\n')));
}

std::vector<std::string> find_numbers(std::string_view text) {
  std::vector<std::string> numbers;
  bool within = false;
  for (std::size_t i = 0; i < text.size();) {
    const Utf8Char c = next_utf8(text, i);
    i += c.length;
    const auto code = static_cast<UChar32>(c.code);
    const bool digit = u_charType(code) == U_DECIMAL_DIGIT_NUMBER;
    if (digit && !within) numbers.emplace_back();
    if (digit) numbers.back() += text.substr(i - c.length, c.length);
    within = digit;
  }
  return numbers;
}

std::string ascii_digits(std::string_view number) {
  std::string out;
  for (std::size_t i = 0; i < number.size();) {
    const Utf8Char c = next_utf8(number, i);
    i += c.length;
    out += static_cast<char>('0' + u_charDigitValue(static_cast<UChar32>(c.code)));
  }
  return out;
}

std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  for (;;) {
    const std::size_t at = text.find(from);
    out += text.substr(0, at);
    if (at == std::string_view::npos) return out;
    out += to;
    text.remove_prefix(at + from.size());
  }
}

}  // namespace ballast
