// Results as one HTML page.
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>

#include "base/fail.h"
#include "pages/kept_html.h"
#include "pages/result.h"
#include "pages/svg.h"
#include "report/units.h"

namespace ballast {
namespace {

constexpr std::string_view kStyle = R"(
:root { color-scheme: light dark; --text: #1c1e21; --back: #fdfdfc; --soft: #f1f1ef;
  --line: #d5d5d2; --quiet: #61656b; --link: #005a9c; --kept: 0, 94, 160; --needle: #c2410c;
  --s0: #0067a5; --s1: #c44e00; --s2: #00805c; --s3: #a8437f; --s4: #0b8aa3; --s5: #9a6a00;
  --s6: #7a4fb5; --s7: #b3202c; }
@media (prefers-color-scheme: dark) { :root { --text: #e4e5e7; --back: #17191c; --soft: #23262b;
  --line: #3b4047; --quiet: #a2a7ae; --link: #7fbcf2; --kept: 96, 176, 240; --needle: #ff9b5e;
  --s0: #5cb0f0; --s1: #ff8f4a; --s2: #3fc79a; --s3: #e88fc2; --s4: #45cfe0; --s5: #e0b040;
  --s6: #bb9cf0; --s7: #ff7b7b; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.2rem; max-width: 62rem; color: var(--text);
  background: var(--back); font: 16px/1.5 system-ui, sans-serif; overflow-wrap: break-word; }
a { color: var(--link); }
h1 { margin: 0 0 .6rem; font-size: 1.6rem; line-height: 1.25; }
h2 { margin: 2.6rem 0 .5rem; font-size: 1.3rem; } h3 { margin: 1.6rem 0 .3rem; font-size: 1.05rem; }
.lead { font-size: 1.1rem; max-width: 46rem; } .lead p { margin: .3rem 0; }
nav ol { padding-left: 1.5rem; }
.kind, .quiet { color: var(--quiet); }
pre { margin: .5rem 0; padding: .6rem .8rem; background: var(--soft); border-radius: 6px;
  white-space: pre-wrap; overflow-wrap: anywhere; user-select: all; }
code { font: .9rem/1.4 ui-monospace, monospace; }
details { margin: .6rem 0; } summary { cursor: pointer; color: var(--quiet); }
dl { display: grid; margin: .5rem 0; grid-template-columns: minmax(6rem, max-content) 1fr;
  gap: .1rem 1rem; } dd { margin: 0; overflow-wrap: anywhere; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; margin: 1rem 0; font-size: .92rem;
  font-variant-numeric: tabular-nums; }
th { border-bottom: 2px solid var(--line); vertical-align: bottom; }
th, td { padding: .2rem .8rem; text-align: left; white-space: nowrap; }
td { border-bottom: 1px solid var(--line); }
.n { text-align: right; } .gap td { border-top: 3px double var(--line); }
figure { margin: 1rem 0; } figcaption { font-weight: 600; margin-bottom: .2rem; }
svg { display: block; width: 100%; height: auto; font: 12px system-ui, sans-serif; }
svg text { fill: currentColor; } svg .quiet { fill: var(--quiet); } svg .strong { font-weight: 600; }
.grid { stroke: var(--line); } .axis { stroke: var(--quiet); }
.rule { stroke: var(--text); stroke-width: 1.5; } .leader { stroke: var(--line); }
svg.narrow { display: none; } path.rest { stroke: var(--quiet); opacity: .5; }
circle.rest { fill: var(--quiet); opacity: .6; }
.bar { stroke-width: 1.2; opacity: .75; } .whisker { stroke: var(--text); stroke-width: 1.2; }
.maps { display: flex; flex-wrap: wrap; gap: .8rem 1.2rem; }
.maps figure { margin: 0; flex: 0 1 14rem; } .maps figcaption { font-size: .88rem; }
.scale { max-width: 16rem; color: var(--quiet); }
.strips > div { display: grid; grid-template: "name bar label" / 12rem 1fr 9rem;
  gap: 0 .7rem; align-items: center; font-size: .88rem; margin: .2rem 0; }
.strips svg { grid-area: bar; height: 14px; background: var(--soft); }
.strips span:last-child { grid-area: label; }
.strips rect { fill: rgb(var(--kept)); } .strips .place { fill: none; stroke: var(--needle);
  stroke-width: 2; vector-effect: non-scaling-stroke; }
.lost { color: var(--needle); }
@media (max-width: 34rem) { body { padding: .8rem; }
  svg.broad { display: none; } svg.narrow { display: block; }
  .strips > div { grid-template: "name label" "bar bar" / 1fr max-content; } }
.choices { display: flex; flex-wrap: wrap; gap: .4rem 1rem; margin: .8rem 0 .4rem; }
select, button { font: inherit; color: inherit; background: var(--soft); border: 1px solid var(--line);
  border-radius: 4px; padding: .1rem .3rem; max-width: 100%; }
.textbox { height: 17rem; overflow-y: auto; padding: .6rem .8rem; border: 1px solid var(--line);
  border-radius: 6px; white-space: pre-wrap; font-size: .9rem; position: relative; }
.textbox .place { text-decoration: underline 2px var(--needle); text-underline-offset: 3px;
  font-weight: 600; }
.picture { display: inline-block; position: relative; vertical-align: top; width: 20rem;
  max-width: 100%; margin: .3rem; background: rgb(var(--kept)); }
.picture + .picture { width: 7rem; }
.picture img, .picture canvas { display: block; width: 100%; }
.picture canvas { position: absolute; inset: 0; height: 100%; image-rendering: pixelated; }
ul.notes { color: var(--quiet); font-size: .92rem; padding-left: 1.2rem; }
)";

std::string escape(std::string_view text) { return escape_html(text); }

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

/// Of the tables and of the plots of one result. Columns of one key show one text many times; a
/// cell of a map takes a hundred times its bytes in the file.
constexpr std::size_t kMostTable = std::size_t{32} << 20, kMostPlots = std::size_t{64} << 20;

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
      require(out.size() <= kMostTable, ErrorCode::bad_file,
              "the table of \"{}\" takes over {} MiB of the page; leave out columns or rows",
              result.title, kMostTable >> 20);
    }
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>\n";
}

std::string figure(const Plot& plot, const std::string& caption) {
  try {
    constexpr std::size_t kTag = 4;  // <svg
    const std::string drawn = plot.kind == Plot::Kind::heat
                                  ? chart_svg(plot)
                                  : chart_svg(plot).insert(kTag, " class=\"broad\"") +
                                        chart_svg(plot, true).insert(kTag, " class=\"narrow\"");
    return fmt::format("<figure><figcaption>{}</figcaption>\n{}</figure>\n", escape(caption),
                       drawn);
  } catch (const Error& error) {
    return fmt::format("<p class=\"kind\">The plot “{}” is missing: {}</p>\n", escape(plot.title),
                       escape(error.what()));
  }
}

bool is_small_map(const Plot& plot) {
  return plot.kind == Plot::Kind::heat && plot.maps.size() == 1;
}

/// What the titles of the maps have in common, before the last blank of it.
std::string common_start(const std::vector<Plot>& plots) {
  std::string common;
  std::size_t count = 0;
  for (const Plot& plot : plots) {
    if (!is_small_map(plot)) continue;
    if (count++ == 0) {
      common = plot.title;
    } else {
      std::size_t same = 0;
      while (same < std::min(common.size(), plot.title.size()) && common[same] == plot.title[same])
        ++same;
      common.resize(same);
    }
  }
  const std::size_t blank = common.rfind(' ');
  return count < 2 || blank == std::string::npos ? "" : common.substr(0, blank + 1);
}

std::string plots_html(const Result& result) {
  std::string out;
  bool maps = false;  // maps are many and small, and compared: side by side
  const std::string common = common_start(result.plots);
  const Plot* last = nullptr;
  const auto end_maps = [&] {
    out += "</div>\n";
    if (last != nullptr) {
      out += fmt::format("<figure class=\"scale\">{}</figure>\n",
                         heat_scale_svg(last->low, last->high));
    }
  };
  for (const Plot& plot : result.plots) {
    const bool map = is_small_map(plot);
    if (map && !maps) {
      const std::string axes = plot.y_title + (plot.y_title.empty() ? "" : " down, ") +
                               plot.x_title + (plot.x_title.empty() ? "" : " across");
      if (!common.empty()) {
        out += fmt::format("<h3>{} <span class=\"quiet\">{}</span></h3>\n", escape(common),
                           escape(axes));
      }
      out += "<div class=\"maps\">\n";
    }
    if (!map && maps) end_maps();
    maps = map;
    last = map ? &plot : nullptr;
    out += figure(plot, map ? plot.title.substr(common.size())
                            : plot.title + (plot.kind != Plot::Kind::bars && !plot.y_title.empty()
                                                ? ": " + plot.y_title
                                                : ""));
    require(out.size() <= kMostPlots, ErrorCode::bad_file,
            "the plots of \"{}\" take over {} MiB of the page; leave out some", result.title,
            kMostPlots >> 20);
  }
  if (maps) end_maps();
  return out;
}

// --- in words ---

bool is_overall(const Json& row) {
  return std::ranges::any_of(row.items(), [](const auto& item) {
    return item.key() != "method" && item.value() == "all";
  });
}

/// Who came last of rows that are sorted by score, unless all did.
std::string last_text(const std::vector<const Json*>& rows, const ResultColumn& score) {
  const Json& last = *rows.back();
  const auto ties = static_cast<std::size_t>(std::ranges::count_if(
      rows, [&](const Json* row) { return (*row)["score"] == last["score"]; }));
  if (ties == rows.size()) return "";
  const std::string value = escape(format_cell(last, score));
  if (ties > 1) return fmt::format("; last {} methods with {} each", ties, value);
  return fmt::format("; last {} {}", escape(format_cell(last, {"method", ""})), value);
}

/// For each size of memory: exact, the best methods and the worst.
std::string verdict_html(const Result& result) {
  const auto score = std::ranges::find(result.columns, "score", &ResultColumn::key);
  if (score == result.columns.end() || score->unit != Unit::percent) return "";
  const bool overall = std::ranges::any_of(result.rows, is_overall);
  std::map<double, std::vector<const Json*>, std::greater<>> sizes;
  const Json* exact = nullptr;
  std::size_t exacts = 0;
  std::string of;
  for (const Json& row : result.rows) {
    if ((overall && !is_overall(row)) || !row.contains("method") || !row.contains("score") ||
        row["score"].is_null()) {
      continue;
    }
    bool sized = false;
    for (const char* key : {"share", "rate", "budget"}) {
      if (!row.contains(key) || !row[key].is_number()) continue;
      sizes[row[key].get<double>()].push_back(&row);
      of = key;
      sized = true;
    }
    if (!sized && row["method"] == "exact") {
      exact = &row;
      ++exacts;
    }
  }
  // Several groups without a mean have no one verdict.
  if (exact == nullptr || exacts > 1) return "";
  const auto value = [&](const Json& row) { return format_cell(row, *score); };
  std::string out = "<ul>\n<li>The exact cache: " + escape(value(*exact)) + ".</li>\n";
  for (auto& [size, rows] : sizes) {
    std::ranges::stable_sort(rows, std::greater<>{}, [](const Json* row) {
      const Json& x = (*row)["score"];
      return x.is_number() ? x.get<double>() : -1.0;
    });
    out += fmt::format(
        "<li>With {}: ",
        of == "budget"
            ? format_count(static_cast<std::size_t>(size)) + " entries a head"
            : fmt::format("{:.4g}% of its {}", 100 * size, of == "share" ? "bytes" : "entries"));
    for (std::size_t i = 0; i < std::min<std::size_t>(3, rows.size()); ++i) {
      const Json& row = *rows[i];
      out += fmt::format("{}{} {}", i == 0 ? "" : ", ",
                         i == 0 ? "<b>" + escape(format_cell(row, {"method", ""})) + "</b>"
                                : escape(format_cell(row, {"method", ""})),
                         escape(value(row)));
    }
    if (rows.size() > 3) out += last_text(rows, *score);
    out += ".</li>\n";
  }
  return out + "</ul>\n";
}

/// The kinds of cache that were asked, of all results.
struct Asked {
  bool exact = false;
  std::set<std::string> methods;
  std::set<std::string> types;  ///< of storage, which keep every entry

