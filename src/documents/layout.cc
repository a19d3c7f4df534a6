#include "documents/layout.h"

#include <unicode/uchar.h>

#include <algorithm>
#include <bitset>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "text/tokenizer/utf8.h"

namespace ballast {
namespace {

constexpr std::size_t kWidth = 512;       // letters of a line that are looked at
constexpr std::size_t kMostLines = 1000;  // of a page
constexpr std::size_t kGutter = 2;        // blanks between two columns, at least
constexpr std::size_t kRows = 3;          // of a table, at least

using Places = std::bitset<kWidth>;

/// A line of the page, or of a column of it.
struct Line {
  std::string_view text;
  std::vector<std::size_t> begins;  ///< the byte of each letter, and the end
  Places ink;

  explicit Line(std::string_view all) : text(all) {
    for (std::size_t at = 0; at < all.size(); at += next_utf8(all, at).length) {
      if (all[at] != ' ' && all[at] != '\t') ink.set(std::min(begins.size(), kWidth - 1));
      begins.push_back(at);
    }
    begins.push_back(all.size());
  }

  bool blank() const { return ink.none(); }
  /// The letters in [begin, end), without blanks around them.
  std::string_view part(std::size_t begin, std::size_t end) const {
    const auto byte = [&](std::size_t i) { return begins[std::min(i, begins.size() - 1)]; };
    std::string_view out = text.substr(byte(begin), byte(end) - byte(begin));
    const std::size_t first = out.find_first_not_of(" \t");
    if (first == std::string_view::npos) return {};
    return out.substr(first, out.find_last_not_of(" \t") + 1 - first);
  }
};

/// Columns, as the letters at which each begins; the last ends nowhere.
using Columns = std::vector<std::size_t>;

/// Those that the blanks between all this ink leave: at least one where there is ink.
Columns columns_of(const Places& ink) {
  Columns out;
  std::size_t blanks = kGutter;
  for (std::size_t i = 0; i < kWidth; ++i) {
    if (!ink[i]) {
      ++blanks;
      continue;
    }
    if (blanks >= kGutter) out.push_back(i);
    blanks = 0;
  }
  return out;
}

std::vector<std::string_view> cells_of(const Line& line, const Columns& columns) {
  std::vector<std::string_view> cells;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const std::size_t begin = i == 0 ? 0 : columns[i];
    cells.push_back(line.part(begin, i + 1 < columns.size() ? columns[i + 1] : kWidth * 8));
  }
  return cells;
}

std::size_t filled(const std::vector<std::string_view>& cells) {
  return static_cast<std::size_t>(
      std::ranges::count_if(cells, [](std::string_view cell) { return !cell.empty(); }));
}

/// Where a sentence ends: "." behind a word of four letters or more, which is no abbreviation.
bool ends_sentence(std::string_view text) {
  constexpr std::size_t kWord = 4;
  for (std::string_view mark : {"。", "！", "？", "؟", "।"}) {
    if (text.ends_with(mark)) return true;
  }
  if (text.ends_with('!') || text.ends_with('?')) return true;
  if (!text.ends_with('.')) return false;
  text.remove_suffix(1);
  const std::string_view word = text.substr(text.find_last_of(" (") + 1);
  return word.size() >= kWord && u_isalpha(static_cast<unsigned char>(word.back())) != 0;
}

/// Whether the lines of a column go on in one another as those of prose do: cells of a table begin
/// anew. Of a few lines more is asked.
bool flows(std::span<const std::string_view> cells) {
  constexpr std::size_t kMany = 8;
  std::size_t go_on = 0;              // lines that begin within a sentence
  bool ends = false, within = false;  // a sentence ends; it does before the end of its line
  const auto lower = [](char c) { return c >= 'a' && c <= 'z'; };
  const bool cased = std::ranges::any_of(
      cells, [&](std::string_view cell) { return std::ranges::any_of(cell, lower); });
  std::string_view before;
  for (std::string_view cell : cells) {
    const auto code = static_cast<UChar32>(next_utf8(cell, 0).code);
    const bool small =
        cased && u_charType(code) != U_OTHER_LETTER ? u_islower(code) != 0 : u_isalpha(code) != 0;
    const bool open = before.ends_with(',') || before.ends_with(';');  // of verse, too
    go_on += open || (!before.empty() && small && !ends_sentence(before)) ? 1u : 0u;
    for (std::size_t at = 1; at < cell.size() && !within; ++at) {
      const char last = cell[at - 1];
      const bool latin = cell[at] == ' ' && (last == '.' || last == '!' || last == '?');
      within = (latin || (last & 0x80) != 0) && ends_sentence(cell.substr(0, at));
    }
    ends = ends || within || ends_sentence(cell);
    before = cell;
  }
  if (cells.size() >= kMany) return 4 * go_on >= cells.size() - 1;
  return ends && go_on > 0 && (2 * go_on >= cells.size() - 1 || within);
}

/// Whether a column's lines are those of prose: nearly all are there, up to its last one, nearly
/// all are full, and they go on in one another.
bool is_prose(std::span<const Line> lines, const Columns& columns, std::size_t column) {
  constexpr std::size_t kNarrowest = 22, kFewest = 2;
  constexpr double kFull = 0.75, kMost = 0.6;
  std::size_t width = 0, full = 0, all = 0, before_last = 0;
  std::vector<std::string_view> there;
  for (const Line& line : lines) {
    if (line.blank()) continue;
    ++all;
    const std::string_view cell = cells_of(line, columns)[column];
    if (cell.empty()) continue;
    there.push_back(cell);
    before_last = all;
    width = std::max(width, cell.size());
  }
  for (std::string_view cell : there) {
    full += static_cast<double>(cell.size()) >= kFull * static_cast<double>(width) ? 1u : 0u;
  }
  return width >= kNarrowest && there.size() >= kFewest &&
         static_cast<double>(there.size()) >= kMost * static_cast<double>(before_last) &&
         static_cast<double>(full) >= kMost * static_cast<double>(there.size()) && flows(there);
}

/// "1.", "a)", "•", "–".
bool is_mark(std::string_view cell) {
  constexpr std::size_t kLongest = 5;
  if (cell.size() > kLongest) return false;
  const char last = cell.back();
  return last == '.' || last == ')' || cell.size() == 1 || (cell[0] & 0x80) != 0;
}

/// Whether a column begins, or ends, at the same letter in most rows.
bool is_aligned(std::span<const Line> lines, const Columns& columns, std::size_t column) {
  constexpr double kMost = 0.6;
  std::vector<std::size_t> begins(kWidth), ends(kWidth);
  std::size_t rows = 0;
  const std::size_t begin = columns[column];
  const std::size_t end = column + 1 < columns.size() ? columns[column + 1] : kWidth;
  for (const Line& line : lines) {
    std::size_t first = begin;
    while (first < end && !line.ink[first]) ++first;
    if (first == end) continue;
    std::size_t last = end;
    while (!line.ink[last - 1]) --last;
    ++begins[first];
    ++ends[last - 1];
    ++rows;
  }
  const std::size_t same = std::max(std::ranges::max(begins), std::ranges::max(ends));
  return static_cast<double>(same) >= kMost * static_cast<double>(rows);
}

class PageReader {
 public:
  std::optional<std::string> read(std::string_view page) {
    std::vector<Line> lines;
    for (std::size_t at = 0; at < page.size();) {
      const std::size_t end = std::min(page.find('\n', at), page.size());
      lines.emplace_back(page.substr(at, end - at));
      at = end + 1;
      if (lines.size() > kMostLines) return std::nullopt;
    }
    read(lines, 0);
    if (!found_) return std::nullopt;
    while (out_.ends_with("\n\n")) out_.pop_back();
    return std::move(out_);
  }

