#include "text/jinja/strings.h"

#include <unicode/locid.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "base/parse_double.h"
#include "text/tokenizer/utf8.h"

namespace ballast::jinja {
namespace {

bool is_space(char32_t c) {
  return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
         c == 0x3000;
}

bool is_cased(char32_t c) { return u_hasBinaryProperty(static_cast<UChar32>(c), UCHAR_CASED) != 0; }

bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::string to_utf8(const icu::UnicodeString& text) {
  std::string out;
  text.toUTF8String(out);
  return out;
}

icu::UnicodeString to_utf16(std::string_view text) {
  return icu::UnicodeString::fromUTF8(
      icu::StringPiece(text.data(), static_cast<std::int32_t>(text.size())));
}

}  // namespace

std::size_t count_characters(std::string_view text) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < text.size(); ++count) {
    i += (text[i] & 0x80) == 0 ? 1 : next_utf8(text, i).length;
  }
  return count;
}

std::string_view first_characters(std::string_view text, std::size_t count) {
  std::size_t end = 0;
  for (; count > 0 && end < text.size(); --count) {
    end += (text[end] & 0x80) == 0 ? 1 : next_utf8(text, end).length;
  }
  return text.substr(0, end);
}

std::size_t find_text(std::string_view text, std::string_view wanted) {
  const void* at = memmem(text.data(), text.size(), wanted.data(), wanted.size());
  return at == nullptr ? std::string_view::npos
                       : static_cast<std::size_t>(static_cast<const char*>(at) - text.data());
}

std::size_t find_last_text(std::string_view text, std::string_view wanted) {
  if (wanted.size() <= 32 || wanted.size() > text.size()) return text.rfind(wanted);
  const std::string backwards(text.rbegin(), text.rend());
  const std::size_t at = find_text(backwards, std::string(wanted.rbegin(), wanted.rend()));
  return at == std::string_view::npos ? at : text.size() - at - wanted.size();
}

std::string_view strip(std::string_view text, std::optional<std::string_view> set, bool left,
                       bool right) {
  std::vector<std::string_view> members;
  for (std::size_t i = 0; set && i < set->size(); i += members.back().size()) {
    members.push_back(set->substr(i, next_utf8(*set, i).length));
  }
  std::ranges::sort(members);
  members.erase(std::unique(members.begin(), members.end()), members.end());
  const auto goes = [&](std::size_t begin, std::size_t length) {
    return set ? std::ranges::binary_search(members, text.substr(begin, length))
               : is_space(next_utf8(text, begin).code);
  };
  while (left && !text.empty()) {
    const std::size_t length = next_utf8(text, 0).length;
    if (!goes(0, length)) break;
    text.remove_prefix(length);
  }
  while (right && !text.empty()) {
    std::size_t begin = text.size() - 1;
    while (begin > 0 && text.size() - begin < 4 && (text[begin] & 0xc0) == 0x80) --begin;
    if (!goes(begin, text.size() - begin)) break;
    text = text.substr(0, begin);
  }
  return text;
}

List split(std::string_view text, std::optional<std::string_view> separator, std::int64_t limit) {
  List out;
  spend(text.size() / 4);
  const auto add = [&](std::string_view part) {
    spend(part.size() + 16);
    out.emplace_back(std::string(part));
  };
  if (separator) {
    require(!separator->empty(), "split: the separator is empty");
    for (std::size_t at; limit != 0 && (at = find_text(text, *separator)) != std::string_view::npos;
         --limit) {
      add(text.substr(0, at));
      text.remove_prefix(at + separator->size());
    }
    add(text);
    return out;
  }
  text = strip(text, std::nullopt, true, false);
  while (!text.empty()) {
    if (limit-- == 0) {
      add(text);
      break;
    }
    std::size_t end = 0;
    while (end < text.size() && !is_space(next_utf8(text, end).code)) {
      end += next_utf8(text, end).length;
    }
    add(text.substr(0, end));
    text = strip(text.substr(end), std::nullopt, true, false);
  }
  return out;
}

