#include "pages/plot.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "base/fail.h"
#include "base/output_file.h"
#include "base/partial_files.h"
#include "base/read_file.h"
#include "pages/svg.h"

namespace ballast {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::pair<Plot::Kind, const char*>, 4> kKinds = {
    {{Plot::Kind::lines, "lines"},
     {Plot::Kind::points, "points"},
     {Plot::Kind::bars, "bars"},
     {Plot::Kind::heat, "heat"}}};

Json number_json(double x) { return std::isfinite(x) ? Json(x) : Json(nullptr); }

Json point_json(const Plot::Point& p) {
  Json out = {number_json(p.x), number_json(p.y)};
  if (p.deviation != 0 || p.has_interval()) out.push_back(number_json(p.deviation));
  if (p.has_interval()) {
    out.push_back(p.low);
    out.push_back(p.high);
  }
  return out;
}

Plot::Point point_of(const Json& json) {
  return {
      number_of(json.at(0)), number_of(json.at(1)), json.size() > 2 ? number_of(json.at(2)) : 0.0,
      json.size() > 4 ? number_of(json.at(3)) : NAN, json.size() > 4 ? number_of(json.at(4)) : NAN};
}

/// An SVG file as "png" or "pdf", by rsvg-convert.
std::string converted(const std::string& svg, const std::string& kind) {
  fs::path made = fs::temp_directory_path() / fmt::format("ballast-{}.{}", ::getpid(), kind);
  const int note = note_partial_file(made.string());
  const std::string command = fmt::format("rsvg-convert -f {} -o '{}'", kind, made.string());
  std::FILE* program = ::popen(command.c_str(), "w");
  const bool written =
      program != nullptr && std::fwrite(svg.data(), 1, svg.size(), program) == svg.size();
  const bool done = program != nullptr && ::pclose(program) == 0 && written;
  std::string out;
  if (done) out = read_file(made);
  std::error_code ignored;
  fs::remove(made, ignored);
  forget_partial_file(note);
  require(done, ErrorCode::io, "rsvg-convert could not make the plot's {}", kind);
  return out;
}

}  // namespace

Json Plot::to_json() const {
  Json out = {
      {"kind", std::ranges::find(kKinds, kind, &std::pair<Kind, const char*>::first)->second},
      {"title", title},
      {"x_title", x_title},
      {"y_title", y_title}};
  if (log_x) out["log_x"] = true;
  if (log_y) out["log_y"] = true;
  if (!x_labels.empty()) out["x_labels"] = x_labels;
  if (!y_labels.empty()) out["y_labels"] = y_labels;
  for (const Line& line : lines) {
    Json points = Json::array();
    for (const Point& p : line.points) points.push_back(point_json(p));
    out["lines"].push_back({{"name", line.name}, {"points", std::move(points)}});
  }
  for (const Map& map : maps) {
    Json cells = Json::array();
    for (const auto& row : map.cells) {
      Json numbers = Json::array();
      for (double x : row) numbers.push_back(number_json(x));
      cells.push_back(std::move(numbers));
    }
    out["maps"].push_back({{"name", map.name}, {"cells", std::move(cells)}});
  }
  if (kind == Kind::heat) {
    out["low"] = low;
    out["high"] = high;
  }
  return out;
}

Plot Plot::from_json(const Json& json) {
  Plot plot;
  const std::string kind = json.at("kind");
  const auto found = std::ranges::find(kKinds, kind, &std::pair<Kind, const char*>::second);
  require(found != kKinds.end(), "a plot's kind is lines, points, bars or heat, not {}", kind);
  plot.kind = found->first;
  plot.title = json.at("title");
  plot.x_title = json.at("x_title");
  plot.y_title = json.at("y_title");
  plot.log_x = json.value("log_x", false);
  plot.log_y = json.value("log_y", false);
  plot.x_labels = json.value("x_labels", std::vector<std::string>{});
  plot.y_labels = json.value("y_labels", std::vector<std::string>{});
  for (const Json& line : json.value("lines", Json::array())) {
    plot.lines.push_back({line.at("name"), {}});
    for (const Json& p : line.at("points")) plot.lines.back().points.push_back(point_of(p));
  }
  for (const Json& map : json.value("maps", Json::array())) {
    plot.maps.push_back({map.at("name"), {}});
    for (const Json& row : map.at("cells")) {
      std::vector<double>& cells = plot.maps.back().cells.emplace_back();
      for (const Json& x : row) cells.push_back(number_of(x));
    }
  }
  plot.low = json.value("low", 0.0);
  plot.high = json.value("high", 1.0);
  return plot;
}

bool is_rule(const Plot::Line& line) {
  return line.name == "exact" && !line.points.empty() &&
         std::ranges::all_of(line.points,
                             [&](const Plot::Point& p) { return p.y == line.points[0].y; });
}

void check_plot(const fs::path& path) {
  const std::string kind = path.extension().string();
  require(kind == ".svg" || kind == ".png" || kind == ".pdf",
          "{}: a plot's name ends in .svg, .png or .pdf", path.string());
  require(kind == ".svg" || std::system("command -v rsvg-convert > /dev/null 2>&1") == 0,
          "{}: {} is made by rsvg-convert, which is not installed (Debian's package: "
          "librsvg2-bin); .svg needs nothing",
          path.string(), kind);
}

std::vector<fs::path> write_plots(const std::vector<Plot>& plots, const fs::path& path) {
  check_plot(path);
  const std::string kind = path.extension().string();
  std::vector<std::string> drawn;  // draws all before the first file changes
  for (const Plot& plot : plots) {
    drawn.push_back(chart_file(plot));
    if (kind != ".svg") drawn.back() = converted(drawn.back(), kind.substr(1));
  }
  std::vector<fs::path> names;
  for (std::size_t i = 0; i < drawn.size(); ++i) {
    fs::path name = path;
    if (i > 0) name.replace_filename(fmt::format("{}-{}{}", path.stem().string(), i + 1, kind));
    write_file(name, drawn[i]);
    names.push_back(name);
  }
  return names;
}

}  // namespace ballast