 private:
  /// Lines that share columns.
  struct Block {
    std::size_t begin = 0, end = 0;
    std::size_t text_end = 0;  ///< with the lines that the first column has beyond the others
    Columns columns;
    std::size_t rows = 0;  ///< with at least two cells
  };

  void read(std::span<const Line> lines, std::size_t depth) {
    constexpr std::size_t kDeepest = 2;
    for (std::size_t i = 0; i < lines.size();) {
      const Block block = block_at(lines, i);
      const std::span<const Line> of = lines.subspan(i, block.end - i);
      if (depth < kDeepest && is_text(of, block)) {
        const std::span<const Line> all = lines.subspan(i, block.text_end - i);
        for (std::size_t c = 0; c < block.columns.size(); ++c) {
          std::vector<Line> column;
          for (const Line& line : all) column.emplace_back(cell_in_place(line, block.columns, c));
          read(column, depth + 1);
          end_paragraph();
        }
        i = block.text_end;
      } else if (is_table(of, block) && !begins_later(lines, block)) {
        const std::size_t end = text_begin(lines, block);
        if (end < block.end) {
          read(lines.subspan(i, end - i), depth);
        } else {
          found_ = true;
          write_table(of, block.columns);
        }
        i = end;
      } else {
        write_line(lines[i++]);
      }
    }
  }

  /// As many lines as share a gutter with the first one.
  static Block block_at(std::span<const Line> lines, std::size_t begin) {
    constexpr std::size_t kMostBlank = 2;
    Block block{begin, begin, begin, {}, 0};
    Places ink;
    if (columns_of(lines[begin].ink).size() < 2) return block;
    std::size_t blank = 0;
    for (std::size_t i = begin; i < lines.size() && blank <= kMostBlank; ++i) {
      if (lines[i].blank()) {
        ++blank;
        continue;
      }
      const Columns more = columns_of(ink | lines[i].ink);
      if (more.size() < 2) break;
      ink |= lines[i].ink;
      block.columns = more;
      block.end = i + 1;
      blank = 0;
    }
    // Lines of the first column alone may be what follows the table.
    const auto one = [&](const Line& line) {
      const std::vector<std::string_view> cells = cells_of(line, block.columns);
      return filled(cells) == 0 || (filled(cells) == 1 && !cells[0].empty());
    };
    const std::size_t all = block.end;
    while (block.end > begin + 1 && one(lines[block.end - 1])) --block.end;
    block.text_end = block.end;
    while (block.text_end < all && !lines[block.text_end].blank()) ++block.text_end;
    ink.reset();
    for (const Line& line : lines.subspan(begin, block.end - begin)) ink |= line.ink;
    block.columns = columns_of(ink);
    for (const Line& line : lines.subspan(begin, block.end - begin)) {
      block.rows += filled(cells_of(line, block.columns)) > 1 ? 1u : 0u;
    }
    return block;
  }

