#include "pages/result.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "temp_dir.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Result small_result() {
  Result r;
  r.experiment = "demo";
  r.title = "A demonstration";
  r.command = "ballast eval demo --methods 'a;b'";
  r.settings = {{"seeds", 3}, {"source", "x.safetensors"}};
  r.columns = {{"method", "method"},
               {"kept", "kept", Unit::percent},
               {"bytes", "cache", Unit::bytes},
               {"error", "error", Unit::number, "error_sd"}};
  r.gap_key = "method";
  r.rows = {{{"method", "a"}, {"kept", 0.5}, {"bytes", 2048}, {"error", 0.5}, {"error_sd", 0.125}},
            {{"method", "a"}, {"kept", 0.25}, {"bytes", 1024}, {"error", NAN}},
            {{"method", "b"}, {"kept", nullptr}, {"error", 1}, {"more", {1, 2}}}};
  Plot plot;
  plot.title = "Errors";
  plot.lines = {{"a", {{0.5, 0.5, 0.125}, {0.25, NAN, 0}}}};
  r.plots = {plot};
  r.notes = {"error  is small"};
  return r;
}

TEST(FormatCell, ByUnit) {
  auto cell = [](const Json& value, Unit unit) {
    return format_cell({{"x", value}}, {"x", "X", unit});
  };
  EXPECT_EQ(cell("exact", Unit::number), "exact");
  EXPECT_EQ(cell(0.0625, Unit::text), "0.0625");
  EXPECT_EQ(cell(16384, Unit::count), "16,384");
  EXPECT_EQ(cell(-1.6, Unit::count), "-2");
  EXPECT_EQ(cell(0.01234, Unit::number), "0.0123");
  EXPECT_EQ(cell(0.0625, Unit::percent), "6.25%");
  EXPECT_EQ(cell(-0.0625, Unit::percent), "-6.25%");
  EXPECT_EQ(cell(1536, Unit::bytes), "1.50 KiB");
  EXPECT_EQ(cell(0.5, Unit::seconds), "500 ms");
  EXPECT_EQ(cell(1.5, Unit::ratio), "1.50×");
  EXPECT_EQ(cell(true, Unit::text), "yes");
  EXPECT_EQ(cell({1, 2.5, "x"}, Unit::text), "1, 2.5, x");
  EXPECT_EQ(cell(Json::object({{"a", 1}}), Unit::text), "{\"a\":1}");
}

TEST(FormatCell, WhatIsMissingIsEmpty) {
  EXPECT_EQ(format_cell({{"x", nullptr}}, {"x", "X", Unit::count}), "");
  EXPECT_EQ(format_cell({{"y", 1}}, {"x", "X", Unit::count}), "");
  EXPECT_EQ(format_cell({{"x", NAN}}, {"x", "X", Unit::number}), "");
  EXPECT_EQ(format_cell({{"x", INFINITY}}, {"x", "X", Unit::count}), "");
  EXPECT_EQ(format_cell(Json(7), {"x", "X", Unit::count}), "");
  EXPECT_EQ(format_cell({{"e", 1}}, {"x", "X", Unit::number, "e"}), "");
  EXPECT_EQ(format_cell({{"x", 1}}, {"x", "X", Unit::number, "e"}), "1.00");
  EXPECT_EQ(format_cell({{"x", 1}, {"e", 0.1}}, {"x", "X", Unit::number, "e"}), "1.00 ± 0.100");
}

TEST(Result, AsText) {
  EXPECT_EQ(small_result().to_text(),
            "A demonstration\n\n"
            "method   kept     cache          error\n"
            "------  -----  --------  -------------\n"
            "a       50.0%  2.00 KiB  0.500 ± 0.125\n"
            "a       25.0%  1.00 KiB\n"
            "\n"
            "b                                 1.00\n"
            "\nerror  is small\n");
}

