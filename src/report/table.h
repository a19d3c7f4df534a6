// Tables of text for a terminal.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace ballast {

/// The width of UTF-8 text on a terminal: wide characters take two columns, combining ones none.
std::size_t display_width(std::string_view text);

enum class Align { left, right };

/// Rows under headings, padded into columns.
class Table {
 public:
  struct Column {
    std::string title;
    Align align = Align::left;  ///< right for numbers
    bool names_row = false;     ///< tells rows apart, alone or with others; the first one always
  };

  explicit Table(std::vector<Column> columns);

  /// A cell with what CSV has in place of its text: a number with as many digits as it needs.
  struct Cell {
    Cell(std::string shown) : text(std::move(shown)), plain(text) {}
    Cell(const char* shown) : Cell(std::string(shown)) {}
    Cell(std::string shown, double value);
    std::string text;
    std::string plain;
  };

  /// One cell a column.
  void add(std::vector<std::string> cells);
  void add_cells(const std::vector<Cell>& cells);
  /// A blank line between the rows before and after.
  void add_gap() { gaps_.push_back(rows_.size()); }
  std::size_t rows() const { return rows_.size(); }

  /// Heading, rule and rows, each line ending in '\n' and in no blanks. Cells of text are broken,
  /// then columns continue below, so that lines take at most `width` columns; 0: no limit. Each
  /// part repeats the columns that name the row, in one column where they leave no room, and has
  /// only rows that have a cell in it. Cells of over 1,000 columns stand out of their column.
  std::string to_string(std::size_t width = 0) const;
  /// The width of its lines without a limit.
  std::size_t width() const;
  std::string to_markdown() const;
  /// RFC 4180, with lines that end in '\n'.
  std::string to_csv() const;

 private:
  std::vector<std::size_t> widths() const;
  /// The same with all columns that name the row in the first one, commas between.
  Table with_one_name() const;
  /// Of a part with these columns.
  std::vector<std::size_t> rows_with_cells(const std::vector<std::size_t>& shown) const;
  std::string part(const std::vector<std::size_t>& rows, const std::vector<std::size_t>& shown,
                   const std::vector<std::size_t>& widths) const;

  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
  std::vector<std::vector<std::string>> plain_;  ///< for CSV; of each row
  std::vector<std::size_t> gaps_;                ///< rows that follow one, ascending
};

}  // namespace ballast
