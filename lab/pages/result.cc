#include "pages/result.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/fail.h"
#include "report/json_rows.h"
#include "report/table.h"
#include "report/terminal.h"
#include "report/units.h"

namespace ballast {
namespace {

constexpr std::array<std::pair<Unit, const char*>, 7> kUnits = {{{Unit::text, "text"},
                                                                 {Unit::count, "count"},
                                                                 {Unit::number, "number"},
                                                                 {Unit::percent, "percent"},
                                                                 {Unit::bytes, "bytes"},
                                                                 {Unit::seconds, "seconds"},
                                                                 {Unit::ratio, "ratio"}}};

/// Of a file: a page has a cell for each column of each row, however little the row says, and looks
/// for each column among all fields of the row.
constexpr std::size_t kMostColumns = 256, kMostCells = 1'000'000;

const char* unit_name(Unit unit) {
  return std::ranges::find(kUnits, unit, &std::pair<Unit, const char*>::first)->second;
}

std::string format_quantity(double x, Unit unit) {
  switch (unit) {
    case Unit::text:
      return fmt::format("{:.6g}", x);
    case Unit::count: {
      const auto whole = static_cast<std::uint64_t>(std::llround(std::min(std::abs(x), 9e18)));
      return (x < 0 && whole > 0 ? "-" : "") + format_count(whole);
    }
    case Unit::number:
      return format_number(x);
    case Unit::percent:
      return x < 0 ? "-" + format_percent(-x) : format_percent(x);
    case Unit::bytes:
      return format_bytes(x);
    case Unit::seconds:
      return format_seconds(x);
    case Unit::ratio:
      return format_fixed(x, 2) + "×";
  }
  return "";
}

std::string format_value(const Json& value, Unit unit) {
  if (value.is_null()) return "";
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  if (value.is_number()) {
    const double x = value.get<double>();
    return std::isfinite(x) ? format_quantity(x, unit) : "";  // a file has null here
  }
  if (!value.is_array()) return value.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::string out;
  for (const Json& item : value) out += (out.empty() ? "" : ", ") + format_value(item, unit);
  return out;
}

/// The member of an object, or null.
const Json& member(const Json& row, const std::string& key) {
  static const Json null;
  if (!row.is_object()) return null;
  const auto found = row.find(key);
  return found == row.end() ? null : *found;
}

/// The required member of a results file; throws Error if it is missing or of another kind.
const Json& expect(const Json& json, const char* key, bool (Json::*is)() const noexcept,
                   const char* kind, const std::string& name) {
  const Json& value = member(json, key);
  require((value.*is)(), "{}: not the JSON of an experiment (ballast eval NAME --json): {}", name,
          json.is_object() ? fmt::format("\"{}\" is {}", key,
                                         json.contains(key) ? fmt::format("not {}", kind)
                                                            : std::string("missing"))
                           : "it is no object");
  return value;
}

std::string expect_text(const Json& json, const char* key, const std::string& name) {
  return expect(json, key, &Json::is_string, "text", name);
}

/// A list of texts; missing: empty.
std::vector<std::string> keys_of(const Json& json, const char* key, const std::string& name) {
  std::vector<std::string> out;
  if (!json.contains(key)) return out;
  const Json& list = expect(json, key, &Json::is_array, "a list", name);
  require(list.size() <= kMostColumns, "{}: \"{}\" names {} columns; at most {} are read", name,
          key, list.size(), kMostColumns);
  for (const Json& item : list) {
    require(item.is_string(), "{}: an item of \"{}\" is not text", name, key);
    out.push_back(item);
  }
  return out;
}

ResultColumn column_of(const Json& json, const std::string& name) {
  ResultColumn column{expect_text(json, "key", name), expect_text(json, "title", name)};
  const std::string unit = expect_text(json, "unit", name);
  const auto found = std::ranges::find(kUnits, unit, &std::pair<Unit, const char*>::second);
  require(found != kUnits.end(), "{}: the column \"{}\" has the unknown unit \"{}\"", name,
          column.key, unit);
  column.unit = found->first;
  if (json.contains("error_key")) column.error_key = expect_text(json, "error_key", name);
  column.detail = member(json, "detail") == true;
  return column;
}

Json column_json(const ResultColumn& column) {
  Json out = {{"key", column.key}, {"title", column.title}, {"unit", unit_name(column.unit)}};
  if (!column.error_key.empty()) out["error_key"] = column.error_key;
  if (column.detail) out["detail"] = true;
  return out;
}

}  // namespace

std::string format_cell(const Json& row, const ResultColumn& column) {
  const Json& value = member(row, column.key);
  std::string text = format_value(value, column.unit);
  if (text.empty()) return value.is_null() && member(row, "fits") == false ? "–" : text;
  const Json &low = member(row, column.key + "_low"), &high = member(row, column.key + "_high");
  if (low.is_number() && high.is_number()) {
    // A dash beside a minus would be read as two.
    const char* to = low.get<double>() < 0 ? " to " : "–";
    if (column.unit == Unit::percent) {
      return fmt::format("{} ({}{}{})", text, format_fixed(100 * low.get<double>(), 0), to,
                         format_fixed(100 * high.get<double>(), 0));
    }
    return fmt::format("{} ({}{}{})", text, format_value(low, column.unit), to,
                       format_value(high, column.unit));
  }
  if (column.error_key.empty()) return text;
  const Json& deviation = member(row, column.error_key);
  if (deviation.is_number() && deviation.get<double>() == 0) return text;
  const std::string error = format_value(deviation, column.unit);
  return error.empty() ? text : text + " ± " + error;
}

bool is_right_aligned(const Result& result, const ResultColumn& column) {
  if (column.unit != Unit::text) return true;
  bool any = false;
  for (const Json& row : result.rows) {
    const Json& value = member(row, column.key);
    if (!value.is_null() && !value.is_number()) return false;
    any |= value.is_number();
  }
  return any;
}

bool gap_before(const Result& result, std::size_t row) {
  if (row == 0 || result.gap_key.empty()) return false;
  const Json &before = result.rows[row - 1], &here = result.rows[row];
  return member(before, result.gap_key) != member(here, result.gap_key) ||
         member(before, "storage_only") != member(here, "storage_only");
}

namespace {

bool holds(const std::vector<std::string>& keys, const std::string& key) {
  return std::ranges::find(keys, key) != keys.end();
}

bool names_row(const Result& result, const ResultColumn& column) {
  return result.named_by.empty() ? column.key == result.columns[0].key
                                 : holds(result.named_by, column.key);
}

Table table_of(const Result& result, const std::vector<ResultColumn>& columns) {
  std::vector<Table::Column> heads;
  for (const ResultColumn& column : columns) {
    heads.push_back({column.title, is_right_aligned(result, column) ? Align::right : Align::left,
                     names_row(result, column)});
  }
  Table table(heads);
  for (std::size_t r = 0; r < result.rows.size(); ++r) {
    if (gap_before(result, r)) table.add_gap();
    std::vector<std::string> cells;
    for (const ResultColumn& column : columns) cells.push_back(format_cell(result.rows[r], column));
    table.add(std::move(cells));
  }
  return table;
}

/// The place of the column that a narrow table loses next, by Result::to_text(); `columns.size()`:
/// none.
std::size_t least_needed(const Result& result, const std::vector<ResultColumn>& columns) {
  const auto names = std::ranges::count_if(
      columns, [&](const ResultColumn& column) { return names_row(result, column); });
  const auto agree = [&](const std::string& key) {
    return names > 1 && std::ranges::all_of(result.rows, [&](const Json& row) {
             return member(row, key) == member(result.rows[0], key);
           });
  };
  const auto find = [&](const std::vector<std::string>& keys, bool all) {
    for (const std::string& key : keys) {
      const auto at = std::ranges::find(columns, key, &ResultColumn::key);
      if (at == columns.end()) continue;
      if ((all && !names_row(result, *at)) || agree(key)) {
        return static_cast<std::size_t>(at - columns.begin());
      }
    }
    return columns.size();
  };
  const std::size_t support = find(result.supporting, true);
  if (support < columns.size() || result.rows.size() < 2) return support;
  return find(result.named_by, false);
}

}  // namespace

std::string Result::to_text(std::size_t width) const {
  std::vector<ResultColumn> shown, left_out;
  for (const ResultColumn& column : columns) {
    (width > 0 && column.detail ? left_out : shown).push_back(column);
  }
  while (width > 0 && shown.size() > 2 && table_of(*this, shown).width() > width) {
    const std::size_t least = least_needed(*this, shown);
    if (least == shown.size()) break;  // the rest goes on below
    left_out.push_back(shown[least]);
    shown.erase(shown.begin() + static_cast<std::ptrdiff_t>(least));
  }
  const auto place = [&](const ResultColumn& column) {
    return std::ranges::find(columns, column.key, &ResultColumn::key);
  };
  std::ranges::sort(left_out, {}, place);
  std::string out = wrap(title, width) + "\n\n" + table_of(*this, shown).to_string(width);
  if (!notes.empty() || !left_out.empty()) out += '\n';
  for (const std::string& note : notes) {
    const std::string name = note.substr(0, note.find("  "));
    const auto explains = [&](const ResultColumn& column) { return column.title == name; };
    if (std::ranges::any_of(left_out, explains) && std::ranges::none_of(shown, explains)) continue;
    out += wrap_note(note, width) + '\n';
  }
  if (!left_out.empty()) {
    std::string names;
    for (const ResultColumn& column : left_out) {
      names += (names.empty() ? "" : ", ") + column.title;
    }
    out += wrap_note("--wide   shows " + names + ", too", width) + '\n';
  }
  return out;
}

std::string Result::to_markdown() const {
  std::string out = "### " + title + "\n\n" + table_of(*this, columns).to_markdown();
  if (!notes.empty()) out += '\n';
  for (const std::string& note : notes) out += "- " + note + '\n';
  return out;
}

std::string Result::to_csv() const {
  std::vector<std::string> keys;
  const auto add = [&](const std::string& key) {
    if (std::ranges::find(keys, key) == keys.end()) keys.push_back(key);
  };
  for (const ResultColumn& column : columns) {
    add(column.key);
    if (!column.error_key.empty()) add(column.error_key);
    for (const char* end : {"_low", "_high"}) {
      const bool any = std::ranges::any_of(
          rows, [&](const Json& row) { return row.contains(column.key + end); });
      if (any) add(column.key + end);
    }
  }
  return rows_to_csv(keys, rows);
}

Json Result::to_json() const {
  Json column_list = Json::array(), plot_list = Json::array();
  for (const ResultColumn& column : columns) column_list.push_back(column_json(column));
  for (const Plot& plot : plots) plot_list.push_back(plot.to_json());
  Json out = {{"experiment", experiment}, {"title", title},         {"command", command},
              {"settings", settings},     {"columns", column_list}, {"results", Json::array()},
              {"plots", plot_list},       {"notes", notes}};
  for (const Json& row : rows) out["results"].push_back(row);
  if (!gap_key.empty()) out["gap_key"] = gap_key;
  if (!named_by.empty()) out["named_by"] = named_by;
  if (!supporting.empty()) out["supporting"] = supporting;
  if (!kept.is_null()) out["kept"] = kept;
  return out;
}

Result Result::from_json(const Json& json, const std::string& name) {
  Result out;
  out.experiment = expect_text(json, "experiment", name);
  out.title = expect_text(json, "title", name);
  out.command = expect_text(json, "command", name);
  out.settings = expect(json, "settings", &Json::is_object, "an object", name);
  for (const Json& column : expect(json, "columns", &Json::is_array, "a list", name)) {
    out.columns.push_back(column_of(column, name));
  }
  for (const Json& row : expect(json, "results", &Json::is_array, "a list", name)) {
    require(row.is_object(), "{}: a row of \"results\" is not an object", name);
    require(row.size() <= kMostColumns,
            "{}: a row of \"results\" has {} fields; at most {} are read: write fewer", name,
            row.size(), kMostColumns);
    out.rows.push_back(row);
  }
  require(out.columns.size() <= kMostColumns && out.columns.size() * out.rows.size() <= kMostCells,
          "{}: a table of {} columns and {} rows is too large; at most {} columns and {} cells are "
          "read: split it",
          name, out.columns.size(), out.rows.size(), kMostColumns, kMostCells);
  for (const Json& note : expect(json, "notes", &Json::is_array, "a list", name)) {
    require(note.is_string(), "{}: an item of \"notes\" is not text", name);
    out.notes.push_back(note);
  }
  if (json.contains("kept")) out.kept = expect(json, "kept", &Json::is_object, "an object", name);
  out.named_by = keys_of(json, "named_by", name);
  out.supporting = keys_of(json, "supporting", name);
  if (json.contains("gap_key")) out.gap_key = expect_text(json, "gap_key", name);
  const Json& plots = expect(json, "plots", &Json::is_array, "a list", name);
  try {
    for (const Json& plot : plots) out.plots.push_back(Plot::from_json(plot));
  } catch (const SortedJson::exception&) {
    fail("{}: plot {} is not as ballast writes it", name, out.plots.size() + 1);
  } catch (const Error& error) {
    fail("{}: plot {}: {}", name, out.plots.size() + 1, error.what());
  }
  return out;
}

}  // namespace ballast
