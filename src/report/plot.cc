#include "report/plot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/fail.h"
#include "base/output_file.h"
#include "report/gnuplot.h"

namespace ballast {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::pair<Plot::Kind, const char*>, 4> kKinds = {
    {{Plot::Kind::lines, "lines"},
     {Plot::Kind::points, "points"},
     {Plot::Kind::bars, "bars"},
     {Plot::Kind::heat, "heat"}}};

struct Size {
  int width = 900;
  int height = 600;
};

/// Maps need room for their cells.
Size size_of(const Plot& plot) {
  if (plot.kind != Plot::Kind::heat) return {};
  std::size_t columns = 0, rows = 0;
  for (const Plot::Map& map : plot.maps) {
    std::size_t most = 0;
    for (const auto& row : map.cells) most = std::max(most, row.size());
    columns += most + 1;
    rows = std::max(rows, map.cells.size());
  }
  const auto fit = [](std::size_t n, std::size_t each, std::size_t low, std::size_t high) {
    return static_cast<int>(std::clamp(std::min(n, high) * each + 220, low, high));
  };
  // One map alone leaves room for its title.
  return {fit(columns, 38, plot.maps.size() == 1 ? 460 : 600, 2400), fit(rows, 26, 340, 1600)};
}

std::string terminal_of(const Plot& plot, const fs::path& path) {
  const std::string extension = path.extension().string();
  const Size size = size_of(plot);
  if (extension == ".svg") {
    return fmt::format("svg size {},{} dynamic enhanced background 'white'", size.width,
                       size.height);
  }
  if (extension == ".png") {
    return fmt::format("pngcairo size {},{} enhanced", size.width, size.height);
  }
  if (extension == ".pdf") {
    return fmt::format("pdfcairo size {}in,{}in enhanced", size.width / 100.0, size.height / 100.0);
  }
  fail("{}: a plot's name ends in .svg, .png or .pdf", path.string());
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
}

/// Adapts a tag of gnuplot's SVG to a page with several plots: ids get a prefix, black becomes the
/// text colour.
std::string adapt_tag(std::string tag, const std::string& prefix) {
  for (const char* attribute : {" id='", " id=\"", "href='#", "href=\"#", "url(#"}) {
    replace_all(tag, attribute, attribute + prefix);
  }
  replace_all(tag, " color=\"black\"", "");
  for (const char* black : {"stroke='black'", "stroke=\"black\""}) {
    replace_all(tag, black, "stroke=\"currentColor\"");
  }
  replace_all(tag, "fill=\"black\"", "fill=\"currentColor\"");
  replace_all(tag, "font-family=\"Arial\"", "font-family=\"sans-serif\"");
  return tag;
}

/// The id suffix of a plot: equal for equal plots, different for others.
std::uint64_t fingerprint(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (unsigned char c : text) hash = (hash ^ c) * 0x100000001b3;
  return hash;
}

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

bool can_draw() { return is_installed("gnuplot"); }

void check_plot(const fs::path& path) {
  terminal_of({}, path);
  require(can_draw(),
          "{}: plots are drawn by gnuplot, which is not installed (Debian's package: gnuplot-nox)",
          path.string());
}

void write_plot(const Plot& plot, const fs::path& path) { write_plots({plot}, path); }

std::vector<fs::path> write_plots(const std::vector<Plot>& plots, const fs::path& path) {
  check_plot(path);
  std::vector<std::string> drawn;  // draws all before the first file changes
  for (const Plot& plot : plots) {
    drawn.push_back(run_gnuplot(plot_script(plot, terminal_of(plot, path))));
  }
  std::vector<fs::path> names;
  for (std::size_t i = 0; i < drawn.size(); ++i) {
    fs::path name = path;
    if (i > 0) {
      name.replace_filename(
          fmt::format("{}-{}{}", path.stem().string(), i + 1, path.extension().string()));
    }
    write_file(name, drawn[i]);
    names.push_back(name);
  }
  return names;
}

std::string plot_svg(const Plot& plot) {
  const Size size = size_of(plot);
  const std::string drawn = run_gnuplot(
      plot_script(plot, fmt::format("svg size {},{} dynamic enhanced", size.width, size.height)));
  const std::string prefix = fmt::format("p{:016x}-", fingerprint(drawn));
  std::string out;
  // gnuplot escapes '<' in text.
  for (std::size_t at = drawn.find("<svg"); at < drawn.size();) {
    const std::size_t end = drawn.find('>', at);
    require(end != std::string::npos, "gnuplot wrote an SVG with an unfinished tag");
    std::size_t next = std::min(drawn.find('<', end), drawn.size());
    const std::string tag = drawn.substr(at, end + 1 - at);
    if (tag.starts_with("<title") || tag.starts_with("<desc")) {
      next = std::min(drawn.find('<', next + 1), drawn.size());  // tooltips that say gnuplot_plot_1
    } else {
      out += adapt_tag(tag, prefix) + drawn.substr(end + 1, next - end - 1);
    }
    at = next;
  }
  replace_all(out, "\n\n", "\n");
  return out;
}

}  // namespace ballast
