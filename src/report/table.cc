#include "report/table.h"

#include <unicode/uchar.h>
#include <unicode/utf8.h>

#include <algorithm>

#include "base/fail.h"

namespace ballast {
namespace {

std::size_t character_width(UChar32 c) {
  switch (u_charType(c)) {
    case U_NON_SPACING_MARK:
    case U_ENCLOSING_MARK:
    case U_FORMAT_CHAR:
      return 0;
    default:
      break;
  }
  const int width = u_getIntPropertyValue(c, UCHAR_EAST_ASIAN_WIDTH);
  return width == U_EA_FULLWIDTH || width == U_EA_WIDE ? 2 : 1;
}

void append_line(std::string& out, const std::vector<std::string>& cells,
                 const std::vector<Table::Column>& columns,
                 const std::vector<std::size_t>& widths) {
  std::string line;
  for (std::size_t c = 0; c < columns.size(); ++c) {
    const std::string padding(widths[c] - display_width(cells[c]), ' ');
    if (c > 0) line += "  ";
    line += columns[c].align == Align::right ? padding + cells[c] : cells[c] + padding;
  }
  line.erase(line.find_last_not_of(' ') + 1);
  out += line + '\n';
}

}  // namespace

std::size_t display_width(std::string_view text) {
  std::size_t width = 0;
  const auto size = static_cast<std::int32_t>(text.size());
  for (std::int32_t i = 0; i < size;) {
    UChar32 c = 0;
    U8_NEXT(text.data(), i, size, c);
    width +=
        c < 0 ? 1 : character_width(c);  // terminals show one replacement character a broken byte
  }
  return width;
}

void Table::add(std::vector<std::string> cells) {
  require(cells.size() == columns_.size(), "a row of {} cells in a table of {} columns",
          cells.size(), columns_.size());
  rows_.push_back(std::move(cells));
}

std::string Table::to_string() const {
  std::vector<std::size_t> widths;
  std::vector<std::string> titles, rules;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    std::size_t width = display_width(columns_[c].title);
    for (const auto& row : rows_) width = std::max(width, display_width(row[c]));
    widths.push_back(width);
    titles.push_back(columns_[c].title);
    rules.emplace_back(width, '-');
  }
  std::string out;
  append_line(out, titles, columns_, widths);
  append_line(out, rules, columns_, widths);
  for (std::size_t r = 0; r < rows_.size(); ++r) {
    if (r > 0 && std::ranges::find(gaps_, r) != gaps_.end()) out += '\n';
    append_line(out, rows_[r], columns_, widths);
  }
  return out;
}

}  // namespace ballast