TEST(Result, ANarrowTableKeepsWhatWasMeasured) {
  Result r = small_result();
  r.columns = {{"lines", "lines", Unit::count},     {"method", "method"},
               {"kept", "kept", Unit::percent},     {"error", "error", Unit::number, "error_sd"},
               {"entries", "entries", Unit::count}, {"bytes", "cache", Unit::bytes}};
  for (Json& row : r.rows) row["lines"] = 200;
  r.named_by = {"lines", "method"};
  r.supporting = {"bytes", "entries"};
  r.notes = {"error     is small", "entries   are many"};
  EXPECT_EQ(r.to_text(45),
            "A demonstration\n\n"
            "lines  method   kept          error  entries\n"
            "-----  ------  -----  -------------  -------\n"
            "  200  a       50.0%  0.500 ± 0.125\n"
            "  200  a       25.0%\n"
            "\n"
            "  200  b                       1.00\n"
            "\nerror     is small\nentries   are many\n--wide   shows cache, too\n");
  EXPECT_EQ(r.to_text(30),
            "A demonstration\n\n"
            "method   kept          error\n"
            "------  -----  -------------\n"
            "a       50.0%  0.500 ± 0.125\n"
            "a       25.0%\n"
            "\n"
            "b                       1.00\n"
            "\nerror     is small\n--wide   shows lines, entries,\n         cache, too\n");
}

TEST(Result, ANarrowTableGoesOnBelowWithItsResults) {
  Result r;
  r.columns = {{"prompt", "prompt", Unit::count},
               {"keys", "keys"},
               {"method", "method"},
               {"batch", "batch", Unit::count},
               {"rate", "decode", Unit::number},
               {"ratio", "ratio", Unit::ratio}};
  r.named_by = {"prompt", "method", "keys"};
  r.supporting = {"keys", "batch"};
  const Json row = {{"prompt", 64}, {"keys", "bf16"}, {"method", "a"}, {"batch", 4}};
  r.rows = {row, row};
  r.rows[0]["rate"] = 1;
  r.rows[1].update({{"prompt", 128}, {"method", "b"}, {"ratio", 2}});
  const std::string parts =
      "\n\nprompt  method  decode\n------  ------  ------\n"
      "    64  a         1.00\n\n"
      "prompt  method  ratio\n------  ------  -----\n"
      "   128  b       2.00×\n\n";
  EXPECT_EQ(r.to_text(24), parts + "--wide   shows keys,\n         batch, too\n");
  EXPECT_EQ(Result::from_json(r.to_json(), "x").to_text(24), r.to_text(24));
  // Keys that differ name the row.
  r.rows[1]["keys"] = "int8";
  EXPECT_THAT(r.to_text(38), HasSubstr("\nprompt  keys  method  decode  ratio\n"));
}

TEST(Result, ColumnsOfPlainNumbersAreRightAligned) {
  Result r;
  r.columns = {{"x", "some x"}, {"y", "some y"}, {"z", "some z"}};
  r.rows = {{{"x", 1}, {"y", 2}}, {{"x", nullptr}, {"y", "many"}}};
  EXPECT_EQ(r.to_text(),
            "\n\nsome x  some y  some z\n"
            "------  ------  ------\n"
            "     1  2\n"
            "        many\n");
}

TEST(Result, WithoutAnything) {
  const Result r;
  EXPECT_EQ(r.to_text(), "\n\n\n\n");
  const Result again = Result::from_json(r.to_json(), "x");
  EXPECT_EQ(to_text(again.to_json()), to_text(r.to_json()));
}

TEST(Result, JsonThereAndBack) {
  const Result r = small_result();
  const std::string text = to_text(r.to_json());
  const Result again = Result::from_json(Json::parse(text), "x.json");
  EXPECT_EQ(to_text(again.to_json()), text);
  EXPECT_EQ(again.to_text(), r.to_text());
  EXPECT_TRUE(std::isnan(again.plots[0].lines[0].points[1].y));
  // Rows keep what no column shows.
  EXPECT_EQ(again.rows[2]["more"], Json({1, 2}));
}

