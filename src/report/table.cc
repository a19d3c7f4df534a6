#include "report/table.h"

#include <unicode/uchar.h>
#include <unicode/utf8.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/fail.h"
#include "report/terminal.h"

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

/// The lines of a cell.
std::vector<std::string> broken(const std::string& cell, std::size_t width) {
  std::vector<std::string> lines;
  const std::string text = wrap(cell, width);
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

/// Text shrinks no further than this.
constexpr std::size_t kLeastText = 12;
constexpr std::size_t kGap = 2;  ///< between columns
/// Cells are padded no further: one of a megabyte would make every row as long.
constexpr std::size_t kMostPadding = 1000;

std::size_t total(const std::vector<std::size_t>& shown, const std::vector<std::size_t>& widths) {
  std::size_t sum = 0;
  for (std::size_t c : shown) sum += widths[c] + kGap;
  return sum - std::min(sum, kGap);
}

std::string quoted_csv(const std::string& cell) {
  if (cell.find_first_of(",\"\r\n") == std::string::npos) return cell;
  std::string out = "\"";
  for (char c : cell) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + '"';
}

std::string escaped_markdown(const std::string& cell) {
  std::string out;
  for (char c : cell) out += c == '|' ? std::string("\\|") : std::string(1, c == '\n' ? ' ' : c);
  return out;
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

Table::Table(std::vector<Column> columns) : columns_(std::move(columns)) {
  if (!columns_.empty()) columns_[0].names_row = true;
}

void Table::add(std::vector<std::string> cells) {
  require(cells.size() == columns_.size(), "a row of {} cells in a table of {} columns",
          cells.size(), columns_.size());
  plain_.push_back(cells);
  rows_.push_back(std::move(cells));
}

Table::Cell::Cell(std::string shown, double value)
    : text(std::move(shown)), plain(std::isfinite(value) ? fmt::format("{}", value) : "") {}

void Table::add_cells(const std::vector<Cell>& cells) {
  std::vector<std::string> shown, plain;
  for (const Cell& cell : cells) {
    shown.push_back(cell.text);
    plain.push_back(cell.plain);
  }
  add(std::move(shown));
  plain_.back() = std::move(plain);
}

std::vector<std::size_t> Table::widths() const {
  std::vector<std::size_t> out;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    std::size_t width = display_width(columns_[c].title);
    for (const auto& row : rows_) width = std::max(width, display_width(row[c]));
    out.push_back(std::min(width, kMostPadding));
  }
  return out;
}

std::size_t Table::width() const {
  std::vector<std::size_t> all(columns_.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  return total(all, widths());
}

Table Table::with_one_name() const {
  const auto joined = [&](const auto& text_of) {
    std::vector<std::string> out = {""};
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      const std::string& text = text_of(c);
      if (!columns_[c].names_row) {
        out.push_back(text);
      } else if (!text.empty()) {
        out[0] += (out[0].empty() ? "" : ", ") + text;
      }
    }
    return out;
  };
  const std::vector<std::string> titles =
      joined([&](std::size_t c) -> const std::string& { return columns_[c].title; });
  std::vector<Column> columns = {{titles[0]}};
  for (const Column& column : columns_) {
    if (!column.names_row) columns.push_back(column);
  }
  Table out(std::move(columns));
  for (const auto& row : rows_) {
    out.add(joined([&](std::size_t c) -> const std::string& { return row[c]; }));
  }
  out.gaps_ = gaps_;
  return out;
}

/// Those with a cell beside their name, and those that have none anywhere; all if there are none.
std::vector<std::size_t> Table::rows_with_cells(const std::vector<std::size_t>& shown) const {
  std::vector<std::size_t> all(rows_.size()), out;
  std::iota(all.begin(), all.end(), std::size_t{0});
  const auto holds = [&](const std::vector<std::string>& row, std::size_t c) {
    return !columns_[c].names_row && !row[c].empty();
  };
  for (std::size_t r : all) {
    std::size_t here = 0, anywhere = 0;
    for (std::size_t c : shown) here += holds(rows_[r], c);
    for (std::size_t c = 0; c < columns_.size(); ++c) anywhere += holds(rows_[r], c);
    if (here > 0 || anywhere == 0) out.push_back(r);
  }
  return out.empty() ? all : out;
}

std::string Table::part(const std::vector<std::size_t>& rows, const std::vector<std::size_t>& shown,
                        const std::vector<std::size_t>& widths) const {
  std::string out;
  const auto append = [&](const std::vector<std::string>& cells) {
    std::vector<std::vector<std::string>> lines;
    std::size_t height = 1;
    for (std::size_t c : shown) {
      lines.push_back(broken(cells[c], widths[c]));
      height = std::max(height, lines.back().size());
    }
    for (std::size_t y = 0; y < height; ++y) {
      std::string line;
      for (std::size_t i = 0; i < shown.size(); ++i) {
        const std::string cell = y < lines[i].size() ? lines[i][y] : "";
        const std::size_t width = display_width(cell);
        const std::string padding(widths[shown[i]] - std::min(widths[shown[i]], width), ' ');
        if (i > 0) line.append(kGap, ' ');
        line += columns_[shown[i]].align == Align::right ? padding + cell : cell + padding;
      }
      line.erase(line.find_last_not_of(' ') + 1);
      out += line + '\n';
    }
  };
  std::vector<std::string> titles, rules;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    titles.push_back(columns_[c].title);
    rules.emplace_back(widths[c], '-');
  }
  append(titles);
  append(rules);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto gap = i == 0 ? gaps_.end() : std::ranges::upper_bound(gaps_, rows[i - 1]);
    if (gap != gaps_.end() && *gap <= rows[i]) out += '\n';
    append(rows_[rows[i]]);
  }
  return out;
}

