// What an experiment found, described once: as a table for a terminal, as JSON, as plots and as a
// part of an HTML page.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "report/json.h"
#include "report/plot.h"

namespace ballast {

/// How the numbers of a column are written for people.
enum class Unit { text, count, number, percent, bytes, seconds, ratio };

/// One column of the table. Rows may have more keys than there are columns; JSON shows them all.
struct ResultColumn {
  std::string key;
  std::string title;
  Unit unit = Unit::text;
  /// The key of the number that stands behind "±" in the same cell, of the same unit; empty: none.
  std::string error_key = {};
};

struct Result {
  std::string experiment;  ///< "needle"
  std::string title;       ///< one line for people
  std::string command;     ///< as typed, quoted for a shell
  Json settings = Json::object();
  std::vector<ResultColumn> columns;
  std::string gap_key;     ///< a blank line in the table where this column changes; empty: none
  std::vector<Json> rows;  ///< objects
  std::vector<Plot> plots;
  std::vector<std::string> notes;  ///< what the columns mean, what has to be known; a line each

  /// Title, table and notes.
  std::string to_text() const;
  Json to_json() const;
  /// What to_json() wrote. Throws Error saying what is missing; `name` is the file's.
  static Result from_json(const Json& json, const std::string& name);
};

/// One cell as text; null, missing and not finite are empty. Numbers of unit text are written with
/// as many digits as they need.
std::string format_cell(const Json& row, const ResultColumn& column);

/// Whether the column holds numbers.
bool is_right_aligned(const Result& result, const ResultColumn& column);

/// Whether the table is to show a gap before row r.
bool gap_before(const Result& result, std::size_t r);

/// A page that needs nothing beside it: contents, then each result's title, command, table, plots
/// and notes. Plots are drawn by gnuplot; where it is missing, the page says so and shows the
/// tables only.
std::string html_page(std::string_view title, const std::vector<Result>& results);

}  // namespace ballast
