#include "report/terminal.h"

#include <fmt/format.h>
#include <unicode/uchar.h>
#include <unicode/utf8.h>

#include <charconv>
#include <cstdlib>

#include "base/os/files.h"
#include "report/table.h"

namespace ballast {
namespace {

constexpr std::size_t kUnknownWidth = 80;
constexpr std::size_t kLeastWidth = 20;

/// Where a word breaks.
struct Cut {
  std::size_t bytes = 0;    ///< before it; 0: nowhere
  std::size_t columns = 0;  ///< of these bytes
};

/// After the last sign that fits in `room` columns, or after the first one. It looks no further
/// than the next sign, so that a long list takes a time of its length.
Cut cut_of(std::string_view word, std::size_t room) {
  constexpr std::string_view kSigns = ";,/";
  Cut cut;
  while (true) {
    const std::size_t end = word.find_first_of(kSigns, cut.bytes);
    if (end == std::string_view::npos || end + 1 >= word.size()) return cut;
    const std::size_t columns =
        cut.columns + display_width(word.substr(cut.bytes, end + 1 - cut.bytes));
    if (cut.bytes > 0 && columns > room) return cut;
    cut = {end + 1, columns};
  }
}

}  // namespace

std::size_t terminal_width() {
  if (const char* columns = std::getenv("COLUMNS")) {
    const std::string_view text = columns;
    std::size_t width = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), width);
    if (error == std::errc() && end == text.data() + text.size() && width >= kLeastWidth) {
      return width;
    }
  }
  const std::size_t columns = terminal_columns();
  return columns >= kLeastWidth ? columns : kUnknownWidth;
}

std::string wrap(std::string_view text, std::size_t width, std::size_t indent,
                 std::string_view continued) {
  if (width == 0) return std::string(text);
  std::string out;
  while (true) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(line.size());
    const std::size_t room = width - std::min(width, display_width(continued));
    std::size_t used = 0;
    bool empty = true;
    while (!line.empty()) {
      std::size_t blanks = std::min(line.find_first_not_of(' '), line.size());
      std::string_view word =
          line.substr(blanks, std::min(line.find(' ', blanks), line.size()) - blanks);
      if (word.empty()) break;  // blanks at the end
      std::size_t columns = display_width(word);
      // A long list breaks after its signs.
      while (continued.empty() && indent + columns > width) {
        const Cut cut = cut_of(word, width - std::min(width, used + blanks));
        if (cut.bytes == 0 || (!empty && used + blanks + cut.columns > width)) break;
        out.append(line.substr(0, blanks + cut.bytes)).append("\n").append(indent, ' ');
        line.remove_prefix(blanks + cut.bytes);
        word.remove_prefix(cut.bytes);
        columns -= cut.columns;
        blanks = 0;
        used = indent;
        empty = true;
      }
      // The last word of a line needs no mark after it.
      const std::size_t limit = blanks + word.size() == line.size() ? width : room;
      if (!empty && used + blanks + columns > limit) {
        out.append(continued).append("\n").append(indent, ' ');
        used = indent;
        empty = true;
        line.remove_prefix(blanks);
        continue;
      }
      out.append(line.substr(0, blanks)).append(word);
      used += blanks + columns;
      empty = false;
      line.remove_prefix(blanks + word.size());
    }
    if (text.empty()) return out;
    out += '\n';
    text.remove_prefix(1);
  }
}

std::string wrap_note(std::string_view note, std::size_t width) {
  const std::size_t gap = note.find("  ");
  std::size_t indent = gap == std::string_view::npos ? 0 : note.find_first_not_of(' ', gap);
  if (indent == std::string_view::npos || indent > 24) indent = 0;
  return wrap(note, width, display_width(note.substr(0, indent)));
}

std::string wrap_lines(std::string_view text, std::size_t width) {
  std::string out;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    out += wrap_note(text.substr(0, end), width);
    if (end < text.size()) out += '\n';
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

std::string terminal_text(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  const auto size = static_cast<std::int32_t>(text.size());
  for (std::int32_t i = 0; i < size;) {
    const std::int32_t begin = i;
    UChar32 c = 0;
    U8_NEXT(text.data(), i, size, c);
    const bool turns = (c >= 0x202a && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
    if (c == '\n' || c == '\t') {
      out += static_cast<char>(c);
    } else if (c < 0) {
      for (std::int32_t at = begin; at < i; ++at) {
        out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[at]));
      }
    } else if (turns || u_charType(c) == U_CONTROL_CHAR) {
      out += c < 0x80 ? fmt::format("\\x{:02x}", static_cast<unsigned>(c))
                      : fmt::format("\\u{{{:x}}}", static_cast<unsigned>(c));
    } else {
      out.append(text.substr(begin, i - begin));
    }
  }
  return out;
}

}  // namespace ballast
