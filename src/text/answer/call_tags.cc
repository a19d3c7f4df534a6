#include "text/answer/call_tags.h"

#include <algorithm>

namespace ballast::calls {

std::size_t without_spaces(std::string_view text, std::size_t end) {
  const std::size_t last = text.substr(0, end).find_last_not_of(kSpace);
  return last == std::string_view::npos ? 0 : last + 1;
}

std::string_view trimmed(std::string_view text) {
  text = text.substr(0, without_spaces(text, text.size()));
  return text.substr(std::min(text.find_first_not_of(kSpace), text.size()));
}

bool may_be_json(std::string_view text) {
  if (!text.starts_with('[')) return text.starts_with('{');
  const std::size_t first = text.find_first_not_of(kSpace, 1);
  return first == std::string_view::npos || text[first] == '{';
}

std::string_view without_blanks(std::string_view text) {
  constexpr std::size_t kMost = 64;
  const std::size_t first = text.substr(0, kMost).find_first_not_of(kSpace);
  if (first != std::string_view::npos) return text.substr(first);
  return text.size() < kMost ? text.substr(text.size()) : text;
}

bool take_marks(std::string_view& text, std::span<const std::string_view> marks) {
  constexpr int kMost = 4;
  int taken = 0;
  for (bool more = true; more && taken < kMost;) {
    const std::string_view rest = without_blanks(text);
    more = false;
    for (const std::string_view mark : marks) {
      if (!rest.starts_with(mark)) continue;
      text = rest.substr(mark.size());
      ++taken;
      more = true;
      break;
    }
  }
  return taken > 0;
}

bool JsonEnd::find(std::string_view text) {
  for (; at < text.size(); ++at) {
    const char c = text[at];
    if (in_string) {
      if (!escaped && c == '"') in_string = false;
      escaped = !escaped && c == '\\';
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if ((c == '}' || c == ']') && --depth == 0) {
      ++at;
      return true;
    }
  }
  return false;
}

}  // namespace ballast::calls
