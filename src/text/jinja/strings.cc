#include "text/jinja/strings.h"

#include <unicode/locid.h>
#include <unicode/unistr.h>

#include "base/fail.h"
#include "text/jinja/builtins.h"
#include "text/tokenizer/utf8.h"

namespace ballast::jinja {
namespace {

bool is_space(char32_t c) {
  return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
         c == 0x3000;
}

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

std::vector<std::string> characters(std::string_view text) {
  std::vector<std::string> out;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = next_utf8(text, i).length;
    out.emplace_back(text.substr(i, length));
    i += length;
  }
  return out;
}

std::string_view strip(std::string_view text, std::optional<std::string_view> set, bool left,
                       bool right) {
  const auto goes = [&](std::size_t begin, std::size_t length) {
    if (!set) return is_space(next_utf8(text, begin).code);
    for (std::size_t i = 0; i < set->size();) {
      const std::size_t size = next_utf8(*set, i).length;
      if (set->substr(i, size) == text.substr(begin, length)) return true;
      i += size;
    }
    return false;
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

List split(std::string_view text, std::optional<std::string_view> separator, std::int64_t limit,
           Budget& budget) {
  List out;
  const auto add = [&](std::string_view part) {
    budget.spend(part.size() + 16);
    out.emplace_back(std::string(part));
  };
  if (separator) {
    require(!separator->empty(), "split: the separator is empty");
    for (std::size_t at; limit != 0 && (at = text.find(*separator)) != std::string_view::npos;
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

std::string replace(std::string_view text, std::string_view from, std::string_view to,
                    std::int64_t limit, Budget& budget) {
  std::string out;
  budget.spend(text.size());
  if (from.empty()) {  // between all characters, as in Python
    const auto parts = characters(text);
    for (std::size_t i = 0; i <= parts.size(); ++i) {
      if (limit != 0) {
        budget.spend(to.size());
        out += to;
        --limit;
      }
      if (i < parts.size()) out += parts[i];
    }
    return out;
  }
  for (std::size_t at; limit != 0 && (at = text.find(from)) != std::string_view::npos; --limit) {
    budget.spend(to.size() + 1);
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

std::string title(std::string_view text) {
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

std::string indent(std::string_view text, std::size_t width, bool first, bool blank,
                   Budget& budget) {
  std::string out;
  for (bool is_first = true;; is_first = false) {
    const std::size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    if (is_first ? first : (blank || !line.empty())) {
      budget.spend(width);
      out.append(width, ' ');
    }
    budget.spend(line.size() + 1);
    out += line;
    if (end == std::string_view::npos) return out;
    out += '\n';
    text.remove_prefix(end + 1);
  }
}

}  // namespace ballast::jinja
