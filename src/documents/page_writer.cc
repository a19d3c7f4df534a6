#include "documents/page_writer.h"

#include <algorithm>
#include <array>
#include <utility>

namespace ballast {
namespace {

constexpr std::string_view kBlanks = " \t\r\n\f";
constexpr std::size_t kDeepest = 8;         ///< tables in tables
constexpr std::size_t kMostColumns = 1000;  ///< that a cell spans
constexpr std::size_t kRaised = 8;          ///< raised within raised
constexpr std::size_t kShort = 80;          ///< bytes of a cell that merged rows repeat
constexpr std::size_t kLong = 1000;         ///< bytes of a cell in paragraphs: no data
constexpr std::size_t kNested = 300;        ///< bytes of a table in a cell that stays in its row

bool is_digit(char c) { return c >= '0' && c <= '9'; }
/// Of the characters outside ASCII by the first byte: signs are mostly U+80 to U+BF and from U+2000
/// to U+2FFF.
bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         ((c & 0x80) != 0 && c != '\xc2' && c != '\xe2');
}
bool is_word(char c) { return is_digit(c) || is_letter(c); }

/// Blanks and line ends as one space.
std::string in_one_line(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; (at = text.find_first_not_of(kBlanks, at)) != std::string_view::npos;) {
    const std::size_t end = std::min(text.find_first_of(kBlanks, at), text.size());
    if (!out.empty()) out += ' ';
    out += text.substr(at, end - at);
    at = end;
  }
  return out;
}

/// The rows of a table in a cell: "wheat, 3; oats, 4".
std::string rows_in_a_cell(std::string_view text) {
  std::string out;
  for (char c : text) {
    const std::string_view mark = c == '\n' ? "; " : c == '|' ? ", " : "";
    while (!mark.empty() && (out.ends_with(' ') || out.ends_with(',') || out.ends_with(';'))) {
      out.pop_back();
    }
    if (mark.empty() && (c != ' ' || !out.ends_with(' '))) out += c;
    if (!out.empty()) out += mark;
  }
  return out;
}

/// "6", "-3", "2+", "n", but not "n+1".
bool is_simple(std::string_view text) {
  for (std::string_view sign : {"+", "-", "−", "–"}) {
    if (text.starts_with(sign)) return is_simple(text.substr(sign.size()));
    if (text.ends_with(sign)) return is_simple(text.substr(0, text.size() - sign.size()));
  }
  return std::ranges::all_of(text, [](char c) { return is_word(c) || (c & 0x80) != 0; });
}

/// A power, an index: not "[1]", "*".
bool is_raised(std::string_view text) {
  return is_word(text[0]) || text[0] == '-' || text[0] == '+' || text.starts_with("−") ||
         text.starts_with("–");
}

}  // namespace

void PageWriter::Lines::add(char c, bool preformatted) {
  if (!preformatted && kBlanks.find(c) != std::string_view::npos) {
    blank = true;
    return;
  }
  if (!out.empty()) {
    while (breaks > 0 && out.ends_with(' ')) out.pop_back();
    out.append(breaks, '\n');
    const bool divide = (apart == Apart::of_words && is_word(c)) ||
                        (apart == Apart::of_lower && (is_digit(c) || (c >= 'a' && c <= 'z')));
    if (breaks == 0 && (blank || divide)) out += ' ';
  }
  out += std::exchange(mark, {});
  breaks = 0;
  blank = false;
  apart = Apart::no;
  out += c;
}

void PageWriter::Lines::end_line(std::size_t lines) {
  breaks = std::max(breaks, lines);
  blank = false;
  apart = Apart::no;
}

void PageWriter::Lines::add_lines(std::string_view lines) {
  for (char c : lines) add(c, true);
}

std::string PageWriter::Lines::take() {
  while (out.ends_with(' ')) out.pop_back();
  return std::move(out);
}

PageWriter::Lines& PageWriter::lines() {
  if (!raised_.empty()) return raised_.back().lines;
  for (std::size_t i = tables_.size(); i-- > 0;) {
    if (tables_[i].cell) return *tables_[i].cell;
  }
  return page_;
}

void PageWriter::text(std::string_view text) {
  constexpr std::string_view kNoBreak = "\u00a0", kSoftHyphen = "\u00ad";
  Lines& to = lines();
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text.substr(i, 2) == kNoBreak || text.substr(i, 2) == kSoftHyphen) {
      if (text.substr(i, 2) == kNoBreak) to.add(' ', preformatted);
      ++i;
    } else {
      to.add(text[i], preformatted);
    }
  }
}

