#include "report/plot.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "temp_dir.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Plot small_plot() {
  Plot plot;
  plot.title = "A title";
  plot.x_title = "rate";
  plot.y_title = "error";
  plot.log_x = plot.log_y = true;
  plot.lines = {{"one", {{0.5, 0.1, 0.02}, {0.25, 0.2, 0}}}, {"two", {{0.5, 0.3, 0.4}}}};
  return plot;
}

bool has_gnuplot() { return std::system("gnuplot --version > /dev/null 2>&1") == 0; }

TEST(PlotScript, HoldsTheDataWithItsBars) {
  const std::string script = plot_script(small_plot(), "svg");
  EXPECT_THAT(script, HasSubstr("$line0 << EOD\n0.5 0.1 0.08 0.12\n0.25 0.2 0.2 0.2\nEOD\n"));
  // A bar that would reach below zero ends above it on a logarithmic axis.
  EXPECT_THAT(script, HasSubstr("0.5 0.3 0.0003 0.7\n"));
}

TEST(PlotScript, LeavesOutWhatHasNoPlaceOnTheAxes) {
  Plot plot = small_plot();
  plot.lines[1].points = {{0.5, 0, 0}, {0.25, NAN, 0}};
  const std::string script = plot_script(plot, "svg");
  EXPECT_THAT(script, Not(HasSubstr("$line1")));
  EXPECT_THAT(script, HasSubstr("title \"one\""));
  plot.lines.erase(plot.lines.begin());
  EXPECT_EQ(error_of([&] { plot_script(plot, "svg"); }),
            "there is nothing to draw: no line has a point on these axes");
}

TEST(PlotScript, TextIsNeverACommand) {
  Plot plot = small_plot();
  plot.lines[0].name = "a\"; system(\"false\")\n`id`_x";
  const std::string script = plot_script(plot, "svg");
  EXPECT_THAT(script, HasSubstr("title \"a\\\"; system(\\\"false\\\") \\`id\\`\\\\_x\""));
}

TEST(WritePlot, DrawsSvgAndPng) {
  if (!has_gnuplot()) GTEST_SKIP() << "gnuplot is not installed";
  TempDir dir;
  Plot plot = small_plot();
  plot.lines[0].name = "balance_kv:rate=0.25 {x} \"quoted\" \\ `id`";
  write_plot(plot, dir / "p.svg");
  const std::string svg = read_text(dir / "p.svg");
  EXPECT_THAT(svg, HasSubstr("<svg"));
  EXPECT_THAT(svg, HasSubstr("A title"));
  EXPECT_THAT(svg, HasSubstr("</svg>"));
  EXPECT_THAT(svg, HasSubstr("balance_kv:rate=0.25 {x}"));
  EXPECT_THAT(svg, HasSubstr("`id`"));
  write_plot(plot, dir / "p.png");
  EXPECT_TRUE(read_text(dir / "p.png").starts_with("\x89PNG"));
}

TEST(WritePlot, RefusesOtherFormats) {
  EXPECT_EQ(error_of([] { check_plot("x.jpg"); }),
            "x.jpg: a plot's name ends in .svg, .png or .pdf");
}

TEST(WritePlot, SaysThatGnuplotIsMissing) {
  const std::string path = std::getenv("PATH");
  ::setenv("PATH", "/nowhere", 1);
  const std::string error = error_of([] { check_plot("x.svg"); });
  ::setenv("PATH", path.c_str(), 1);
  EXPECT_THAT(error, HasSubstr("x.svg: plots are drawn by gnuplot, which is not installed"));
}

}  // namespace
}  // namespace ballast
