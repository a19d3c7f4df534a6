// The text of a page: its lines, lists, tables and raised characters.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ballast {

/// Takes the parts of a page in their order. A run of blanks becomes a space.
class PageWriter {
 public:
  /// `size`: bytes of the page. What merged cells repeat is little more.
  explicit PageWriter(std::size_t size) : fill_(size + 4096) {}

  void text(std::string_view text);
  /// A line begins; in paragraph() a blank one stands before it.
  void line() { end_line(1); }
  void paragraph() { end_line(2); }
  /// A new line each time it is called, up to a blank one.
  void line_break();
  /// What stands before the next text: "- ".
  void mark(std::string mark);
  bool preformatted = false;

  /// Cells of a row are divided by " | ", and each is one line. Where a cell spans columns, the
  /// others are empty; where it spans rows, a short one is repeated. A short table in a cell is
  /// "a, 1; b, 2". Rows of long texts (a page laid out in a table) become paragraphs.
  void begin_table();
  void end_table();
  void row();
  void cell(std::size_t columns, std::size_t rows);
  void end_cell();
  /// Of the open cell: how many columns it spans; that it belongs to the one above.
  void span(std::size_t columns);
  void from_above();
  bool in_table() const { return !tables_.empty(); }

  /// Characters above or below the line: "10^6", "x_i", "H2O", "1st".
  void begin_raised(bool above);
  void end_raised();

  /// The text, which ends in a line end if there is any.
  std::string take();

 private:
  /// Whether a space comes before what follows at once.
  enum class Apart { no, of_lower, of_words };  // of digits and small letters; of all
  /// Lines whose breaks do not add up.
  struct Lines {
    std::string out;
    std::size_t breaks = 0;
    bool blank = false;
    Apart apart = Apart::no;
    std::string mark;
    bool nested = false;  ///< a table of several cells is in it

    bool at_begin() const { return out.empty() || breaks > 0; }
    void add(char c, bool preformatted);
    void end_line(std::size_t lines);
    void add_lines(std::string_view lines);
    std::string take();
  };
  struct Cell {
    std::string text;
    std::size_t columns = 1, rows = 1;
    bool nested = false;
    bool above = false;
  };
  struct Table {
    std::vector<std::vector<Cell>> rows;
    std::optional<Lines> cell;  ///< that is open
    std::size_t ignored = 0;    ///< tables in it that are too deep
  };
  struct Raised {
    bool above = true;
    Lines lines;
  };

  Lines& lines();
  void end_line(std::size_t lines);
  void close_raised();
  /// Appends what is raised to what it stands behind.
  static void raise(Lines& to, bool above, std::string content);
  /// `used`: which columns have a text; `of_data`: several rows of the table have several cells.
  static void write_row(Lines& to, std::vector<Cell> row, const std::vector<char>& used,
                        bool of_data);
  /// Each cell in its column, with a text for those that others span.
  std::vector<std::vector<Cell>> grid(std::vector<std::vector<Cell>> rows);

  Lines page_;
  std::vector<Table> tables_;
  std::vector<Raised> raised_;
  std::size_t fill_;
};

}  // namespace ballast