void PageWriter::end_line(std::size_t lines) {
  close_raised();
  this->lines().end_line(lines);
}

void PageWriter::line_break() {
  close_raised();
  Lines& to = lines();
  to.end_line(std::min<std::size_t>(to.breaks + 1, 2));
}

void PageWriter::mark(std::string mark) {
  close_raised();
  lines().mark = std::move(mark);
}

// --- tables ---

void PageWriter::begin_table() {
  if (!tables_.empty() && !tables_.back().cell && tables_.back().ignored == 0) end_table();
  paragraph();
  if (!tables_.empty() && (tables_.size() == kDeepest || tables_.back().ignored > 0)) {
    ++tables_.back().ignored;
  } else {
    tables_.emplace_back();
  }
}

void PageWriter::row() {
  if (tables_.empty() || tables_.back().ignored > 0) return line();
  end_cell();
  if (tables_.back().rows.empty() || !tables_.back().rows.back().empty()) {
    tables_.back().rows.emplace_back();
  }
}

void PageWriter::cell(std::size_t columns, std::size_t rows) {
  if (tables_.empty() || tables_.back().ignored > 0) {
    if (!lines().at_begin()) text(" | ");
    return;
  }
  end_cell();
  Table& table = tables_.back();
  if (table.rows.empty()) table.rows.emplace_back();
  table.rows.back().push_back(
      {{}, std::clamp<std::size_t>(columns, 1, kMostColumns), rows, false, false});
  table.cell.emplace();
}

void PageWriter::span(std::size_t columns) {
  if (tables_.empty() || !tables_.back().cell) return;
  tables_.back().rows.back().back().columns = std::clamp<std::size_t>(columns, 1, kMostColumns);
}

void PageWriter::from_above() {
  if (!tables_.empty() && tables_.back().cell) tables_.back().rows.back().back().above = true;
}

void PageWriter::end_cell() {
  if (tables_.empty() || tables_.back().ignored > 0) return;
  close_raised();
  Table& table = tables_.back();
  if (!table.cell) return;
  table.rows.back().back().nested = table.cell->nested;
  table.rows.back().back().text = table.cell->take();
  table.cell.reset();
}

std::vector<std::vector<PageWriter::Cell>> PageWriter::grid(std::vector<std::vector<Cell>> rows) {
  struct Above {
    std::size_t rows = 0;
    std::string text;
  };
  std::vector<Above> above;  // of each column, the cell that reaches down
  std::vector<std::vector<Cell>> out;
  const auto fill = [&](std::vector<Cell>& row, const std::string& text) {
    const std::size_t cost = text.size() + 3;
    if (fill_ < cost) return;
    fill_ -= cost;
    row.push_back({text, 1, 1, false, false});
  };
  for (std::vector<Cell>& cells : rows) {
    std::vector<Cell> row;
    const auto fill_from_above = [&] {
      while (row.size() < above.size() && above[row.size()].rows > 0) {
        const std::size_t before = row.size();
        --above[before].rows;
        fill(row, above[before].text);
        if (row.size() == before) break;
      }
    };
    for (Cell& cell : cells) {
      fill_from_above();
      const std::size_t at = row.size(), columns = cell.columns;
      if (cell.above && cell.text.empty() && !out.empty() && at < out.back().size()) {
        const std::string& text = out.back()[at].text;
        if (text.size() <= kShort && text.size() <= fill_) {
          fill_ -= text.size();
          cell.text = text;
        }
      }
      if (cell.rows > 1) {
        above.resize(std::max(above.size(), at + columns));
        for (std::size_t i = 0; i < columns; ++i) above[at + i] = {cell.rows - 1, ""};
        if (cell.text.size() <= kShort) above[at].text = cell.text;
      }
      row.push_back(std::move(cell));
      for (std::size_t i = 1; i < columns; ++i) fill(row, "");
    }
    fill_from_above();
    out.push_back(std::move(row));
  }
  return out;
}

void PageWriter::end_table() {
  if (tables_.empty()) return;
  if (tables_.back().ignored > 0) {
    --tables_.back().ignored;
    return paragraph();
  }
  end_cell();
  std::vector<std::vector<Cell>> rows = grid(std::move(tables_.back().rows));
  tables_.pop_back();
  std::vector<char> used;  // columns with a text
  for (const std::vector<Cell>& row : rows) {
    if (row.size() > used.size()) used.resize(row.size());
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (!row[i].text.empty()) used[i] = 1;
    }
  }
  Lines& to = lines();
  to.end_line(2);
  std::size_t shown = 0, of_many = 0;  // cells; rows of several
  for (const std::vector<Cell>& row : rows) {
    const auto filled = static_cast<std::size_t>(
        std::ranges::count_if(row, [](const Cell& c) { return !c.text.empty(); }));
    shown += filled;
    of_many += filled > 1 ? 1u : 0u;
  }
  for (std::vector<Cell>& row : rows) {
    const bool empty = std::ranges::all_of(row, [](const Cell& c) { return c.text.empty(); });
    if (!empty) write_row(to, std::move(row), used, of_many > 1);
  }
  to.nested = to.nested || shown > 1;
  to.end_line(2);
}

