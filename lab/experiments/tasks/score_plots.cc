#include "experiments/tasks/score_plots.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>

namespace ballast {
namespace {

bool is_storage_only(const Json& row) { return row.value("storage_only", false); }

/// The memory size of a row; none for methods that keep everything.
std::optional<double> memory_of(const Json& row) {
  for (const char* key : {"rate", "budget", "share"}) {
    if (row.contains(key)) return row[key].get<double>();
  }
  return std::nullopt;
}

std::string memory_title(const std::vector<Json>& rows) {
  for (const Json& row : rows) {
    if (row.contains("budget")) return "entries kept";
    if (row.contains("share")) return "share of bytes kept";
  }
  return "fraction of entries kept";
}

std::string group_name(const Json& row, const std::vector<ResultColumn>& group) {
  std::string name;
  for (const ResultColumn& column : group) {
    if (!name.empty()) name += ", ";
    name += format_cell(row, column);
    if (column.unit != Unit::text) name += " " + column.title;
  }
  return name;
}

bool is_overall(const Json& row, const std::vector<ResultColumn>& group) {
  return !group.empty() && row.contains(group[0].key) && row[group[0].key] == "all";
}

Plot::Line& line_of(Plot& plot, const std::string& method) {
  const auto at = std::ranges::find(plot.lines, method, &Plot::Line::name);
  if (at != plot.lines.end()) return *at;
  plot.lines.push_back({method, {}});
  return plot.lines.back();
}

Plot::Point point_of(const Json& row, double x, const std::string& key) {
  const std::string error = key + "_error";
  Plot::Point point{x, row.value(key, 0.0), row.contains(error) ? row[error].get<double>() : 0.0};
  if (row.contains(key + "_low")) point.low = row[key + "_low"].get<double>();
  if (row.contains(key + "_high")) point.high = row[key + "_high"].get<double>();
  return point;
}

Plot plot_lines(const std::vector<Json>& rows, const std::vector<double>& memories,
                const std::string& key) {
  Plot plot;
  plot.x_title = memory_title(rows);
  const bool by_bytes =
      std::ranges::any_of(rows, [](const Json& row) { return row.contains("share"); });
  for (const Json& row : rows) {
    if (!row.value("fits", true)) continue;
    // Types of storage are points at their own bytes; other axes have no place for them.
    if (is_storage_only(row) && !by_bytes) continue;
    Plot::Line& line = line_of(plot, row.at("method").get<std::string>());
    if (is_storage_only(row)) {
      line.points = {point_of(row, 1 / row.at("ratio").get<double>(), key)};
      continue;
    }
    if (const std::optional<double> memory = memory_of(row)) {
      line.points.push_back(point_of(row, *memory, key));
    } else {
      line.points = {point_of(row, memories.front(), key), point_of(row, memories.back(), key)};
    }
  }
  return plot;
}

}  // namespace

void add_scores(std::vector<Json>& rows, const std::string& key, const std::vector<Sample>& samples,
                const std::vector<Variant>& variants,
                const std::vector<std::vector<Answered>>& answers, const Scorer& scorer,
                bool overall) {
  const std::vector<Json> more = score_rows(samples, variants, answers, scorer, overall);
  for (std::size_t i = 0; i < rows.size() && i < more.size(); ++i) {
    rows[i][key] = more[i].at("score");
    rows[i][key + "_error"] = more[i].at("score_error");
    for (const char* end : {"_low", "_high"}) {
      if (more[i].contains(std::string("score") + end)) {
        rows[i][key + end] = more[i].at(std::string("score") + end);
      }
    }
  }
}

std::vector<Plot> score_plots(const std::string& title, const std::vector<Json>& rows,
                              const std::vector<ResultColumn>& group, const std::string& score_key,
                              const std::string& score_title) {
  std::set<double> found;
  for (const Json& row : rows) {
    if (const std::optional<double> memory = memory_of(row)) found.insert(*memory);
  }
  const std::vector<double> memories(found.begin(), found.end());
  const bool overall =
      std::ranges::any_of(rows, [&](const Json& r) { return is_overall(r, group); });
  std::vector<Plot> plots;
  if (memories.size() > 1) {
    std::vector<std::string> names;
    for (const Json& row : rows) {
      const std::string name = group_name(row, group);
      if ((overall && !is_overall(row, group)) || std::ranges::find(names, name) != names.end()) {
        continue;
      }
      names.push_back(name);
      std::vector<Json> mine;
      std::ranges::copy_if(rows, std::back_inserter(mine),
                           [&](const Json& r) { return group_name(r, group) == name; });
      plots.push_back(plot_lines(mine, memories, score_key));
      plots.back().title = overall || name.empty() ? title : title + ": " + name;
    }
  } else {
    Plot plot;
    plot.kind = Plot::Kind::bars;
    plot.title = title;
    for (const Json& row : rows) {
      if (!row.value("fits", true) || is_storage_only(row)) continue;
      const std::string name = group_name(row, group);
      auto at = std::ranges::find(plot.x_labels, name);
      if (at == plot.x_labels.end()) at = plot.x_labels.insert(at, name);
      const auto x = static_cast<double>(at - plot.x_labels.begin());
      line_of(plot, row.at("method").get<std::string>())
          .points.push_back(point_of(row, x, score_key));
    }
    plots.push_back(std::move(plot));
  }
  for (Plot& plot : plots) plot.y_title = score_title;
  return plots;
}

}  // namespace ballast