TEST(Result, SaysWhatIsWrongWithAFile) {
  const Json good = small_result().to_json();
  auto error = [](const Json& json) {
    return error_of([&] { Result::from_json(json, "f.json"); });
  };
  const std::string prefix = "f.json: not the JSON of an experiment (ballast eval NAME --json): ";
  for (const char* key :
       {"experiment", "title", "command", "settings", "columns", "results", "plots", "notes"}) {
    Json bad = good;
    bad.erase(key);
    EXPECT_EQ(error(bad), prefix + "\"" + key + "\" is missing");
    bad[key] = 7;
    EXPECT_THAT(error(bad), HasSubstr(std::string("\"") + key + "\" is not "));
  }
  EXPECT_EQ(error(Json::array()), prefix + "it is no object");
  EXPECT_EQ(error(Json(nullptr)), prefix + "it is no object");
  auto with = [&](const char* pointer, Json value) {
    Json bad = good;
    bad[Json::json_pointer(pointer)] = std::move(value);
    return bad;
  };
  EXPECT_EQ(error(with("/columns/1/unit", "miles")),
            "f.json: the column \"kept\" has the unknown unit \"miles\"");
  EXPECT_EQ(error(with("/results/1", 4)), "f.json: a row of \"results\" is not an object");
  EXPECT_EQ(error(with("/notes/0", 4)), "f.json: an item of \"notes\" is not text");
  EXPECT_THAT(error(with("/plots/0", 4)), HasSubstr("f.json: plot 1 is not as ballast writes it"));
  EXPECT_THAT(error(with("/plots/0/kind", "pie")), HasSubstr("bars or heat, not pie"));
  EXPECT_THAT(error(with("/plots/0/lines/0/points/0", {1})), HasSubstr("f.json: plot 1 is not"));
}

// A page has a cell for each column of each row, and a row of two bytes may be there a million
// times.
TEST(Result, ATableHasALimit) {
  Json json = Result().to_json();
  const auto error = [&] { return error_of([&] { Result::from_json(json, "f.json"); }); };
  const Json column = {{"key", "k"}, {"title", ""}, {"unit", "text"}};
  json["columns"] = std::vector<Json>(256, column);
  json["results"] = std::vector<Json>(1'000'000 / 256, Json::object());
  EXPECT_EQ(error(), "");
  json["results"].push_back(Json::object());
  EXPECT_EQ(error(),
            "f.json: a table of 256 columns and 3907 rows is too large; at most 256 columns and "
            "1000000 cells are read: split it");
  json["columns"].push_back(column);
  json["results"] = Json::array();
  EXPECT_THAT(error(), HasSubstr("a table of 257 columns and 0 rows is too large"));
  json["columns"] = Json::array();
  Json row;
  for (int i = 0; i < 257; ++i) row["k" + std::to_string(i)] = i;
  json["results"] = {row};
  EXPECT_EQ(error(),
            "f.json: a row of \"results\" has 257 fields; at most 256 are read: write fewer");
  json["results"] = Json::array();
  json["supporting"] = std::vector<std::string>(257);
  EXPECT_EQ(error(), "f.json: \"supporting\" names 257 columns; at most 256 are read");
}

TEST(HtmlPage, HoldsEverythingAndNothingFromOutside) {
  const std::string page = html_page("Results of today", {small_result(), small_result()});
  for (const char* part :
       {"<title>Results of today</title>", "<a href=\"#r2\">A demonstration</a>",
        "<code>ballast eval demo --methods &#39;a;b&#39;</code>", "<dt>seeds</dt><dd>3</dd>",
        "<th class=\"n\">error</th>", "<td class=\"n\">0.500 ± 0.125</td>", "<td>b</td>",
        "<tr class=\"gap\">", "<li>error  is small</li>", "prefers-color-scheme: dark",
        "<details><summary>Table, 3 rows"}) {
    EXPECT_THAT(page, HasSubstr(part));
  }
  for (const char* outside : {"src=", "@import", "<script", "<link", "href=\"http"}) {
    EXPECT_THAT(page, Not(HasSubstr(outside)));
  }
}

TEST(HtmlPage, TextIsNeverMarkup) {
  Result r = small_result();
  const std::string evil = "</title></code></svg><script>alert(1)</script>&amp;'\"\x01\xFF";
  r.experiment = r.title = r.command = evil;
  r.settings = {{evil, evil}};
  r.columns[0].title = evil;
  r.rows[0]["method"] = evil;
  r.plots[0].title = r.plots[0].x_title = r.plots[0].lines[0].name = evil;
  r.plots.push_back(r.plots[0]);
  r.plots.back().kind = Plot::Kind::bars;
  r.plots.back().x_labels = {evil, evil};
  r.notes = {evil};
  const std::string page = html_page(evil, {r});
  EXPECT_THAT(page, Not(HasSubstr("<script")));
  EXPECT_THAT(page,
              HasSubstr("&lt;script&gt;alert(1)&lt;/script&gt;&amp;amp;&#39;&quot;\xEF\xBF\xBD"));
  EXPECT_NO_THROW(Json(page).dump());  // UTF-8 throughout
}