  /// Whether the first line stands before the table: an empty line follows it, and the lines after
  /// it have other columns than with it.
  static bool begins_later(std::span<const Line> lines, const Block& block) {
    std::size_t next = block.begin + 1;
    while (next < block.end && lines[next].blank()) ++next;
    if (next == block.begin + 1 || next >= block.end) return false;
    const Block later = block_at(lines, next);
    return later.end == block.end && later.columns.size() != block.columns.size();
  }

  /// Where columns of prose begin behind an empty line of the block; its end: nowhere.
  static std::size_t text_begin(std::span<const Line> lines, const Block& block) {
    for (std::size_t i = block.begin + 1; i < block.end; ++i) {
      if (!lines[i - 1].blank() || lines[i].blank()) continue;
      const Block later = block_at(lines, i);
      if (is_text(lines.subspan(i, later.end - i), later)) return i;
    }
    return block.end;
  }

  /// Whether two columns or more are of prose, to be read one after another.
  static bool is_text(std::span<const Line> lines, const Block& block) {
    if (block.columns.size() < 2) return false;
    std::size_t prose = 0;
    for (std::size_t c = 0; c < block.columns.size(); ++c)
      prose += is_prose(lines, block.columns, c);
    return prose >= 2;
  }

  static bool is_table(std::span<const Line> lines, const Block& block) {
    if (block.columns.size() < 2 || block.rows < (block.columns.size() > 2 ? 2 : kRows))
      return false;
    if (block.columns.size() == 2) {
      const bool list = std::ranges::all_of(lines, [&](const Line& line) {
        const std::string_view first = cells_of(line, block.columns)[0];
        return first.empty() || is_mark(first);
      });
      if (list) return false;
    }
    for (std::size_t c = 1; c < block.columns.size(); ++c) {
      if (!is_aligned(lines, block.columns, c)) return false;
    }
    return true;
  }

  void write_table(std::span<const Line> lines, const Columns& columns) {
    end_paragraph();
    std::vector<std::vector<std::string>> rows;
    bool apart = true;
    for (const Line& line : lines) {
      if (line.blank()) {
        apart = true;
        continue;
      }
      const std::vector<std::string_view> cells = cells_of(line, columns);
      // A cell that goes on in the next line.
      const auto only = std::ranges::find_if(cells, [](std::string_view c) { return !c.empty(); });
      const auto column = static_cast<std::size_t>(only - cells.begin());
      if (!apart && filled(cells) == 1 && column > 0 && !rows.back()[column].empty()) {
        rows.back()[column] += ' ' + std::string(*only);
      } else {
        rows.emplace_back(cells.begin(), cells.end());
      }
      apart = false;
    }
    for (const std::vector<std::string>& row : rows) {
      std::string text;
      for (std::size_t c = 0; c < row.size(); ++c) text += (c > 0 ? " | " : "") + row[c];
      write(text);
    }
    end_paragraph();
  }

  /// A column's part of a line, its letters at their places.
  static std::string_view cell_in_place(const Line& line, const Columns& columns,
                                        std::size_t column) {
    const auto byte = [&](std::size_t i) {
      return line.begins[std::min(i, line.begins.size() - 1)];
    };
    const std::size_t begin = byte(column == 0 ? 0 : columns[column]);
    const std::size_t end =
        column + 1 < columns.size() ? byte(columns[column + 1]) : line.text.size();
    return line.text.substr(begin, end - begin);
  }

  void write_line(const Line& line) {
    if (line.blank()) {
      end_paragraph();
    } else {
      write(line.text);
    }
  }
  void end_paragraph() {
    if (!out_.empty() && !out_.ends_with("\n\n")) out_ += '\n';
  }
  /// A line, each run of blanks as one.
  void write(std::string_view text) {
    std::string line;
    for (char c : text) {
      const bool blank = c == ' ' || c == '\t';
      if (!blank || (!line.empty() && line.back() != ' ')) line += blank ? ' ' : c;
    }
    while (line.ends_with(' ')) line.pop_back();
    out_ += line + '\n';
  }

  std::string out_;
  bool found_ = false;
};

}  // namespace

std::optional<std::string> text_with_tables(std::string_view page) {
  return PageReader().read(page);
}

}  // namespace ballast
