// The result of an experiment. One description gives the table, the JSON, the plots and the HTML
// page.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "pages/plot.h"
#include "report/json.h"

namespace ballast {

/// The format of a column's numbers in tables.
enum class Unit { text, count, number, percent, bytes, seconds, ratio };

/// One column of the table. Rows may have more keys than there are columns; JSON shows them all.
struct ResultColumn {
  std::string key;
  std::string title;
  Unit unit = Unit::text;
  /// The key of the number after "±" in the same cell, of the same unit; empty: none. A number that
  /// is exactly 0 is not shown.
  std::string error_key = {};
  /// Tables of a terminal leave it out unless all columns are wanted.
  bool detail = false;
};

struct Result {
  std::string experiment;  ///< "needle"
  std::string title;       ///< one line for people
  std::string command;     ///< as typed, quoted for a shell
  Json settings = Json::object();
  std::vector<ResultColumn> columns;
  /// A blank line in the table where this column changes, and around rows with "storage_only":
  /// true, which have a size of their own and are compared with no other; empty: none.
  std::string gap_key;
  /// Keys of the columns that name the row, which every part of a narrow table has; empty: the
  /// first column.
  std::vector<std::string> named_by;
  /// Keys of the columns that a narrow table does without, in the order in which it loses them; one
  /// of `named_by` only while all rows agree in it. The other columns are the result.
  std::vector<std::string> supporting;
  std::vector<Json> rows;  ///< objects; nulls of rows with "fits": false are shown as –
  std::vector<Plot> plots;
  /// One question and what each method kept of its text; null: not recorded. "question",
  /// "expected" (texts), "pieces" (a token each), "layers", "kv_heads", and "methods": "name",
  /// "answer", "score", "entries", "kept" (a text a layer and head, see Answered::kept); in place
  /// of the last four, of a method without an answer, "failure" and, of one that does not fit,
  /// "fits": false.
  Json kept;
  std::vector<std::string> notes;  ///< what the columns mean, what has to be known; a line each

  /// Title, table and notes in lines of at most `width` columns, without the columns of details and
  /// those that do not fit: the supporting ones, then names that are the same in every row, then
  /// none; the result goes on below. Notes on what is left out are, too. 0: every column, lines as
  /// long as they are.
  std::string to_text(std::size_t width = 0) const;
  std::string to_markdown() const;
  /// The columns by key, each number with as many digits as it needs; an interval has columns of
  /// its own.
  std::string to_csv() const;
  Json to_json() const;
  /// Reads the output of to_json(). Throws Error that names `name`, the file, and what is missing.
  static Result from_json(const Json& json, const std::string& name);
};

/// One cell as text; null, missing and not finite are empty. Numbers of unit text are written with
/// as many digits as they need. Where the row has KEY_low and KEY_high, they follow in brackets in
/// place of "±".
std::string format_cell(const Json& row, const ResultColumn& column);

/// Whether the column holds numbers.
bool is_right_aligned(const Result& result, const ResultColumn& column);

/// Whether the table is to show a gap before row r.
bool gap_before(const Result& result, std::size_t r);

/// A self-contained page: what was asked of which model, then each result's verdict, charts, what
/// was kept, and its folded table; the commands last. Throws Error if a table takes over
/// 32 MiB, or the plots of a result over 64.
std::string html_page(std::string_view title, const std::vector<Result>& results);

}  // namespace ballast