TEST(HtmlPage, MapsStandSideBySide) {
  Result r = small_result();
  Plot map;
  map.kind = Plot::Kind::heat;
  map.title = "A map";
  map.maps = {{"", {{0.5, 1}}}};
  const Plot line = r.plots[0];
  r.plots = {map, map, line, map};
  const std::string page = html_page("t", {r});
  const std::size_t begin = page.find("<div class=\"maps\">");
  const std::string figures = page.substr(begin, page.find("<details>", begin) - begin);
  std::string order;
  for (std::size_t at = 0; (at = figures.find('<', at)) != std::string::npos; ++at) {
    const std::string_view rest = std::string_view(figures).substr(at);
    if (rest.starts_with("<div class=\"maps\">")) order += '[';
    if (rest.starts_with("</div>")) order += ']';
    if (rest.starts_with("<figure>")) order += 'f';
  }
  EXPECT_EQ(order, "[ff]f[f]");
}

TEST(HtmlPage, APlotThatCannotBeDrawnIsNamed) {
  Result r = small_result();
  r.plots[0].title = "Nothing";
  r.plots[0].lines.clear();
  EXPECT_THAT(html_page("t", {r}),
              HasSubstr("The plot “Nothing” is missing: there is nothing to draw"));
}

TEST(HtmlPage, ShowsWhatWasKept) {
  Result r = small_result();
  r.kept = {{"question", "Which number?"},
            {"expected", {"42"}},
            {"pieces", {"It is ", "day. ", "The ", "number ", "is ", "42.", " Bye", "</script>"}},
            {"layers", 1},
            {"kv_heads", 2},
            {"methods",
             {{{"name", "exact"}, {"answer", "42"}, {"score", 1}, {"kept", {"ff", "ff"}}},
              {{"name", "half"}, {"answer", "no"}, {"score", 0}, {"kept", {"3c", "00"}}}}}};
  const std::string page = html_page("t", {r});
  EXPECT_THAT(page, HasSubstr("one text of 8 tokens"));
  EXPECT_THAT(page, HasSubstr("100% of it, right"));
  EXPECT_THAT(page, HasSubstr("<span class=\"lost\">50.0% of it, wrong"));  // "The number is 42."
  EXPECT_THAT(page, HasSubstr("\"place\":[2,6]"));
  EXPECT_THAT(page, HasSubstr("\\u003c/script>"));
  EXPECT_THAT(page, HasSubstr("layer 0, head 1"));
  r.kept = {{"question", 1}};
  EXPECT_THAT(html_page("t", {r}), HasSubstr("What was kept is not as ballast writes it"));
}

Json kept_of(std::vector<std::string> pieces, std::size_t layers, std::size_t heads,
             std::vector<std::string> kept) {
  return {{"question", "q"},
          {"expected", "x"},
          {"pieces", pieces},
          {"layers", layers},
          {"kv_heads", heads},
          {"methods", {{{"name", "m"}, {"answer", "a"}, {"score", 0}, {"kept", kept}}}}};
}

// A page that names every head, of which a file may claim any number, and looks at every piece of
// each, must not be larger than the file.
TEST(HtmlPage, KeptDigitsAreThoseOfTheHeadsAndPieces) {
  Result r = small_result();
  const std::string other = "What was kept is not as ballast writes it";
  const auto page = [&](const Json& kept) {
    r.kept = kept;
    return html_page("t", {r});
  };
  const std::vector<std::string> pieces(5, "a"), digits(6, "00");
  EXPECT_THAT(page(kept_of(pieces, 2, 3, digits)), HasSubstr("layer 1, head 2"));
  for (const auto& [layers, heads] :
       std::vector<std::pair<std::size_t, std::size_t>>{{2'000'000'000, 2'000'000'000},
                                                        {std::size_t{1} << 63, 2},
                                                        {0, 0},
                                                        {6, 0},
                                                        {0, 6},
                                                        {1, 5},
                                                        {2, 4}}) {
    EXPECT_THAT(page(kept_of(pieces, layers, heads, digits)), HasSubstr(other)) << layers;
  }
  for (const char* wrong : {"", "0", "000"}) {
    EXPECT_THAT(page(kept_of(pieces, 1, 2, {"00", wrong})), HasSubstr(other)) << wrong;
  }
  EXPECT_THAT(page(kept_of({"a"}, 1, 100'000, std::vector<std::string>(100'000, "0"))),
              HasSubstr("head 99999"));
  EXPECT_THAT(page(kept_of({"a"}, 1, 100'001, std::vector<std::string>(100'001, "0"))),
              HasSubstr(other));
}