List split_right(std::string_view text, std::optional<std::string_view> separator,
                 std::int64_t limit) {
  List out;
  spend(text.size() / 4);
  const auto add = [&](std::string_view part) {
    spend(part.size() + 16);
    out.emplace_back(std::string(part));
  };
  if (!separator) text = strip(text, std::nullopt, false, true);
  require(!separator || !separator->empty(), "rsplit: the separator is empty");
  while (separator || !text.empty()) {
    std::size_t begin = 0, end = std::string_view::npos;
    if (separator) {
      end = find_last_text(text, *separator);
      begin = end + separator->size();
    } else {
      for (std::size_t i = text.size(); i > 0 && end == std::string_view::npos;) {
        begin = i;
        for (--i; i > 0 && begin - i < 4 && (text[i] & 0xc0) == 0x80;) --i;
        if (is_space(next_utf8(text, i).code)) end = i;
      }
    }
    if (limit-- == 0 || end == std::string_view::npos) {
      add(text);
      break;
    }
    spend(text.size() / 16 + 1);
    add(text.substr(begin));
    text = text.substr(0, end);
    if (!separator) text = strip(text, std::nullopt, false, true);
  }
  std::reverse(out.begin(), out.end());
  return out;
}

List split_lines(std::string_view text, bool keep) {
  const auto is_end = [](char32_t c) {
    return (c >= 10 && c <= 13) || (c >= 28 && c <= 30) || c == 0x85 || c == 0x2028 || c == 0x2029;
  };
  List out;
  for (std::size_t i = 0; i < text.size();) {
    const Utf8Char character = next_utf8(text, i);
    const std::size_t end = i;
    i += character.length;
    if (!is_end(character.code)) {
      if (i < text.size()) continue;
      out.emplace_back(std::string(text));
      break;
    }
    if (character.code == '\r' && i < text.size() && text[i] == '\n') ++i;
    spend(i + 16);
    out.emplace_back(std::string(text.substr(0, keep ? i : end)));
    text.remove_prefix(i);
    i = 0;
  }
  spend(text.size() + 1);
  return out;
}

std::string replace(std::string_view text, std::string_view from, std::string_view to,
                    std::int64_t limit) {
  std::string out;
  spend(text.size());
  if (from.empty()) {  // between all characters, as in Python
    for (; limit != 0; --limit) {
      spend(to.size() + 1);
      out += to;
      if (text.empty()) break;
      const std::string_view first = first_characters(text, 1);
      out += first;
      text.remove_prefix(first.size());
    }
    return out += text;
  }
  for (std::size_t at; limit != 0 && (at = find_text(text, from)) != std::string_view::npos;
       --limit) {
    spend(to.size() + 1);
    out += text.substr(0, at);
    out += to;
    text.remove_prefix(at + from.size());
  }
  return out += text;
}

std::string to_upper(std::string_view text) {
  return to_utf8(to_utf16(text).toUpper(icu::Locale::getRoot()));
}

std::string to_lower(std::string_view text) {
  return to_utf8(to_utf16(text).toLower(icu::Locale::getRoot()));
}

std::string capitalize(std::string_view text) {
  if (text.empty()) return "";
  const std::size_t first = next_utf8(text, 0).length;
  return to_upper(text.substr(0, first)) + to_lower(text.substr(first));
}

std::string title_filter(std::string_view text) {
  constexpr std::string_view kBetween = "-({[< \t\n\r\f\v";
  std::string out;
  while (!text.empty()) {
    const bool between = kBetween.find(text[0]) != std::string_view::npos;
    const std::size_t end =
        between ? text.find_first_not_of(kBetween) : text.find_first_of(kBetween);
    const std::string_view part = text.substr(0, end);
    out += between ? std::string(part) : capitalize(part);
    text.remove_prefix(part.size());
  }
  return out;
}

std::string title_method(std::string_view text) {
  std::string out;
  bool within = false;
  for (std::size_t i = 0; i < text.size();) {
    const Utf8Char character = next_utf8(text, i);
    const std::string_view bytes = text.substr(i, character.length);
    const bool cased = is_cased(character.code);
    out += !cased ? std::string(bytes) : within ? to_lower(bytes) : to_upper(bytes);
    within = cased;
    i += character.length;
  }
  return out;
}