void PageWriter::write_row(Lines& to, std::vector<Cell> row, const std::vector<char>& used,
                           bool of_data) {
  const auto is_long = [&](const Cell& c) {
    if (!c.nested) return c.text.size() > kLong && c.text.find('\n') != std::string::npos;
    return c.text.size() > kNested || (!of_data && c.text.find("\n\n") != std::string::npos);
  };
  if (std::ranges::count(used, 1) == 1 || std::ranges::any_of(row, is_long)) {
    for (const Cell& cell : row) {
      if (cell.text.empty()) continue;
      to.end_line(cell.text.find('\n') == std::string::npos ? 1 : 2);
      to.add_lines(cell.text);
    }
    return to.end_line(row.size() > 1 ? 2 : 1);
  }
  std::string line;
  const std::size_t columns = row[0].columns >= used.size() ? 1 : row.size();
  for (std::size_t i = 0; i < columns; ++i) {
    if (used[i] == 0) continue;
    line += (i > 0 ? " | " : "") + (row[i].nested ? rows_in_a_cell(row[i].text) : row[i].text);
  }
  to.end_line(1);
  to.add_lines(in_one_line(line));
}

// --- raised characters ---

void PageWriter::begin_raised(bool above) {
  if (raised_.size() < kRaised) raised_.push_back({above, {}});
}

void PageWriter::end_raised() {
  if (raised_.empty()) return;
  Raised raised = std::move(raised_.back());
  raised_.pop_back();
  Lines& to = lines();
  const bool blank = raised.lines.blank;
  raise(to, raised.above, in_one_line(raised.lines.take()));
  if (blank) to.blank = true;
}

void PageWriter::close_raised() {
  while (!raised_.empty()) end_raised();
}

void PageWriter::raise(Lines& to, bool above, std::string content) {
  if (content.empty()) return;
  const auto put = [&](std::string_view text) {
    for (char c : text) to.add(c, false);
  };
  const bool number = std::ranges::all_of(content, is_digit);
  if (to.at_begin()) {  // of a footnote
    put(content);
    to.apart = Apart::of_words;
    return;
  }
  const char before = to.blank ? ' ' : to.out.back();
  constexpr std::array<std::string_view, 12> kEndings = {"st", "nd", "rd",  "th",  "e",  "er",
                                                         "re", "de", "ème", "ère", "tm", "TM"};
  if (above && std::ranges::count(kEndings, content) > 0 &&
      (is_digit(before) || content[0] == 't' || content[0] == 'T')) {
    return put(content);  // "1st"
  }
  if (!is_raised(content)) return put(content);  // "[1]", "*"
  if (!above && number && (before == '/' || to.out.ends_with("⁄"))) {
    // "12^1/2" is twelve and a half.
    const std::size_t slash = to.out.find_last_not_of("/\xe2\x81\x84") + 1;
    std::size_t digits = slash;
    while (digits > 0 && is_digit(to.out[digits - 1])) --digits;
    if (digits > 0 && digits < slash && to.out[digits - 1] == '^') {
      to.out.replace(slash, std::string::npos, "/");
      to.out.replace(digits - 1, 1, digits > 1 && is_digit(to.out[digits - 2]) ? " " : "");
      put(content);
      to.apart = Apart::of_words;
      return;
    }
  }
  const bool formula = !above && number && (is_letter(before) || before == ')');
  if (formula) {  // "H2O", but "log2 8", "log10 x"
    put(content);
    to.apart = Apart::of_lower;
    return;
  }
  const std::string sign = above ? "^" : "_";
  put(is_simple(content) ? sign + content : sign + "(" + content + ")");
  if (before != ' ') to.apart = Apart::of_words;  // else a prefix: "^14C"
}

std::string PageWriter::take() {
  close_raised();
  while (!tables_.empty()) {
    tables_.back().ignored = 0;
    end_table();
  }
  std::string out = page_.take();
  if (!out.empty()) out += '\n';
  return out;
}

}  // namespace ballast
