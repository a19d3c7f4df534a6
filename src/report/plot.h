// Line plots, drawn by gnuplot.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace ballast {

struct Plot {
  struct Point {
    double x = 0;
    double y = 0;
    double deviation = 0;  ///< half the length of the bar through the point; 0: none
  };
  struct Line {
    std::string name;
    std::vector<Point> points;
  };

  std::string title;
  std::string x_title;
  std::string y_title;
  bool log_x =
      false;  ///< base 2; points that are not positive are left out, lines without points too
  bool log_y = false;
  std::vector<Line> lines;
};

/// Throws Error unless the name ends in .svg, .png or .pdf and gnuplot is installed: to be asked
/// before the work whose result is to be drawn.
void check_plot(const std::filesystem::path& path);

/// Draws; the file appears whole or not at all. Throws Error as check_plot() does, or when the file
/// cannot be written.
void write_plot(const Plot& plot, const std::filesystem::path& path);

/// What gnuplot is told. `terminal`: one of gnuplot's. Throws Error when no point is shown.
std::string plot_script(const Plot& plot, std::string_view terminal);

}  // namespace ballast