  void add(const Result& result);
};

void Asked::add(const Result& result) {
  for (const Json& row : result.rows) {
    if (!row.contains("method")) continue;
    if (row["method"] == "exact") {
      exact = true;
    } else {
      (row.value("storage_only", Json(false)) == true ? types : methods)
          .insert(row["method"].dump(-1, ' ', false, Json::error_handler_t::replace));
    }
  }
}

/// What one model was asked.
struct OfModel {
  std::string path;
  std::vector<std::string> questions;
};

/// "a", where no other model is a file of that name.
std::string name_of(const OfModel& model, const std::vector<OfModel>& all) {
  const auto file_of = [](const OfModel& m) {
    const std::filesystem::path path(m.path);
    return (path.has_filename() ? path : path.parent_path()).filename().string();
  };
  const std::string file = file_of(model);
  return std::ranges::count(all, file, file_of) > 1 ? model.path : file;
}

/// "a, b and c"
std::string listed(const std::vector<std::string>& items) {
  std::string out;
  for (std::size_t i = 0; i < items.size(); ++i) {
    out += (i == 0 ? "" : i + 1 == items.size() ? " and " : ", ") + items[i];
  }
  return out;
}

/// What was asked, of which models.
std::string lead_html(const std::vector<Result>& results) {
  std::vector<OfModel> models;
  std::vector<std::string> caches;
  Asked asked;
  bool later = true;
  for (const Result& result : results) {
    if (!result.settings.is_object() || !result.settings.contains("model") ||
        !result.settings["model"].is_string() || !result.settings.contains("samples")) {
      continue;
    }
    const auto path = result.settings["model"].get<std::string>();
    auto model = std::ranges::find(models, path, &OfModel::path);
    if (model == models.end()) model = models.insert(models.end(), {path, {}});
    const Json& samples = result.settings["samples"];
    model->questions.push_back(fmt::format("{} question{} of “{}”", samples.dump(),
                                           samples == 1 ? "" : "s", escape(result.title)));
    asked.add(result);
    later = later && result.settings.value("question_later", Json(false)) == true;
  }
  if (models.empty()) return "";
  if (asked.exact) caches.push_back("with the exact key-value cache");
  if (!asked.methods.empty()) {
    caches.push_back(fmt::format(
        "with {} that keep{} a part of it",
        asked.methods.size() == 1 ? "a method" : fmt::format("{} methods", asked.methods.size()),
        asked.methods.size() == 1 ? "s" : ""));
  }
  if (!asked.types.empty()) {
    caches.push_back(fmt::format("with all of it in {}",
                                 asked.types.size() == 1
                                     ? "fewer bits"
                                     : fmt::format("fewer bits ({} types)", asked.types.size())));
  }
  std::vector<std::string> sentences;
  for (const OfModel& model : models) {
    sentences.push_back(fmt::format(
        "{} model {}{} {}", sentences.empty() ? "The" : "the", escape(name_of(model, models)),
        sentences.empty() ? " was asked" : "", listed(model.questions)));
  }
  std::string out = fmt::format("<div class=\"lead\"><p>{}{}{}.</p>\n", fmt::join(sentences, "; "),
                                caches.empty() ? "" : ": ", listed(caches));
  if (!asked.methods.empty()) {
    out += fmt::format(
        "<p>{}</p>\n",
        later
            ? "No method knew the question when it compressed the text, so what it threw away was "
              "gone."
            : "Where the question is part of the text, methods knew it when they compressed.");
  }
  return out + "</div>\n";
}

std::string result_html(const Result& result, std::size_t number) {
  std::string out =
      fmt::format("<section id=\"r{}\">\n<h2>{}</h2>\n", number, escape(result.title));
  out += verdict_html(result) + plots_html(result);
  if (!result.kept.is_null()) out += kept_html(result.kept);
  out += fmt::format("<details><summary>Table, {} row{}</summary>\n", result.rows.size(),
                     result.rows.size() == 1 ? "" : "s");
  out += table_html(result);
  if (!result.notes.empty()) {
    out += "<ul class=\"notes\">\n";
    for (const std::string& note : result.notes) out += "<li>" + escape(note) + "</li>\n";
    out += "</ul>\n";
  }
  return out + "</details>\n" + settings_html(result.settings) + "</section>\n";
}

}  // namespace

std::string html_page(std::string_view title, const std::vector<Result>& results) {
  std::string out = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<title>{0}</title>\n<style>{1}</style>\n</head>\n<body>\n<h1>{0}</h1>\n",
      escape(title), kStyle);
  out += lead_html(results) + "<nav><ol>\n";
  for (std::size_t i = 0; i < results.size(); ++i) {
    out += fmt::format("<li><a href=\"#r{}\">{}</a> <span class=\"kind\">{}</span></li>\n", i + 1,
                       escape(results[i].title), escape(results[i].experiment));
  }
  out += "</ol></nav>\n<main>\n";
  bool kept = false;
  for (std::size_t i = 0; i < results.size(); ++i) {
    out += result_html(results[i], i + 1);
    kept = kept || !results[i].kept.is_null();
  }
  if (!results.empty()) out += "<h2>Commands</h2>\n";
  for (const Result& result : results) {
    out += fmt::format("<pre><code>{}</code></pre>\n", escape(result.command));
  }
  out += "</main>\n";
  if (kept) out += fmt::format("<script>{}</script>\n", kept_script());
  return out + "</body>\n</html>\n";
}

}  // namespace ballast