TEST(HtmlPage, VeilsWhatIsDroppedOfAPicture) {
  Result r = small_result();
  r.kept = kept_of(std::vector<std::string>(8, "a"), 1, 1, {"0f"});
  const Json whole = {{"begin", 2}, {"columns", 1}, {"rows", 1}, {"side", 2}, {"thumbnail", false}};
  const auto page = [&](const char* key, const Json& value) {
    Json picture = whole;
    picture[key] = value;
    r.kept["pictures"] = {picture};
    return html_page("t", {r});
  };
  EXPECT_THAT(page("data", "data:image/png;base64,AAAA"), HasSubstr("image/png;base64,AAAA"));
  EXPECT_THAT(page("data", "https://a.example/b.png"), Not(HasSubstr("a.example")));
  const std::string other = "What was kept is not as ballast writes it";
  EXPECT_THAT(page("begin", 4), Not(HasSubstr(other)));
  EXPECT_THAT(page("begin", 5), HasSubstr(other));
  EXPECT_THAT(page("begin", "x"), HasSubstr(other));
  EXPECT_THAT(page("thumbnail", true), HasSubstr(other));
  EXPECT_THAT(page("side", 0), HasSubstr(other));
  EXPECT_THAT(page("columns", std::size_t{1} << 62), HasSubstr(other));
  r.kept["pictures"] = {whole, whole};
  EXPECT_THAT(html_page("t", {r}), HasSubstr(other));
}

TEST(HtmlPage, KeptTextIsReadInTheTimeOfItsLength) {
  constexpr std::size_t kSize = 10'000'000;
  Result r = small_result();
  r.kept = kept_of({std::string(kSize, '<')}, 1, 1, {"0"});
  r.kept["expected"] = std::string(kSize / 2, '<') + "!";  // as if it stood at any place
  const std::string page = html_page("t", {r});
  std::string escaped;
  for (std::size_t i = 0; i < kSize; ++i) escaped += "\\u003c";
  EXPECT_NE(page.find("[\"" + escaped + "\"],\"place\":[0,0]"), std::string::npos);
}

TEST(HtmlPage, LinesAreLabelledAndExactIsARule) {
  Result r = small_result();
  r.plots[0].lines = {{"exact", {{0.25, 0.9, 0, 0.8, 0.95}, {0.5, 0.9, 0, 0.8, 0.95}}},
                      {"h2o", {{0.25, 0.1, 0, 0.05, 0.2}, {0.5, 0.4, 0, 0.3, 0.5}}}};
  const std::string page = html_page("t", {r});
  EXPECT_THAT(page, HasSubstr("class=\"rule\""));
  EXPECT_THAT(page, HasSubstr(">h2o</text>"));
  EXPECT_THAT(page, HasSubstr(">100%</text>"));  // an axis of shares
  EXPECT_THAT(page, HasSubstr("class=\"bar\""));
}

