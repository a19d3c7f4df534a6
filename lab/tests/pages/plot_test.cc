#include "pages/plot.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "pages/svg.h"
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

TEST(WritePlot, SeveralPlotsHaveNumbers) {
  TempDir dir;
  write_plots({small_plot(), bar_plot(), heat_plot()}, dir / "p.q.svg");
  EXPECT_THAT(read_text(dir / "p.q.svg"), HasSubstr("A title"));
  EXPECT_THAT(read_text(dir / "p.q-2.svg"), HasSubstr("first 10%"));
  EXPECT_THAT(read_text(dir / "p.q-3.svg"), HasSubstr("Maps"));
  EXPECT_NE(error_of([&] { write_plots({small_plot(), Plot{}}, dir / "r.svg"); }), "");
  EXPECT_FALSE(std::filesystem::exists(dir / "r.svg"));
}

TEST(WritePlot, AFileStandsAlone) {
  TempDir dir;
  Plot plot = small_plot();
  plot.lines[0].name = "balance_kv:rate=0.25 <b>";
  for (const Plot& one : {plot, heat_plot(), bar_plot()}) {
    write_plots({one}, dir / "p.svg");
    const std::string svg = read_text(dir / "p.svg");
    EXPECT_TRUE(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\" width="));
    EXPECT_THAT(svg, HasSubstr("</svg>\n</svg>"));
    EXPECT_THAT(svg, HasSubstr(escape_html(one.title)));
    EXPECT_THAT(svg, Not(HasSubstr("var(")));  // which only a page sets
  }
  write_plots({plot}, dir / "p.svg");
  const std::string svg = read_text(dir / "p.svg");
  EXPECT_THAT(svg, HasSubstr("balance_kv:rate=0.25 &lt;b&gt;"));
  EXPECT_THAT(svg, HasSubstr(">error</text>"));
  EXPECT_THAT(svg, HasSubstr("#0067a5"));
}

TEST(WritePlot, DrawsPngAndPdf) {
  if (std::system("command -v rsvg-convert > /dev/null 2>&1") != 0) {
    GTEST_SKIP() << "rsvg-convert is not installed (Debian's package: librsvg2-bin)";
  }
  TempDir dir;
  for (const Plot& plot : {small_plot(), heat_plot(), bar_plot()}) {
    write_plots({plot}, dir / "p.png");
    EXPECT_TRUE(read_text(dir / "p.png").starts_with("\x89PNG"));
    write_plots({plot}, dir / "p.pdf");
    EXPECT_TRUE(read_text(dir / "p.pdf").starts_with("%PDF"));
  }
}

TEST(WritePlot, RefusesOtherFormats) {
  EXPECT_EQ(error_of([] { check_plot("x.jpg"); }),
            "x.jpg: a plot's name ends in .svg, .png or .pdf");
}

TEST(WritePlot, SaysWhatIsMissing) {
  const std::string path = std::getenv("PATH");
  ::setenv("PATH", "/nowhere", 1);
  const std::string error = error_of([] { check_plot("x.png"); });
  check_plot("x.svg");
  ::setenv("PATH", path.c_str(), 1);
  EXPECT_THAT(error, HasSubstr("x.png: .png is made by rsvg-convert, which is not installed"));
}

}  // namespace
}  // namespace ballast