std::optional<bool> is_kind(std::string_view text, std::string_view method) {
  using Predicate = bool (*)(UChar32);
  static constexpr auto kNumeric = [](UChar32 c, int least) {
    const int type = u_getIntPropertyValue(c, UCHAR_NUMERIC_TYPE);
    return type != U_NT_NONE && (least == U_NT_NUMERIC || type == U_NT_DECIMAL || type == least);
  };
  static constexpr std::pair<std::string_view, Predicate> kEach[] = {
      {"isalpha", [](UChar32 c) { return u_isalpha(c) != 0; }},
      {"isalnum", [](UChar32 c) { return u_isalpha(c) || kNumeric(c, U_NT_NUMERIC); }},
      {"isdecimal", [](UChar32 c) { return kNumeric(c, U_NT_DECIMAL); }},
      {"isdigit", [](UChar32 c) { return kNumeric(c, U_NT_DIGIT); }},
      {"isnumeric", [](UChar32 c) { return kNumeric(c, U_NT_NUMERIC); }},
      {"isspace", [](UChar32 c) { return is_space(static_cast<char32_t>(c)); }},
      {"isascii", [](UChar32 c) { return c < 128; }}};
  const bool is_upper = method == "isupper", is_lower = method == "islower";
  const auto* found = std::find_if(std::begin(kEach), std::end(kEach),
                                   [&](const auto& each) { return each.first == method; });
  if (found == std::end(kEach) && !is_upper && !is_lower) return std::nullopt;
  bool has_case = false;
  for (std::size_t i = 0; i < text.size();) {
    const Utf8Char character = next_utf8(text, i);
    const auto c = static_cast<UChar32>(character.code);
    i += character.length;
    if (is_upper || is_lower) {
      if (is_upper ? u_isULowercase(c) || u_istitle(c) : u_isUUppercase(c) || u_istitle(c)) {
        return false;
      }
      has_case = has_case || is_cased(character.code);
    } else if (!found->second(c)) {
      return false;
    }
  }
  return is_upper || is_lower ? has_case : !text.empty() || method == "isascii";
}

std::optional<Value> parse_integer(std::string_view text, int base) {
  text = strip(text, std::nullopt, true, true);
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  int prefix = 0;
  if (text.size() > 2 && text[0] == '0') {
    const char letter = static_cast<char>(text[1] | 0x20);
    prefix = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
  }
  if (prefix != 0 && (base == 0 || base == prefix)) {
    base = prefix;
    text.remove_prefix(2);
    if (text.starts_with('_')) text.remove_prefix(1);
  } else if (base == 0) {
    base = 10;
    const bool is_zero = text.find_first_not_of("0_") == std::string_view::npos;
    if (text.starts_with('0') && !is_zero) return std::nullopt;
  }
  if (text.empty() || text.back() == '_') return std::nullopt;
  Integer value = 0;
  bool too_large = false, after_digit = false;
  for (char c : text) {
    if (c == '_' && after_digit) {
      after_digit = false;
      continue;
    }
    const char lower = static_cast<char>(c | 0x20);
    const int digit = c >= '0' && c <= '9'           ? c - '0'
                      : lower >= 'a' && lower <= 'z' ? lower - 'a' + 10
                                                     : 36;
    if (digit >= base) return std::nullopt;
    after_digit = true;
    too_large = too_large || __builtin_mul_overflow(value, Integer{base}, &value) ||
                __builtin_add_overflow(value, Integer{digit}, &value);
  }
  if (too_large) return Value();
  return Value(negative ? -value : value);
}

std::optional<double> parse_real(std::string_view text) {
  std::string plain;
  text = strip(text, std::nullopt, true, true);
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto digit = [&](std::size_t at) { return at < text.size() && is_digit(text[at]); };
    if (text[i] != '_') {
      plain += text[i];
    } else if (i == 0 || !digit(i - 1) || !digit(i + 1)) {
      return std::nullopt;
    }
  }
  if (plain.starts_with('+') && plain.size() > 1 && plain[1] != '-') plain.erase(0, 1);
  if (plain.find('(') != std::string::npos) return std::nullopt;
  double value = 0;
  const char* end = plain.data() + plain.size();
  const auto [stop, error] = parse_double(plain.data(), end, value);
  if (stop != end) return std::nullopt;
  if (error == std::errc::result_out_of_range) return std::strtod(plain.c_str(), nullptr);
  return error == std::errc() ? std::optional(value) : std::nullopt;
}

std::string indent(std::string_view text, std::string_view spaces, bool first, bool blank) {
  std::string out;
  for (bool is_first = true;; is_first = false) {
    const std::size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    if (is_first ? first : (blank || !line.empty())) {
      spend(spaces.size());
      out += spaces;
    }
    spend(line.size() + 1);
    out += line;
    if (end == std::string_view::npos) return out;
    out += '\n';
    text.remove_prefix(end + 1);
  }
}

}  // namespace ballast::jinja