// Twenty methods: the best have labels and colours, the others are grey and have tooltips.
TEST(HtmlPage, ManyLinesStayReadable) {
  Result r = small_result();
  Plot& plot = r.plots[0];
  plot.x_title = "share of bytes kept";
  plot.lines = {{"exact", {{0.0625, 0.98, 0, 0.9, 1}, {0.25, 0.98, 0, 0.9, 1}}},
                {"storage", {{0.203125, 0.9, 0, 0.8, 1}}}};
  for (int i = 0; i < 19; ++i) {
    const double y = i < 3 ? 0.5 + 0.1 * i : 0.02;
    plot.lines.push_back({"m" + std::to_string(i) + "m",
                          {{0.0625, y, 0, y - 0.01, y + 0.01}, {0.25, y, 0, y - 0.01, y + 0.01}}});
  }
  const std::string page = html_page("t", {r});
  for (const char* broad : {"<svg class=\"broad\"", "<svg class=\"narrow\""}) {
    const std::size_t begin = page.find(broad);
    const std::string svg = page.substr(begin, page.find("</svg>", begin) - begin);
    for (const char* label :
         {">exact<", ">storage<", ">m0m</text>", ">m2m</text>", ">16 others<"}) {
      EXPECT_THAT(svg, HasSubstr(label)) << broad;
    }
    // Sixteen equal ones: nothing sets any of them apart.
    EXPECT_THAT(svg, Not(HasSubstr(">m3m</text>")));
    EXPECT_THAT(svg, HasSubstr("<title>m3m</title>"));
    EXPECT_THAT(svg, HasSubstr(">6.25%</text>"));
    EXPECT_THAT(svg, HasSubstr(">25%</text>"));
    EXPECT_THAT(svg, Not(HasSubstr(">20.31%</text>")));  // beside 25%
    for (const char* colour : {"--s0", "--s1", "--s2", "--s3"}) EXPECT_THAT(svg, HasSubstr(colour));
    EXPECT_THAT(svg, Not(HasSubstr("--s4")));
  }
  // Where y is an error, the lowest are best.
  for (Plot::Line& line : plot.lines) {
    for (Plot::Point& p : line.points) p.low = p.high = NAN;
  }
  plot.lines.back().points[0].y = plot.lines.back().points[1].y = 0.001;
  plot.y_title = "relative error";
  EXPECT_THAT(html_page("t", {r}), HasSubstr(">m18m</text>"));
}

TEST(HtmlPage, SaysWhatWasAskedAndNoMore) {
  Result r = small_result();
  r.settings = {{"model", "models/mini.gguf"}, {"samples", 1}, {"question_later", true}};
  r.rows = {{{"method", "exact"}}};
  EXPECT_THAT(
      html_page("t", {r}),
      HasSubstr("<p>The model mini.gguf was asked 1 question of “A demonstration”: with the "
                "exact key-value cache.</p>\n</div>"));
  r.settings["samples"] = 2;
  r.rows = {{{"method", "h2o"}}, {{"method", "exact:type=q2"}, {"storage_only", true}}};
  Result other = r;
  other.title = "Another";
  EXPECT_THAT(
      html_page("t", {r, other}),
      HasSubstr("2 questions of “A demonstration” and 2 questions of “Another”: with a method "
                "that keeps a part of it and with all of it in fewer bits.</p>\n<p>No method"));
}

TEST(HtmlPage, NamesEveryModelAndCountsEachMethodOnce) {
  Result a = small_result();
  a.settings = {{"model", "models/mini.gguf"}, {"samples", 2}, {"question_later", true}};
  a.rows = {{{"method", "h2o"}}, {{"method", "replay"}}};
  Result b = a;
  b.settings["model"] = "other/";
  b.settings["samples"] = 1;
  b.rows[0]["method"] = "snapkv";
  EXPECT_THAT(html_page("t", {a, b}),
              HasSubstr("<p>The model mini.gguf was asked 2 questions of “A demonstration”; the "
                        "model other 1 question of “A demonstration”: with 3 methods that keep a "
                        "part of it.</p>"));
  b.settings["model"] = "b/mini.gguf";  // names that do not tell the two apart
  EXPECT_THAT(html_page("t", {a, b}), AllOf(HasSubstr("The model models/mini.gguf was asked"),
                                            HasSubstr("the model b/mini.gguf 1 question")));
}

TEST(HtmlPage, ATableHasALimit) {
  Result r;
  r.title = "Long";
  r.rows = {{{"k", std::string(std::size_t{1} << 20, 'x')}}};
  r.columns.assign(32, {"k", "k"});
  EXPECT_EQ(error_of([&] { html_page("t", {r}); }),
            "the table of \"Long\" takes over 32 MiB of the page; leave out columns or rows");
}