std::string Table::to_string(std::size_t width) const {
  std::vector<std::size_t> widths = this->widths(), all(columns_.size()), rows(rows_.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  std::iota(rows.begin(), rows.end(), std::size_t{0});
  if (width == 0 || total(all, widths) <= width) return part(rows, all, widths);
  // The widest text gives way first, but to no less than its longest word.
  std::vector<std::size_t> least = widths;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    if (columns_[c].align == Align::right) continue;
    least[c] = kLeastText;
    const auto hold_words = [&](const std::string& text) {
      for (const std::string& word : broken(text, 1)) {
        least[c] = std::max(least[c], display_width(word));
      }
    };
    hold_words(columns_[c].title);
    for (const auto& row : rows_) hold_words(row[c]);
    least[c] = std::min(least[c], widths[c]);
  }
  const std::vector<std::size_t> full = widths;
  const auto shrink = [&] {
    while (total(all, widths) > width) {
      std::size_t widest = columns_.size();
      for (std::size_t c : all) {
        if (widths[c] > least[c] && (widest == columns_.size() || widths[c] > widths[widest])) {
          widest = c;
        }
      }
      if (widest == columns_.size()) return false;
      --widths[widest];
    }
    return true;
  };
  if (shrink()) return part(rows, all, widths);
  std::vector<std::size_t> names, others;
  for (std::size_t c : all) (columns_[c].names_row ? names : others).push_back(c);
  // Parts have room for text.
  std::vector<std::size_t> roomy = widths;
  for (std::size_t c : all) roomy[c] = std::max(widths[c], std::min(full[c], width / 3));
  const auto fit = [&](const std::vector<std::size_t>& some) {
    return std::ranges::all_of(
        others, [&](std::size_t c) { return total(names, some) + kGap + some[c] <= width; });
  };
  if (fit(roomy)) {
    widths = roomy;
  } else if (names.size() > 1 && !fit(widths)) {
    return with_one_name().to_string(width);
  }
  std::string out;
  for (std::size_t next = 0; next < others.size() || out.empty();) {
    std::vector<std::size_t> shown = names;
    while (next < others.size()) {
      shown.push_back(others[next]);
      if (shown.size() > names.size() + 1 && total(shown, widths) > width) {
        shown.pop_back();
        break;
      }
      ++next;
    }
    if (!out.empty()) out += '\n';
    out += part(rows_with_cells(shown), shown, widths);
  }
  return out;
}

std::string Table::to_markdown() const {
  std::string head = "|", rule = "|", out;
  for (const Column& column : columns_) {
    head += " " + escaped_markdown(column.title) + " |";
    rule += column.align == Align::right ? "---:|" : "---|";
  }
  out = head + "\n" + rule + "\n";
  for (const auto& row : rows_) {
    out += "|";
    for (const std::string& cell : row) out += " " + escaped_markdown(cell) + " |";
    out += "\n";
  }
  return out;
}

std::string Table::to_csv() const {
  std::string out;
  const auto add = [&](std::size_t c, const std::string& cell) {
    if (c > 0) out += ',';
    out += quoted_csv(cell);
  };
  for (std::size_t c = 0; c < columns_.size(); ++c) add(c, columns_[c].title);
  out += '\n';
  for (const auto& row : plain_) {
    for (std::size_t c = 0; c < row.size(); ++c) add(c, row[c]);
    out += '\n';
  }
  return out;
}

}  // namespace ballast
