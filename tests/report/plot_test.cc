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

Plot heat_plot() {
  Plot plot;
  plot.kind = Plot::Kind::heat;
  plot.title = "Maps";
  plot.x_labels = {"4K", "50%"};
  plot.y_labels = {"0", "1", "2"};
  plot.maps = {{"exact", {{1, 0.5}, {NAN, 0.25}, {0, 7}}}, {"h2o", {{1}, {}, {0, 0.125}}}};
  return plot;
}

Plot bar_plot() {
  Plot plot;
  plot.kind = Plot::Kind::bars;
  plot.x_labels = {"first 10%", "second"};
  plot.lines = {{"one", {{0, 1, 0.5}, {0, NAN, 0}}}, {"two", {{0, -2, 0}, {0, 3, 0}, {0, 4, 0}}}};
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

TEST(PlotScript, WhatHardlyChangesLooksFlatOnALogarithmicAxis) {
  Plot plot = small_plot();
  plot.lines = {{"one", {{1024, 2, 0}, {1048576, 4, 0}}}};
  // From 2√2 down and up by √8.
  EXPECT_THAT(plot_script(plot, "svg"), HasSubstr("set yrange [1:8]\n"));
  plot.lines[0].points[1].y = 2000;
  EXPECT_THAT(plot_script(plot, "svg"), HasSubstr("set yrange [1.53846:2600]\n"));
}

// Lines of one height, and intervals at one x, would hide each other.
TEST(PlotScript, NoMethodHidesAnother) {
  Plot plot;
  plot.lines = {{"exact", {{0.25, 1, 0, 0.5, 1}, {0.5, 1, 0, 0.5, 1}}},
                {"a", {{0.25, 1, 0, 0.5, 1}, {0.5, 1, 0, 0.5, 1}}},
                {"b", {{0.25, 1, 0, 0.5, 1}, {0.5, 1, 0, 0.5, 1}}},
                {"alone", {{0.3, 1, 0, 0.5, 1}}}};
  const std::string script = plot_script(plot, "svg");
  EXPECT_THAT(script, HasSubstr("plot 1 with lines lc rgb '#b0b0b0' lw 6 title \"exact\""));
  EXPECT_THAT(script, HasSubstr("$line1 using ($1-0.001875):3:(0):($4-$3) with vectors"));
  EXPECT_THAT(script, HasSubstr("$line1 using ($1-0.001875):2 with linespoints"));
  EXPECT_THAT(script, HasSubstr("$line2 using ($1+0.001875):2 with linespoints"));
  EXPECT_THAT(script, HasSubstr("$line3 using 1:2 with linespoints"));
  EXPECT_THAT(script, HasSubstr("set yrange [-0.04:1.04]"));
  plot.lines[0].points[1].y = 0.9;  // no rule
  EXPECT_THAT(plot_script(plot, "svg"), HasSubstr("$line0 using ($1-0.00375):2 with linespoints"));
  plot.log_x = true;
  EXPECT_THAT(plot_script(plot, "svg"), HasSubstr("$line0 using ($1*0.98"));
}

// Error bars of gnuplot punch a disc into the bar; a tick of an upper border lengthens its whisker.
TEST(PlotScript, WhiskersAreWhole) {
  for (const Plot& plot : {small_plot(), bar_plot()}) {
    const std::string script = plot_script(plot, "svg");
    EXPECT_THAT(script, Not(HasSubstr("yerrorbars")));
    EXPECT_THAT(script, HasSubstr("($4-$3) with vectors nohead"));
    EXPECT_THAT(script, HasSubstr("set border 3\nset tics nomirror\n"));
  }
}

TEST(PlotScript, TextIsNeverACommand) {
  Plot plot = small_plot();
  plot.lines[0].name = "a\"; system(\"false\")\n`id`_x";
  const std::string script = plot_script(plot, "svg");
  EXPECT_THAT(script, HasSubstr("title \"a\\\"; system(\\\"false\\\") \\`id\\`\\\\_x\""));
}

TEST(PlotScript, BarsStandInGroups) {
  const std::string script = plot_script(bar_plot(), "svg");
  EXPECT_THAT(script, HasSubstr("(\"first 10%%\" 0, \"second\" 1, \"\" 2)"));
  EXPECT_THAT(script, HasSubstr("$line0 << EOD\n-0.2 1 0.5 1.5\nEOD\n"));  // NaN: no bar
  EXPECT_THAT(script, HasSubstr("$line1 << EOD\n0.2 -2 -2 -2\n1.2 3 3 3\n2.2 4 4 4\nEOD\n"));
  Plot empty = bar_plot();
  empty.lines.clear();
  EXPECT_THAT(error_of([&] { plot_script(empty, "svg"); }), HasSubstr("nothing to draw"));
}

TEST(PlotScript, MapsStandSideBySide) {
  const std::string script = plot_script(heat_plot(), "svg");
  // The first row on top, no cell where there is no number, colours end at the range.
  EXPECT_THAT(script, HasSubstr("set yrange [2.5:-0.5]"));
  EXPECT_THAT(script, HasSubstr("$cells << EOD\n0 0 -0.5 0.5 -0.5 0.5 1\n1 0 0.5 1.5 -0.5 0.5 0.5\n"
                                "1 1 0.5 1.5 0.5 1.5 0.25\n0 2 -0.5 0.5 1.5 2.5 0\n"
                                "1 2 0.5 1.5 1.5 2.5 1\n3 0 2.5 3.5 -0.5 0.5 1\n"));
  EXPECT_THAT(script, HasSubstr("1 2 7.00 0\n"));  // but the text is the number
  EXPECT_THAT(script, HasSubstr("(\"4K\" 0, \"50%%\" 1, \"4K\" 3, \"50%%\" 4)"));
  EXPECT_THAT(script, HasSubstr("set label \"h2o\""));
  Plot alone = heat_plot();
  alone.maps.resize(1);
  alone.maps[0].name.clear();  // the plot's title says it
  EXPECT_THAT(plot_script(alone, "svg"), Not(HasSubstr("set label")));
  Plot empty = heat_plot();
  for (Plot::Map& map : empty.maps) map.cells = {{NAN}, {}};
  EXPECT_EQ(error_of([&] { plot_script(empty, "svg"); }),
            "there is nothing to draw: no map has a number");
}

TEST(PlotJson, ThereAndBack) {
  Plot scatter = small_plot();
  scatter.kind = Plot::Kind::points;
  for (const Plot& plot : {small_plot(), scatter, heat_plot(), bar_plot(), Plot{}}) {
    const std::string text = to_text(plot.to_json());
    const Plot again = Plot::from_json(Json::parse(text));
    EXPECT_EQ(to_text(again.to_json()), text);
    EXPECT_EQ(again.kind, plot.kind);
    EXPECT_EQ(again.lines.size(), plot.lines.size());
    EXPECT_EQ(again.maps.size(), plot.maps.size());
  }
}

TEST(PlotSvg, SeveralLiveInOnePage) {
  if (!has_gnuplot()) GTEST_SKIP() << "gnuplot is not installed";
  Plot scatter = small_plot();
  scatter.kind = Plot::Kind::points;
  std::vector<std::string> ids;
  for (const Plot& plot : {small_plot(), scatter, heat_plot(), bar_plot()}) {
    const std::string svg = plot_svg(plot);
    EXPECT_TRUE(svg.starts_with("<svg"));
    EXPECT_THAT(svg, HasSubstr("</svg>"));
    EXPECT_THAT(svg, Not(HasSubstr("<title")));
    EXPECT_THAT(svg, Not(HasSubstr("black")));  // it would not show on a dark page
    const std::size_t at = svg.find(" id=");
    ids.push_back(svg.substr(at + 5, 18));
    for (const char* reference : {"href='#", "id='", "id=\""}) {
      for (std::size_t i = 0; (i = svg.find(reference, i)) != std::string::npos; ++i) {
        EXPECT_EQ(svg.substr(i + std::string(reference).size(), 18), ids.back());
      }
    }
    EXPECT_EQ(plot_svg(plot), svg);
  }
  std::ranges::sort(ids);
  EXPECT_EQ(std::ranges::adjacent_find(ids), ids.end());
  EXPECT_THAT(plot_svg(heat_plot()), HasSubstr(">50%<"));
}

TEST(WritePlot, SeveralPlotsHaveNumbers) {
  if (!has_gnuplot()) GTEST_SKIP() << "gnuplot is not installed";
  TempDir dir;
  write_plots({small_plot(), bar_plot(), heat_plot()}, dir / "p.q.svg");
  EXPECT_THAT(read_text(dir / "p.q.svg"), HasSubstr("A title"));
  EXPECT_THAT(read_text(dir / "p.q-2.svg"), HasSubstr("first 10%"));
  EXPECT_THAT(read_text(dir / "p.q-3.svg"), HasSubstr("Maps"));
  EXPECT_NE(error_of([&] { write_plots({small_plot(), Plot{}}, dir / "r.svg"); }), "");
  EXPECT_FALSE(std::filesystem::exists(dir / "r.svg"));
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

TEST(PlotFile, OpensInLibrsvg) {
  if (!has_gnuplot()) GTEST_SKIP() << "gnuplot is not installed";
  if (std::system("rsvg-convert --version > /dev/null 2>&1") != 0) {
    GTEST_SKIP() << "rsvg-convert is not installed (Debian's package: librsvg2-bin)";
  }
  TempDir dir;
  Plot interval = small_plot();
  interval.lines[0].points[0].low = 0.05;
  interval.lines[0].points[0].high = 0.3;
  for (const Plot& plot : {small_plot(), interval, heat_plot(), bar_plot()}) {
    const std::string file = (dir / "plot.svg").string();
    write_plot(plot, file);
    EXPECT_EQ(std::system(("rsvg-convert " + file + " -o " + file + ".png").c_str()), 0);
  }
}

}  // namespace
}  // namespace ballast