TEST(HtmlPage, PlotsHaveALimit) {
  Result r = small_result();
  r.plots[0].title = std::string(std::size_t{22} << 20, 'x');  // of the figure and of two drawings
  EXPECT_EQ(error_of([&] { html_page("t", {r}); }),
            "the plots of \"A demonstration\" take over 64 MiB of the page; leave out some");
}

TEST(HtmlPage, CountsManyMethods) {
  Result r;
  r.settings = {{"model", "m.gguf"}, {"samples", 1}};
  for (int i = 0; i < 400'000; ++i) r.rows.push_back({{"method", "m" + std::to_string(i)}});
  r.rows.push_back(r.rows[0]);
  EXPECT_THAT(html_page("t", {r}).substr(0, 8000), HasSubstr("with 400000 methods that keep"));
}

TEST(HtmlPage, TheVerdictSinglesNoneOfManyOut) {
  Result r = small_result();
  r.columns = {{"method", "method"}, {"score", "accuracy", Unit::percent}};
  r.rows = {{{"method", "exact"}, {"score", 1}}};
  for (const auto& [name, score] : std::vector<std::pair<std::string, double>>{
           {"a", 0.9}, {"b", 0.5}, {"c", 0.4}, {"d", 0}, {"e", 0}}) {
    r.rows.push_back({{"method", name}, {"share", 0.25}, {"score", score}});
  }
  EXPECT_THAT(html_page("t", {r}), HasSubstr("c 40.0%; last 2 methods with 0.00% each."));
  r.rows.pop_back();
  EXPECT_THAT(html_page("t", {r}), HasSubstr("c 40.0%; last d 0.00%."));
}

// The text opens on a method that lost the answer's place, beside one of that size that kept it.
TEST(HtmlPage, OpensOnALoss) {
  Result r = small_result();
  r.kept = {{"question", "Which number?"},
            {"expected", "42"},
            {"pieces", {"It is ", "day. ", "The ", "number ", "is ", "42.", " Bye", " all"}},
            {"layers", 1},
            {"kv_heads", 1},
            {"methods", Json::array()}};
  const auto add = [&](const char* name, int score, const char* kept) {
    r.kept["methods"].push_back(
        {{"name", name}, {"answer", "x"}, {"score", score}, {"kept", {kept}}});
  };
  add("exact", 1, "ff");
  add("exact:type=int4", 1, "ff");
  add("good 1/4 of bytes", 1, "3c");
  add("good 1/8 of bytes", 1, "38");
  add("lost 1/4 of bytes", 0, "c0");
  add("poor 1/8 of bytes", 0, "13");
  const std::string page = html_page("t", {r});
  EXPECT_THAT(page, HasSubstr("<option value=\"5\" selected>poor 1/8 of bytes<"));
  EXPECT_THAT(page, HasSubstr("value=\"3\">good 1/8 of bytes</button> kept 75.0% of the answer"));
  EXPECT_THAT(page, HasSubstr("value=\"5\">poor 1/8 of bytes</button> kept 25.0% of the answer"));
}

TEST(HtmlPage, AMethodThatDoesNotFitKeptNothing) {
  Result r = small_result();
  r.kept = kept_of({"a", "x"}, 1, 1, {"8"});
  const Json answered = r.kept["methods"][0];
  const Json wide = {{"name", "wide"}, {"fits", false}, {"failure", "needs 4 <entries>"}};
  const Json odd = {{"name", "odd"}, {"failure", "undefined"}};
  r.kept["methods"] = {wide, answered, odd};
  const std::string page = html_page("t", {r});
  EXPECT_THAT(page, HasSubstr("<div title=\"needs 4 &lt;entries&gt;\"><span>wide</span>"
                              "<span class=\"quiet\">does not fit</span></div>"));
  EXPECT_THAT(page, HasSubstr("<span>odd</span><span class=\"quiet\">no answer</span></div>"));
  EXPECT_THAT(page, HasSubstr("\"method\"><option value=\"1\" selected>m</option></select>"));
  r.kept["methods"] = Json::array({wide});
  EXPECT_THAT(html_page("t", {r}), Not(HasSubstr("class=\"kept\"")));
}

TEST(HtmlPage, WithoutResults) { EXPECT_THAT(html_page("t", {}), HasSubstr("<h1>t</h1>")); }

}  // namespace
}  // namespace ballast
