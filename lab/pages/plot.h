// Plots, drawn as SVG (report/svg.h).
#pragma once

#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "report/json.h"

namespace ballast {

struct Plot {
  enum class Kind { lines, points, bars, heat };

  struct Point {
    double x = 0;
    double y = 0;
    double deviation = 0;  ///< half the length of the bar through the point; 0: none
    double low = NAN;      ///< the ends of the bar where they are not at equal distances; else NaN
    double high = NAN;
    bool has_interval() const { return std::isfinite(low) && std::isfinite(high); }
  };
  struct Line {
    std::string name;
    std::vector<Point> points;
  };
  /// A heat map. A plot shows its maps in one row.
  struct Map {
    std::string name;
    std::vector<std::vector<double>> cells;  ///< [y][x], the first row on top; NaN: empty
  };

  Kind kind = Kind::lines;
  std::string title;
  std::string x_title;
  std::string y_title;
  /// Lines and points; base 2. Points that are not positive are left out, lines without points too.
  bool log_x = false;
  bool log_y = false;       ///< bars too
  std::vector<Line> lines;  ///< lines and points; bars: the i-th point of each stands at label i
  std::vector<std::string> x_labels;  ///< bars and heat
  std::vector<std::string> y_labels;  ///< heat
  std::vector<Map> maps;              ///< heat; drawn side by side
  double low = 0, high = 1;           ///< heat: the colours' range

  Json to_json() const;
  /// Throws SortedJson::exception or Error on JSON that to_json() does not produce.
  static Plot from_json(const Json& json);
};

/// Whether a plot of lines shows it as a rule across: the exact cache, where it is at one height.
bool is_rule(const Plot::Line& line);

/// Throws Error unless the name ends in .svg, or in .png or .pdf and rsvg-convert is installed.
/// Call it before long work.
void check_plot(const std::filesystem::path& path);

/// Draws the plots; each file appears whole or not at all. Throws Error as check_plot() does, or
/// when the file cannot be written. With several plots, the second goes to NAME-2.svg beside
/// NAME.svg, and so on. Returns the files written.
std::vector<std::filesystem::path> write_plots(const std::vector<Plot>& plots,
                                               const std::filesystem::path& path);

}  // namespace ballast
