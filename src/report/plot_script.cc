// The commands that make gnuplot draw a plot.
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <iterator>
#include <map>
#include <set>

#include "base/fail.h"
#include "report/plot.h"
#include "report/units.h"

namespace ballast {
namespace {

/// Distinguishable with any colour vision, on white and on black.
constexpr std::array kColours = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                 "#56b4e9", "#e69f00", "#8c6d31", "#888888"};
/// Brightness grows with the value, so that the map is readable without colours.
constexpr std::string_view kPalette =
    "set palette maxcolors 64 defined (0 '#440154', 0.25 '#3b528b', 0.5 '#21918c', "
    "0.75 '#5ec962', 1 '#fde725')\n";

/// Escapes text for gnuplot's double quotes, so that nothing in it is a command.
std::string literal(std::string_view text) {
  std::string out = "\"";
  for (char c : to_utf8(text)) {
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
    // Two backslashes disable the special meaning of ^ _ @ & ~ { } in enhanced text.
    if (std::strchr("^_@&~{}", c) != nullptr) out += "\\\\";
    if (c == '"' || c == '\\' || c == '`') out += '\\';
    out += c;
  }
  return out + '"';
}

/// Labels of an axis are formats to gnuplot.
std::string tic(std::string_view text, double at) {
  std::string label;
  for (char c : text) label += c == '%' ? std::string("%%") : std::string(1, c);
  return fmt::format("{} {:g}", literal(label), at);
}

std::string style(std::size_t i) {
  return fmt::format("lc rgb '{}' lw 2 dt {} pt {}", kColours[i % kColours.size()],
                     1 + i / kColours.size() % 5, 5 + 2 * (i % 5));
}

std::string title_of(const Plot::Line& line) {
  return line.name.empty() ? "notitle" : "title " + literal(line.name);
}

bool is_shown(const Plot& plot, const Plot::Point& p) {
  return std::isfinite(p.x) && std::isfinite(p.y) && (!plot.log_x || p.x > 0) &&
         (!plot.log_y || p.y > 0);
}

/// A logarithmic range that fits the points, at least eightfold; gnuplot would extend it to powers
/// of ten.
void append_log_y(std::string& out, const Plot& plot) {
  double low = HUGE_VAL, high = 0;
  for (const Plot::Line& line : plot.lines) {
    for (const Plot::Point& p : line.points) {
      if (!is_shown(plot, p)) continue;
      low = std::min(low, p.y);
      high = std::max(high, p.y);
    }
  }
  if (high == 0) return;  // no points: no logarithms either
  out += fmt::format("set logscale y {}\nset format y '%g'\n", high / low < 100 ? 2 : 10);
  const double margin = std::max(1.3, std::sqrt(8 * low / high));
  out += fmt::format("set yrange [{:.6g}:{:.6g}]\n", low / margin, high * margin);
}

/// "x y low high", the ends of the bar through the point.
std::string data_row(const Plot& plot, const Plot::Point& p) {
  const double bar = std::isfinite(p.deviation) ? std::abs(p.deviation) : 0;
  // A bar cannot reach zero on a logarithmic axis.
  const double end = p.has_interval() ? p.low : p.y - bar;
  const double low = plot.log_y ? std::max(end, p.y * 1e-3) : end;
  return fmt::format("{:.9g} {:.9g} {:.9g} {:.9g}\n", p.x, p.y, low,
                     p.has_interval() ? p.high : p.y + bar);
}

bool has_bars(const Plot::Line& line) {
  return std::ranges::any_of(
      line.points, [](const Plot::Point& p) { return p.deviation != 0 || p.has_interval(); });
}

/// Bars of "x y low high" as plain lines: those with points punch discs into what is under them.
/// `x`: an expression of gnuplot.
std::string bars_item(std::size_t line, std::string_view x, std::string_view colour) {
  return fmt::format("$line{} using {}:3:(0):($4-$3) with vectors nohead lc rgb '{}' lw 1 notitle",
                     line, x, colour);
}

/// The place on the axis, where equal distances look equal.
double along_x(const Plot& plot, double x) { return plot.log_x ? std::log2(x) : x; }

/// How far along the axis each line is moved, so that points of several lines at one x stand side
/// by side. 0: no point of another line is at any x of it, or the plot is none of lines.
std::vector<double> moves_of(const Plot& plot) {
  std::vector<double> moves(plot.lines.size(), 0.0);
  if (plot.kind != Plot::Kind::lines) return moves;
  std::map<double, std::set<std::size_t>> lines_at;
  double gap = HUGE_VAL;  // of two points of one line
  for (std::size_t i = 0; i < plot.lines.size(); ++i) {
    if (is_rule(plot.lines[i])) continue;
    std::set<double> own;
    for (const Plot::Point& p : plot.lines[i].points) {
      if (is_shown(plot, p)) own.insert(along_x(plot, p.x));
    }
    for (auto at = own.begin(); at != own.end(); ++at) {
      lines_at[*at].insert(i);
      if (at != own.begin()) gap = std::min(gap, *at - *std::prev(at));
    }
  }
  std::set<std::size_t> moved;
  for (const auto& [x, lines] : lines_at) {
    if (lines.size() > 1) moved.insert(lines.begin(), lines.end());
  }
  if (moved.empty()) return moves;
  constexpr double kOfAxis = 0.015;  // wider than a mark
  const double span = lines_at.rbegin()->first - lines_at.begin()->first;
  const auto steps = static_cast<double>(moved.size() - 1);
  const double step = std::min(kOfAxis * span, 0.4 * gap / steps);
  double at = -step * steps / 2;
  for (const std::size_t i : moved) {
    moves[i] = at;
    at += step;
  }
  return moves;
}

std::string moved_x(const Plot& plot, double move) {
  if (move == 0) return "1";
  return plot.log_x ? fmt::format("($1*{:.6g})", std::exp2(move))
                    : fmt::format("($1{:+.6g})", move);
}

/// Room for marks at the ends; lines of scores, whose ends are 0 and 1, stand clear of the frame.
void append_ranges(std::string& out, const Plot& plot) {
  double left = HUGE_VAL, right = -HUGE_VAL, low = HUGE_VAL, high = -HUGE_VAL;
  bool intervals = false;
  for (const Plot::Line& line : plot.lines) {
    for (const Plot::Point& p : line.points) {
      if (!is_shown(plot, p)) continue;
      left = std::min(left, along_x(plot, p.x));
      right = std::max(right, along_x(plot, p.x));
      intervals |= p.has_interval();
      low = std::min({low, p.y, p.has_interval() ? p.low : p.y});
      high = std::max({high, p.y, p.has_interval() ? p.high : p.y});
    }
  }
  if (left > right) return;
  const double room = right > left ? 0.06 * (right - left) : plot.log_x ? 1 : std::max(1.0, left);
  const auto x = [&](double along) { return plot.log_x ? std::exp2(along) : along; };
  out += fmt::format("set xrange [{:.9g}:{:.9g}]\n", x(left - room), x(right + room));
  if (intervals && low >= 0 && high <= 1 && !plot.log_y) out += "set yrange [-0.04:1.04]\n";
}

/// Lines and scattered points. Every item of the result is one of gnuplot's plots.
std::vector<std::string> append_curves(std::string& out, const Plot& plot) {
  if (plot.log_x) out += "set logscale x 2\nset format x '%.10g'\n";
  append_ranges(out, plot);
  std::vector<std::string> rules, bars, curves;
  const std::vector<double> moves = moves_of(plot);
  for (std::size_t i = 0; i < plot.lines.size(); ++i) {
    const Plot::Line& line = plot.lines[i];
    std::string rows;
    for (const Plot::Point& p : line.points) {
      if (is_shown(plot, p)) rows += data_row(plot, p);
    }
    if (rows.empty()) continue;
    if (plot.kind == Plot::Kind::lines && is_rule(line)) {
      // Wider than a line that lies on it.
      rules.push_back(fmt::format("{:.9g} with lines lc rgb '#b0b0b0' lw 6 {}", line.points[0].y,
                                  title_of(line)));
      continue;
    }
    out += fmt::format("$line{} << EOD\n{}EOD\n", i, rows);
    const std::string x = moved_x(plot, moves[i]);
    if (has_bars(line)) bars.push_back(bars_item(i, x, kColours[i % kColours.size()]));
    const bool scatter = plot.kind == Plot::Kind::points;
    curves.push_back(fmt::format(
        "$line{} using {}:2 with {} {} ps {} {}", i, x, scatter ? "points" : "linespoints",
        style(i), scatter ? (line.points.size() > 200 ? 0.4 : 1.2) : 0.8, title_of(line)));
  }
  // Marks hide no bar, and no bar crosses the mark of another line.
  rules.insert(rules.end(), bars.begin(), bars.end());
  rules.insert(rules.end(), curves.begin(), curves.end());
  return rules;
}

/// Long labels do not fit side by side.
std::string x_tics(const std::vector<std::string>& tics, std::size_t characters) {
  return fmt::format("set xtics {}({})\n", characters > 90 ? "rotate by -35 " : "",
                     fmt::join(tics, ", "));
}

std::string label_of(const std::vector<std::string>& labels, std::size_t i) {
  return i < labels.size() ? labels[i] : "";
}

std::vector<std::string> append_bars(std::string& out, const Plot& plot) {
  std::size_t groups = plot.x_labels.size(), characters = 0;
  for (const Plot::Line& line : plot.lines) groups = std::max(groups, line.points.size());
  std::vector<std::string> tics, items;
  for (std::size_t g = 0; g < groups; ++g) {
    tics.push_back(tic(label_of(plot.x_labels, g), static_cast<double>(g)));
    characters += label_of(plot.x_labels, g).size() + 2;
  }
  if (groups == 0) return {};
  const auto lines = static_cast<double>(plot.lines.size());
  const double width = 0.8 / lines;
  out += x_tics(tics, characters);
  out += fmt::format("set xrange [-0.6:{}]\nset boxwidth {:.6g}\nset style fill solid\n",
                     static_cast<double>(groups) - 0.4, 0.94 * width);
  if (!plot.log_y) out += "set xzeroaxis lt -1\nset yrange [*<0:0<*]\n";
  for (std::size_t i = 0; i < plot.lines.size(); ++i) {
    const Plot::Line& line = plot.lines[i];
    std::string rows;
    for (std::size_t g = 0; g < line.points.size(); ++g) {
      Plot::Point p = line.points[g];
      if (!std::isfinite(p.y) || (plot.log_y && p.y <= 0)) continue;
      p.x = static_cast<double>(g) + (static_cast<double>(i) + 0.5 - lines / 2) * width;
      rows += data_row(plot, p);
    }
    if (rows.empty()) continue;
    out += fmt::format("$line{} << EOD\n{}EOD\n", i, rows);
    items.push_back(fmt::format("$line{} using 1:2 with boxes lc rgb '{}' {}", i,
                                kColours[i % kColours.size()], title_of(line)));
    if (has_bars(line)) {
      items.push_back(bars_item(i, "1", "black"));
    }
  }
  return items;
}

std::size_t columns_of(const Plot::Map& map) {
  std::size_t columns = 0;
  for (const auto& row : map.cells) columns = std::max(columns, row.size());
  return columns;
}

std::string cell_text(const Plot& plot, double value) {
  if (std::max(std::abs(plot.low), std::abs(plot.high)) > 10) return fmt::format("{:.0f}", value);
  return fmt::format("{:.2f}", value);
}

/// All maps lie on one pair of axes, a gap of one column between them.
std::vector<std::string> append_heat(std::string& out, const Plot& plot) {
  std::string cells, texts, names;
  std::vector<std::string> x_tic, y_tic;
  std::size_t left = 0, rows = 0;
  for (const Plot::Map& map : plot.maps) {
    const std::size_t columns = columns_of(map);
    if (columns == 0) continue;
    for (std::size_t y = 0; y < map.cells.size(); ++y) {
      for (std::size_t x = 0; x < map.cells[y].size(); ++x) {
        const double value = map.cells[y][x];
        if (!std::isfinite(value)) continue;
        const auto cx = static_cast<double>(left + x), cy = static_cast<double>(y);
        const double shade = (value - plot.low) / std::max(plot.high - plot.low, 1e-300);
        cells += fmt::format("{} {} {} {} {} {} {:.9g}\n", cx, cy, cx - 0.5, cx + 0.5, cy - 0.5,
                             cy + 0.5, std::clamp(value, plot.low, plot.high));
        texts += fmt::format("{} {} {} {}\n", cx, cy, cell_text(plot, value),
                             shade < 0.6 ? 0xffffff : 0);
      }
    }
    for (std::size_t x = 0; x < columns; ++x) {
      x_tic.push_back(tic(label_of(plot.x_labels, x), static_cast<double>(left + x)));
    }
    // Labels may stand outside of the axes, drawn text may not.
    if (!map.name.empty()) {
      names += fmt::format("set label {} at first {}, graph 1.03 center\n", literal(map.name),
                           static_cast<double>(left) + (static_cast<double>(columns) - 1) / 2);
    }
    rows = std::max(rows, map.cells.size());
    left += columns + 1;
  }
  if (cells.empty()) return {};
  for (std::size_t y = 0; y < rows; ++y) {
    y_tic.push_back(tic(label_of(plot.y_labels, y), static_cast<double>(y)));
  }
  out += kPalette;
  out += fmt::format("set cbrange [{:.9g}:{:.9g}]\nset xrange [-0.5:{}]\nset yrange [{}:-0.5]\n",
                     plot.low, plot.high, static_cast<double>(left) - 1.5,
                     static_cast<double>(rows) - 0.5);
  out += fmt::format("set xtics rotate by -45 scale 0 ({})\nset ytics scale 0 ({})\n",
                     fmt::join(x_tic, ", "), fmt::join(y_tic, ", "));
  out += "unset grid\nunset key\nunset border\n";
  if (!names.empty()) out += "set tmargin 5\nset title offset 0,1\n" + names;
  out += fmt::format("$cells << EOD\n{}EOD\n$texts << EOD\n{}EOD\n", cells, texts);
  std::vector<std::string> items = {
      "$cells using 1:2:3:4:5:6:7 with boxxyerror lc palette fs solid 1 noborder notitle"};
  if (left <= 60) {
    items.push_back("$texts using 1:2:3:4 with labels center font ',9' tc rgb variable notitle");
  }
  return items;
}

}  // namespace

std::string plot_script(const Plot& plot, std::string_view terminal) {
  std::string out = fmt::format("set terminal {}\nset encoding utf8\n", terminal);
  out += fmt::format("set title {}\nset xlabel {}\nset ylabel {}\n", literal(plot.title),
                     literal(plot.x_title), literal(plot.y_title));
  // No tick of an upper border joins a bar that ends there.
  out += "set grid\nset key outside right top\nset border 3\nset tics nomirror\n";
  if (plot.log_y && plot.kind != Plot::Kind::heat) append_log_y(out, plot);
  const std::vector<std::string> items = plot.kind == Plot::Kind::heat   ? append_heat(out, plot)
                                         : plot.kind == Plot::Kind::bars ? append_bars(out, plot)
                                                                         : append_curves(out, plot);
  require(
      !items.empty(), "there is nothing to draw: {}",
      plot.kind == Plot::Kind::heat ? "no map has a number" : "no line has a point on these axes");
  out += fmt::format("plot {}", fmt::join(items, ", \\\n     "));
  return out + '\n';
}

}  // namespace ballast
