// Results as one HTML page.
#include <fmt/format.h>

#include "ballast/error.h"
#include "report/result.h"

namespace ballast {
namespace {

constexpr std::string_view kStyle = R"(
:root { color-scheme: light dark; --text: #1c1e21; --back: #fdfdfc; --soft: #f1f1ef;
  --line: #d5d5d2; --quiet: #61656b; --link: #005a9c; }
@media (prefers-color-scheme: dark) { :root { --text: #e4e5e7; --back: #17191c; --soft: #23262b;
  --line: #3b4047; --quiet: #a2a7ae; --link: #7fbcf2; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem; max-width: 76rem; color: var(--text);
  background: var(--back); font: 16px/1.5 system-ui, sans-serif; }
a { color: var(--link); }
h1 { margin: 0 0 1rem; } h2 { margin: 3rem 0 .5rem; font-size: 1.3rem; }
nav ol { padding-left: 1.5rem; }
.kind { color: var(--quiet); }
pre { margin: .5rem 0; padding: .6rem .8rem; background: var(--soft); border-radius: 6px;
  white-space: pre-wrap; overflow-wrap: anywhere; user-select: all; }
code { font: .9rem/1.4 ui-monospace, monospace; }
details { margin: .5rem 0; color: var(--quiet); } dl { display: grid; margin: .5rem 0;
  grid-template-columns: max-content 1fr; gap: .1rem 1rem; } dd { margin: 0;
  overflow-wrap: anywhere; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; margin: 1rem 0; font-size: .92rem;
  font-variant-numeric: tabular-nums; }
th { border-bottom: 2px solid var(--line); vertical-align: bottom; }
th, td { padding: .2rem .8rem; text-align: left; white-space: nowrap; }
td { border-bottom: 1px solid var(--line); }
.n { text-align: right; } .gap td { border-top: 3px double var(--line); }
figure { margin: 1rem 0; } figure svg { width: 100%; height: auto; max-width: 60rem; }
.maps { display: flex; flex-wrap: wrap; gap: .5rem 1rem; } .maps figure { margin: 0;
  flex: 0 1 23rem; }
ul.notes { color: var(--quiet); font-size: .92rem; padding-left: 1.2rem; }
)";

std::string escape(std::string_view text) {
  std::string out;
  for (char c : to_utf8(text)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        if (static_cast<unsigned char>(c) >= 0x20 || c == '\n' || c == '\t') out += c;
    }
  }
  return out;
}

std::string settings_html(const Json& settings) {
  if (settings.empty()) return "";
  std::string out = "<details><summary>Settings</summary><dl>\n";
  for (const auto& [key, value] : settings.items()) {
    const std::string text = value.is_string()
                                 ? value.get<std::string>()
                                 : value.dump(-1, ' ', false, Json::error_handler_t::replace);
    out += fmt::format("<dt>{}</dt><dd>{}</dd>\n", escape(key), escape(text));
  }
  return out + "</dl></details>\n";
}

std::string table_html(const Result& result) {
  std::string out = "<div class=\"wide\"><table>\n<thead><tr>";
  std::vector<const char*> classes;
  for (const ResultColumn& column : result.columns) {
    classes.push_back(is_right_aligned(result, column) ? " class=\"n\"" : "");
    out += fmt::format("<th{}>{}</th>", classes.back(), escape(column.title));
  }
  out += "</tr></thead>\n<tbody>\n";
  for (std::size_t r = 0; r < result.rows.size(); ++r) {
    out += gap_before(result, r) ? "<tr class=\"gap\">" : "<tr>";
    for (std::size_t c = 0; c < result.columns.size(); ++c) {
      out += fmt::format("<td{}>{}</td>", classes[c],
                         escape(format_cell(result.rows[r], result.columns[c])));
    }
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>\n";
}

std::string plots_html(const Result& result) {
  if (!result.plots.empty() && !can_draw()) {
    return "<p class=\"kind\">The plots are missing: they are drawn by gnuplot, which was not "
           "installed where this page was made (Debian's package: gnuplot-nox).</p>\n";
  }
  std::string out;
  bool maps = false;  // maps are many and small, and compared: side by side
  for (const Plot& plot : result.plots) {
    const bool map = plot.kind == Plot::Kind::heat && plot.maps.size() == 1;
    if (map != maps) out += map ? "<div class=\"maps\">\n" : "</div>\n";
    maps = map;
    try {
      out += "<figure>" + plot_svg(plot) + "</figure>\n";
    } catch (const Error& error) {
      out += fmt::format("<p class=\"kind\">The plot “{}” is missing: {}</p>\n", escape(plot.title),
                         escape(error.what()));
    }
  }
  if (maps) out += "</div>\n";
  return out;
}

std::string result_html(const Result& result, std::size_t number) {
  std::string out =
      fmt::format("<section id=\"r{}\">\n<h2>{}</h2>\n", number, escape(result.title));
  out += fmt::format("<pre><code>{}</code></pre>\n", escape(result.command));
  out += settings_html(result.settings) + table_html(result) + plots_html(result);
  if (!result.notes.empty()) {
    out += "<ul class=\"notes\">\n";
    for (const std::string& note : result.notes) out += "<li>" + escape(note) + "</li>\n";
    out += "</ul>\n";
  }
  return out + "</section>\n";
}

}  // namespace

std::string html_page(std::string_view title, const std::vector<Result>& results) {
  std::string out = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<title>{0}</title>\n<style>{1}</style>\n</head>\n<body>\n<h1>{0}</h1>\n",
      escape(title), kStyle);
  out += "<nav><ol>\n";
  for (std::size_t i = 0; i < results.size(); ++i) {
    out += fmt::format("<li><a href=\"#r{}\">{}</a> <span class=\"kind\">{}</span></li>\n", i + 1,
                       escape(results[i].title), escape(results[i].experiment));
  }
  out += "</ol></nav>\n<main>\n";
  for (std::size_t i = 0; i < results.size(); ++i) out += result_html(results[i], i + 1);
  return out + "</main>\n</body>\n</html>\n";
}

}  // namespace ballast
