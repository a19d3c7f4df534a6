#include "pages/svg.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "temp_dir.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Plot plot_of(std::vector<Plot::Point> points, bool log_y = false) {
  Plot plot;
  plot.log_y = log_y;
  plot.lines = {{"a", std::move(points)}};
  return plot;
}

std::size_t count(const std::string& text, std::string_view wanted) {
  std::size_t n = 0;
  for (std::size_t at = 0; (at = text.find(wanted, at)) != std::string::npos; at += wanted.size()) {
    ++n;
  }
  return n;
}

/// The horizontal lines, a tick of the y axis each.
std::size_t ticks_of(const Plot& plot) {
  const std::string svg = chart_svg(plot);
  for (const char* nowhere : {"\"nan\"", "\"-nan\"", "\"inf\"", "\"-inf\""}) {
    EXPECT_THAT(svg, Not(HasSubstr(nowhere)));
  }
  return count(svg, "class=\"grid\"");
}

TEST(ChartSvg, TicksAreRound) {
  const std::string svg = chart_svg(plot_of({{1, -3}, {2, 7}}));
  for (const char* tick : {">-2</text>", ">0</text>", ">2</text>", ">4</text>", ">6</text>"}) {
    EXPECT_EQ(count(svg, tick), tick == std::string(">2</text>") ? 2u : 1u) << tick;  // x has a 2
  }
  EXPECT_EQ(ticks_of(plot_of({{1, -3}, {2, 7}})), 5u);
  EXPECT_EQ(ticks_of(plot_of({{1, 0.1}, {2, 40}}, true)), 6u);  // 0.1, 0.3, 1, 3, 10, 30
}

// A step below one unit in the last place does not change the value that it is added to.
TEST(ChartSvg, TicksOfHugeAndTinyRangesEnd) {
  const double tiny = std::numeric_limits<double>::denorm_min();
  const double huge = std::numeric_limits<double>::max();
  for (const auto& [low, high] : std::vector<std::pair<double, double>>{{1e16, 1e16 + 2},
                                                                        {1, std::nextafter(1, 2)},
                                                                        {-1e300, 1e300},
                                                                        {tiny, 3 * tiny},
                                                                        {0, huge},
                                                                        {-huge, 0}}) {
    EXPECT_LE(ticks_of(plot_of({{1, low}, {2, high}})), 8u) << low << " " << high;
  }
  EXPECT_GE(ticks_of(plot_of({{1, 1e16}, {2, 1e16 + 2}})), 2u);
  for (const auto& [low, high] : std::vector<std::pair<double, double>>{
           {tiny, tiny}, {huge, huge}, {tiny, huge}, {1e-300, 1e-290}, {1, 1e12}}) {
    const std::size_t ticks = ticks_of(plot_of({{1, low}, {2, high}}, true));
    EXPECT_LE(ticks, 13u) << low << " " << high;
    EXPECT_GE(ticks, high > low ? 6u : 1u) << low << " " << high;
  }
}

// An interval makes the axis one of shares, which has a 0.
TEST(ChartSvg, IntervalsHaveNoLogarithmicAxis) {
  for (Plot::Kind kind : {Plot::Kind::lines, Plot::Kind::points, Plot::Kind::bars}) {
    Plot plot = plot_of({{1, 0.5, 0, 0.25, 0.75}, {2, 0.5}}, true);
    plot.kind = kind;
    EXPECT_EQ(ticks_of(plot), kind == Plot::Kind::bars ? 0u : 6u);
  }
}

TEST(ChartSvg, NoNumberTakesHundredsOfDigits) {
  Plot heat;
  heat.kind = Plot::Kind::heat;
  heat.high = 100;
  heat.maps = {{"", {{1e308, -1e308, 12.25, 1e14}}}};
  const std::string map = chart_svg(heat);
  for (const char* cell : {">1.00e+308<", ">-1.00e+308<", ">12<", ">100000000000000<"}) {
    EXPECT_THAT(map, HasSubstr(cell));
  }
  EXPECT_LT(map.size(), 1500u);
  // Far outside an axis of shares.
  for (Plot::Kind kind : {Plot::Kind::lines, Plot::Kind::bars}) {
    Plot plot = plot_of({{1, 0.5, 0, 0.25, 0.75}, {2, 1e300}});
    plot.kind = kind;
    EXPECT_THAT(chart_svg(plot), Not(HasSubstr("00000000000")));
  }
}

// A label stands under each map, and the name of a line beside each of its bars.
TEST(ChartSvg, LongLabelsAreNotRepeated) {
  const std::string name(1'000'000, 'n');
  Plot heat;
  heat.kind = Plot::Kind::heat;
  heat.x_labels = {name};
  heat.maps.resize(1000, {"", {{0.5}}});
  EXPECT_LT(chart_svg(heat).size(), name.size());
  EXPECT_THAT(chart_svg(heat), HasSubstr(">" + std::string(39, 'n') + "…</text>"));
  Plot bars = plot_of(std::vector<Plot::Point>(50'000, {0, 1}));
  bars.kind = Plot::Kind::bars;
  bars.lines[0].name = name;
  EXPECT_EQ(count(chart_svg(bars), "n…</text>"), 50'000u);
}

TEST(ChartSvg, BarsAreLabelled) {
  Plot plot = plot_of({{0, 1}, {0, 2}});
  plot.kind = Plot::Kind::bars;
  plot.lines[0].name.clear();
  plot.x_labels = {"without heavy hitters", "without as many at random"};
  for (const std::string& label : plot.x_labels) {
    EXPECT_THAT(chart_svg(plot), HasSubstr(">" + label + "</text>"));
  }
  plot.lines.push_back({"other", {{0, 3}}});
  for (const char* text : {"without heavy hitters", "without as many at random", "other"}) {
    EXPECT_THAT(chart_svg(plot), HasSubstr(std::string(">") + text + "</text>"));
  }
}

TEST(ChartSvg, MarksHaveALimit) {
  const auto refused = [](const Plot& plot) { return error_of([&] { chart_svg(plot); }); };
  const std::string many =
      " points, bars or cells are too many for one plot; at most 100000 are drawn";
  Plot plot = plot_of({{0, 1}});
  plot.kind = Plot::Kind::bars;
  plot.x_labels.resize(1000);
  plot.lines.resize(100);
  EXPECT_THAT(chart_svg(plot), HasSubstr("<rect"));
  plot.lines.resize(101);
  EXPECT_EQ(refused(plot), "101000" + many);
  EXPECT_EQ(refused(plot_of(std::vector<Plot::Point>(100'000, {1, 1}))), "");
  EXPECT_EQ(refused(plot_of(std::vector<Plot::Point>(100'001, {1, 1}))), "100001" + many);
  Plot heat;
  heat.kind = Plot::Kind::heat;
  heat.maps = {{"", {{1}, std::vector<double>(100'000, 1)}}};
  EXPECT_EQ(refused(heat), "100001" + many);
}

}  // namespace
}  // namespace ballast
