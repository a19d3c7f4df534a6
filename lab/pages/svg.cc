#include "pages/svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <limits>
#include <optional>
#include <set>

#include "base/fail.h"
#include "report/units.h"

namespace ballast {
namespace {

constexpr std::size_t kColours = 8;
/// The width of a character of 12 pixels, about.
constexpr double kCharacter = 6.6;
constexpr double kHuge = std::numeric_limits<double>::max();

/// A point outside the range may be 1e308 pixels away, which a coordinate takes 300 digits for.
constexpr double kFar = 1e5;
/// More points, bars or cells are no plot that anyone could read.
constexpr std::size_t kMostMarks = 100'000;

/// Half of a positive number, which stays positive: a logarithmic axis has no 0.
double halved(double x) { return std::max(x / 2, std::numeric_limits<double>::denorm_min()); }

struct Range {
  double low = HUGE_VAL;
  double high = -HUGE_VAL;
  void add(double x) {
    if (!std::isfinite(x)) return;
    low = std::min(low, x);
    high = std::max(high, x);
  }
  bool empty() const { return low > high; }
};

/// From values to pixels.
struct Axis {
  Range range;
  bool log = false;
  double begin = 0, end = 0;  ///< pixels of the range's ends
  double at(double x) const {
    const auto scale = [&](double v) { return log ? std::log(v) : v; };
    const double size = scale(range.high) - scale(range.low);
    const double share = size > 0 ? (scale(x) - scale(range.low)) / size : 0.5;
    return std::clamp(begin + share * (end - begin), -kFar, kFar);
  }
};

/// Round values within the range, ascending: about `most`, at most twice as many. Loops count
/// steps: adding one below a unit in the last place of a value does not change it.
std::vector<double> ticks(const Axis& axis, int most) {
  std::vector<double> out;
  const Range& r = axis.range;
  if (axis.log) {
    const int first = static_cast<int>(std::floor(std::log10(r.low)));
    const int last = std::numeric_limits<double>::max_exponent10;
    for (const std::vector<int>& steps :
         {std::vector<int>{1, 2, 5}, std::vector<int>{1, 3}, std::vector<int>{1}}) {
      out.clear();
      for (int power = first; power <= last && std::pow(10, power) <= r.high; ++power) {
        for (int step : steps) {
          const double x = step * std::pow(10, power);
          if (x >= r.low * 0.999 && x <= r.high * 1.001) out.push_back(x);
        }
      }
      if (static_cast<int>(out.size()) <= most) return out;
    }
    const std::size_t apart = (out.size() - 1) / (2 * static_cast<std::size_t>(most)) + 1;
    for (std::size_t i = 0; i * apart < out.size(); ++i) out[i] = out[i * apart];
    out.resize((out.size() + apart - 1) / apart);
    return out;
  }
  const double rough = (r.high - r.low) / most;
  if (rough <= 0) return {r.low};
  const double power = std::pow(10, std::floor(std::log10(rough)));
  double step = power;
  for (double factor : {1.0, 2.0, 2.5, 5.0, 10.0}) {
    step = factor * power;
    if (step >= rough) break;
  }
  const double first = std::ceil(r.low / step - 1e-9);
  for (int i = 0; i <= most + 1; ++i) {
    const double x = (first + i) * step;
    if (!(x <= r.high + 1e-9 * step)) break;
    if (out.empty() || x > out.back()) out.push_back(std::abs(x) < 1e-9 * step ? 0 : x);
  }
  return out;
}

std::string number(double x) { return fmt::format("{:.6g}", x); }
std::string share(double x) { return fmt::format("{:.4g}%", 100 * x); }

std::string text_at(double x, double y, std::string_view text, std::string_view more = "") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\"{}>{}</text>\n", x, y, more,
                     escape_html(text));
}

std::string line_at(double x1, double y1, double x2, double y2, std::string_view more) {
  return fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" {}/>\n", x1, y1,
                     x2, y2, more);
}

std::string colour(std::size_t i) { return fmt::format("var(--s{})", i % kColours); }

std::string shortened(std::string_view text, double width) {
  const auto most = static_cast<std::size_t>(std::max(4.0, width / kCharacter));
  if (text.size() <= most) return std::string(text);
  std::size_t end = most - 1;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return std::string(text.substr(0, end)) + "…";
}

std::string svg(double width, double height, const std::string& title, const std::string& inside) {
  return fmt::format(
      "<svg viewBox=\"0 0 {0:.0f} {1:.0f}\" style=\"max-width:{2:.0f}px\" role=\"img\" "
      "aria-label=\"{3}\" xmlns=\"http://www.w3.org/2000/svg\">\n{4}</svg>\n",
      width, height, width * 1.25, escape_html(title), inside);
}

bool has_intervals(const Plot& plot) {
  return std::ranges::any_of(plot.lines, [](const Plot::Line& line) {
    return std::ranges::any_of(line.points, [](const Plot::Point& p) { return p.has_interval(); });
  });
}

Range bar_of(const Plot::Point& p) {
  if (p.has_interval()) return {p.low, p.high};
  const double half = std::isfinite(p.deviation) ? std::abs(p.deviation) : 0;
  return {p.y - half, p.y + half};
}

// --- lines and points ---

struct Label {
  double x = 0, y = 0;  ///< where its line ends
  double place = 0;
  std::size_t line = 0;
};

/// Moves labels apart, in the order of their lines' ends.
void spread(std::vector<Label>& labels, double top, double bottom, double height) {
  std::ranges::stable_sort(labels, {}, &Label::y);
  double next = top;
  for (Label& label : labels) {
    label.place = std::max(label.y, next);
    next = label.place + height;
  }
  double last = bottom;
  for (auto label = labels.rbegin(); label != labels.rend(); ++label) {
    label->place = std::min(label->place, last);
    last = label->place - height;
  }
}

/// A line's colour and label; `rank` of none: thin, grey and without a label.
using Ranks = std::vector<std::optional<std::size_t>>;

/// All lines where colours suffice, else those that are best in the mean. Lines equal to the first
/// one left out are left out too, because nothing sets them apart.
Ranks ranks_of(const Plot& plot) {
  Ranks ranks(plot.lines.size());
  std::vector<std::pair<double, std::size_t>> means;
  const bool lower = plot.y_title.find("error") != std::string::npos ||
                     plot.y_title.find("loss") != std::string::npos;
  for (std::size_t i = 0; i < plot.lines.size(); ++i) {
    if (is_rule(plot.lines[i])) continue;
    double sum = 0, count = 0;
    for (const Plot::Point& p : plot.lines[i].points) {
      if (!std::isfinite(p.y)) continue;
      sum += p.y;
      ++count;
    }
    const double mean = count > 0 ? sum / count : lower ? HUGE_VAL : -HUGE_VAL;
    means.emplace_back(lower ? mean : -mean, i);
  }
  std::size_t shown = means.size();
  if (plot.kind == Plot::Kind::lines && means.size() > kColours) {
    std::ranges::stable_sort(means, {}, &std::pair<double, std::size_t>::first);
    shown = kColours;
    while (shown > 1 && means[shown - 1].first == means[kColours].first) --shown;
  }
  for (std::size_t rank = 0; rank < shown; ++rank) ranks[means[rank].second] = rank;
  return ranks;
}

/// Where ticks may stand: at the points, if they are few; those of whole lines before single ones.
std::vector<double> tick_places(const Plot& plot, const Axis& x, const std::set<double>& xs,
                                int most) {
  if (xs.size() > 8) return ticks(x, most);
  std::set<double> of_lines;
  for (const Plot::Line& line : plot.lines) {
    if (line.points.size() < 2) continue;
    for (const Plot::Point& p : line.points) {
      if (xs.contains(p.x)) of_lines.insert(p.x);
    }
  }
  const std::set<double>& places = of_lines.size() > 1 ? of_lines : xs;
  return {places.begin(), places.end()};
}

std::string curves(const Plot& plot, bool narrow) {
  constexpr double kTop = 14, kBottom = 46, kLabel = 15;
  const double width = narrow ? 350 : 560, left = narrow ? 44 : 52, most = narrow ? 128 : 190;
  Axis x{{}, plot.log_x, 0, 0}, y{{}, plot.log_y, 0, 0};
  std::set<double> xs;
  const Ranks ranks = ranks_of(plot);
  std::size_t longest = 0, grey = 0;
  double grey_sum = 0, grey_count = 0;
  const auto shown = [&](const Plot::Point& p) {
    return std::isfinite(p.x) && std::isfinite(p.y) && (!plot.log_x || p.x > 0) &&
           (!plot.log_y || p.y > 0);
  };
  for (std::size_t i = 0; i < plot.lines.size(); ++i) {
    const Plot::Line& line = plot.lines[i];
    bool any = false;
    for (const Plot::Point& p : line.points) {
      if (!shown(p)) continue;
      any = true;
      x.range.add(p.x);
      xs.insert(p.x);
      y.range.add(p.y);
      const Range bar = bar_of(p);
      if (!plot.log_y || bar.low > 0) y.range.add(bar.low);
      y.range.add(bar.high);
    }
    if (any && (ranks[i] || is_rule(line))) longest = std::max(longest, line.name.size());
  }
  require(!x.range.empty(), "there is nothing to draw: no line has a point on these axes");
  const bool percent = has_intervals(plot);
  if (percent) {
    y.range = {0, 1};
    y.log = false;  // there is no logarithm of 0
  } else if (!y.log) {
    if (y.range.low > 0 && y.range.low < 0.5 * y.range.high) y.range.low = 0;
    if (y.range.high == y.range.low) y.range.high += y.range.low == 0 ? 1 : std::abs(y.range.low);
  } else if (y.range.high == y.range.low) {
    y.range = {halved(y.range.low), std::min(y.range.high, kHuge / 2) * 2};
  }
  // Shares of memory halve from one to the next.
  if (!x.log && xs.size() < 9 && *xs.begin() > 0 && *xs.rbegin() > 3.9 * *xs.begin()) x.log = true;
  const double right = std::min(
      most, 26 + kCharacter * static_cast<double>(std::clamp<std::size_t>(longest, 9, 26)));
  const auto labelled = static_cast<double>(
      std::ranges::count_if(ranks, [](const auto& rank) { return rank.has_value(); }));
  const double height = std::max(330.0, kTop + kBottom + kLabel * (labelled + 4));
  x.begin = left + 14;
  x.end = width - right - 14;
  y.begin = height - kBottom;
  y.end = kTop;

  std::string out;
  for (double tick : ticks(y, 6)) {
    out += line_at(left, y.at(tick), width - right, y.at(tick), "class=\"grid\"");
    out += text_at(left - 6, y.at(tick) + 4, percent ? share(tick) : number(tick),
                   " text-anchor=\"end\"");
  }
  const bool fraction = plot.x_title.find("share") != std::string::npos ||
                        plot.x_title.find("fraction") != std::string::npos;
  double free = -HUGE_VAL;  // right of the last label
  for (double tick : tick_places(plot, x, xs, narrow ? 4 : 6)) {
    const std::string label = fraction ? share(tick) : number(tick);
    out += line_at(x.at(tick), y.begin, x.at(tick), y.begin + 4, "class=\"axis\"");
    const double half = kCharacter * static_cast<double>(label.size() + 2) / 2;
    if (x.at(tick) - half < free) continue;
    free = x.at(tick) + half;
    out += text_at(x.at(tick), y.begin + 18, label, " text-anchor=\"middle\"");
  }
  out += line_at(left, y.begin, width - right, y.begin, "class=\"axis\"");
  out += text_at((left + width - right) / 2, height - 8, plot.x_title,
                 " text-anchor=\"middle\" class=\"quiet\"");

  std::vector<Label> labels;
  std::string behind, before;
  for (std::size_t i = 0; i < plot.lines.size(); ++i) {
    const Plot::Line& line = plot.lines[i];
    const bool rule = is_rule(line), quiet = !ranks[i] && !rule;
    // Bars of several lines at one place stand side by side.
    const double aside = !ranks[i] || labelled < 2
                             ? 0
                             : (static_cast<double>(*ranks[i]) / (labelled - 1) - 0.5) *
                                   std::min(20.0, 3 * labelled);
    const std::string name = colour(ranks[i].value_or(0));
    std::string path, marks;
    std::optional<Label> end;
    for (const Plot::Point& p : line.points) {
      if (!shown(p)) continue;
      const double px = x.at(p.x) + aside, py = y.at(p.y);
      path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : " L", px, py);
      if (!end || px >= end->x) end = Label{px, py, py, i};
      if (rule) continue;
      const Range bar = bar_of(p);
      if (bar.high > bar.low && !quiet) {
        const double low = y.log ? std::max(bar.low, y.range.low) : bar.low;
        marks += line_at(px, y.at(low), px, y.at(bar.high),
                         fmt::format("style=\"stroke:{}\" class=\"bar\"", name));
      }
      const double radius = line.points.size() > 200 ? 1.5 : quiet ? 2 : 3.5;
      marks += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\" {}/>\n", px, py, radius,
                           quiet ? "class=\"rest\"" : fmt::format("style=\"fill:{}\"", name));
    }
    if (!end) continue;
    if (rule) {
      before += line_at(left, end->y, width - right, end->y, "class=\"rule\"");
      end->x = width - right;
    } else if (plot.kind == Plot::Kind::lines) {
      path = fmt::format(
          "<path d=\"{}\" fill=\"none\" {}/>\n", path,
          quiet ? "class=\"rest\"" : fmt::format("style=\"stroke:{}\" stroke-width=\"2\"", name));
      marks.insert(0, path);
    }
    (quiet ? behind : before) +=
        fmt::format("<g><title>{}</title>\n{}</g>\n", escape_html(line.name), marks);
    if (quiet) {
      ++grey;
      grey_sum += end->y;
      ++grey_count;
    } else if (!line.name.empty()) {
      labels.push_back(*end);
    }
  }
  out += behind + before;
  if (grey > 0) {
    const double at = grey_sum / grey_count;
    labels.push_back({width - right, at, at, plot.lines.size()});
  }
  spread(labels, kTop, y.begin, kLabel);
  for (const Label& label : labels) {
    const double from = width - right + 4;
    if (label.line == plot.lines.size()) {
      out += text_at(from + 13, label.place + 4,
                     fmt::format("{} other{}", grey, grey == 1 ? "" : "s"), " class=\"quiet\"");
      continue;
    }
    const Plot::Line& line = plot.lines[label.line];
    if (plot.kind == Plot::Kind::lines) {
      out += line_at(label.x + 4, label.y, from + 10, label.place, "class=\"leader\"");
    }
    out += text_at(from + 13, label.place + 4, shortened(line.name, right - 18),
                   is_rule(line)
                       ? " class=\"strong\""
                       : fmt::format(" style=\"fill:{}\"", colour(ranks[label.line].value_or(0))));
  }
  return svg(width, height, plot.title, out);
}

// --- bars ---

std::string bars(const Plot& plot, bool narrow) {
  constexpr double kRow = 17, kRight = 64;
  const double width = narrow ? 350 : 560;
  std::size_t groups = plot.x_labels.size(), longest = 3;
  Axis x{{}, plot.log_y, 0, 0};
  for (const Plot::Line& line : plot.lines) {
    groups = std::max(groups, line.points.size());
    longest = std::max(longest, line.name.size());
    for (const Plot::Point& p : line.points) {
      if (!std::isfinite(p.y) || (plot.log_y && p.y <= 0)) continue;
      x.range.add(p.y);
      x.range.add(bar_of(p).high);
    }
  }
  require(!x.range.empty(), "there is nothing to draw: no line has a point on these axes");
  const bool percent = has_intervals(plot);
  if (percent) {
    x.range = {0, 1};
    x.log = false;
  } else if (!x.log) {
    x.range.add(0);
    if (x.range.high == x.range.low) x.range.high = 1;
  } else {
    x.range.low = halved(x.range.low);
  }
  const bool named = plot.lines.size() > 1 || !plot.lines[0].name.empty();
  if (!named) {
    for (const std::string& label : plot.x_labels) longest = std::max(longest, label.size());
  }
  const double left =
      std::min(narrow ? 130.0 : 200.0,
               12 + kCharacter * static_cast<double>(std::min<std::size_t>(longest, 28)));
  x.begin = left;
  x.end = width - kRight;
  std::string out;
  double top = 16;
  for (std::size_t g = 0; g < groups; ++g) {
    const std::string_view group =
        g < plot.x_labels.size() ? std::string_view(plot.x_labels[g]) : "";
    if (named && groups > 1) {
      out += text_at(left, top + 2, group, " class=\"strong\"");
      top += 8;
    }
    for (std::size_t i = 0; i < plot.lines.size(); ++i) {
      const Plot::Line& line = plot.lines[i];
      if (g >= line.points.size()) continue;
      const Plot::Point& p = line.points[g];
      const double middle = top + kRow / 2;
      out += text_at(left - 6, middle + 4,
                     shortened(named ? std::string_view(line.name) : group, left - 8),
                     " text-anchor=\"end\"");
      if (std::isfinite(p.y) && (!plot.log_y || p.y > 0)) {
        const double zero = x.log ? x.begin : x.at(0), end = x.at(p.y);
        out += fmt::format(
            "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" style=\"fill:{}\" "
            "rx=\"2\"/>\n",
            std::min(zero, end), top + 2, std::max(1.0, std::abs(end - zero)), kRow - 4,
            named && line.name == "exact" ? "var(--quiet)" : colour(named ? i : 0));
        const Range bar = bar_of(p);
        const double high = bar.high > bar.low ? x.at(bar.high) : end;
        if (bar.high > bar.low) {
          const double low =
              x.log ? std::max(bar.low, x.range.low) : std::max(bar.low, x.range.low);
          out += line_at(x.at(low), middle, high, middle, "class=\"whisker\"");
        }
        out += text_at(std::max(end, high) + 6, middle + 4, percent ? share(p.y) : number(p.y));
      }
      top += kRow;
    }
    top += named ? 14 : 0;
  }
  if (!plot.y_title.empty()) {
    out += text_at(left, top + 14, plot.y_title, " class=\"quiet\"");
    top += 18;
  }
  return svg(width, top + 8, plot.title, out);
}

// --- heat maps ---

/// Brightness grows with the value, so that the map is readable without colours.
std::string heat_colour(double x) {
  static constexpr std::array<std::array<double, 3>, 5> stops = {{{0x44, 0x01, 0x54},
                                                                  {0x3b, 0x52, 0x8b},
                                                                  {0x21, 0x91, 0x8c},
                                                                  {0x5e, 0xc9, 0x62},
                                                                  {0xfd, 0xe7, 0x25}}};
  const double at = x > 0 ? std::min(x, 1.0) * 4 : 0;
  const auto i = std::min<std::size_t>(3, static_cast<std::size_t>(at));
  const double part = at - static_cast<double>(i);
  std::array<int, 3> rgb;
  for (std::size_t c = 0; c < 3; ++c) {
    rgb[c] = static_cast<int>(std::lround(stops[i][c] + part * (stops[i + 1][c] - stops[i][c])));
  }
  return fmt::format("#{:02x}{:02x}{:02x}", rgb[0], rgb[1], rgb[2]);
}

std::string heat(const Plot& plot) {
  constexpr double kHeight = 22, kTop = 6, kBottom = 20;
  constexpr double kLongestLabel = 40 * kCharacter;  // under each map, of which there may be many
  std::size_t columns = 0, rows = 0, longest = 0, wide = 0;
  for (const Plot::Map& map : plot.maps) {
    std::size_t most = 0;
    for (const auto& row : map.cells) most = std::max(most, row.size());
    columns += most + (columns > 0);
    rows = std::max(rows, map.cells.size());
  }
  for (const std::string& label : plot.y_labels) longest = std::max(longest, label.size());
  for (const std::string& label : plot.x_labels) wide = std::max(wide, label.size());
  const double cell =
      std::max(34.0, kCharacter * static_cast<double>(std::min<std::size_t>(wide, 12)) + 6);
  const double left = 8 + kCharacter * static_cast<double>(longest);
  const double names = plot.maps.size() > 1 ? 16 : 0;
  std::string out;
  bool any = false;
  std::size_t first = 0;
  for (const Plot::Map& map : plot.maps) {
    std::size_t most = 0;
    for (const auto& row : map.cells) most = std::max(most, row.size());
    const double start = left + cell * static_cast<double>(first);
    if (names > 0) out += text_at(start, kTop + 10, map.name, " class=\"strong\"");
    for (std::size_t y = 0; y < map.cells.size(); ++y) {
      for (std::size_t x = 0; x < map.cells[y].size(); ++x) {
        const double value = map.cells[y][x];
        if (!std::isfinite(value)) continue;
        any = true;
        const double shade = (value - plot.low) / std::max(plot.high - plot.low, 1e-300);
        const double px = start + cell * static_cast<double>(x);
        const double py = kTop + names + kHeight * static_cast<double>(y);
        out += fmt::format(
            "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"{}\"/>\n",
            px, py, cell - 1, kHeight - 1, heat_colour(shade));
        const bool large = std::max(std::abs(plot.low), std::abs(plot.high)) > 10;
        out += text_at(px + cell / 2, py + 15, format_fixed(value, large ? 0 : 2),
                       fmt::format(" text-anchor=\"middle\" style=\"font-size:10px;fill:{}\"",
                                   shade < 0.6 ? "#fff" : "#000"));
      }
    }
    for (std::size_t x = 0; x < most && x < plot.x_labels.size(); ++x) {
      out += text_at(start + cell * (static_cast<double>(x) + 0.5),
                     kTop + names + kHeight * static_cast<double>(rows) + 14,
                     shortened(plot.x_labels[x], kLongestLabel),
                     " text-anchor=\"middle\" style=\"font-size:11px\"");
    }
    first += most + 1;
  }
  require(any, "there is nothing to draw: no map has a number");
  for (std::size_t y = 0; y < rows && y < plot.y_labels.size(); ++y) {
    out += text_at(left - 5, kTop + names + kHeight * static_cast<double>(y) + 15, plot.y_labels[y],
                   " text-anchor=\"end\" style=\"font-size:11px\"");
  }
  return svg(left + cell * static_cast<double>(columns),
             kTop + names + kHeight * static_cast<double>(rows) + kBottom, plot.title, out);
}

/// Points or cells; of bars the room for them, as groups and lines without any cost their product.
std::size_t marks_of(const Plot& plot) {
  std::size_t marks = 0, groups = plot.x_labels.size();
  for (const Plot::Line& line : plot.lines) {
    marks += line.points.size();
    groups = std::max(groups, line.points.size());
  }
  if (plot.kind == Plot::Kind::bars) return groups * plot.lines.size();
  for (const Plot::Map& map : plot.maps) {
    for (const auto& row : map.cells) marks += row.size();
  }
  return marks;
}

}  // namespace

std::string escape_html(std::string_view text) {
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

std::string chart_svg(const Plot& plot, bool narrow) {
  require(marks_of(plot) <= kMostMarks,
          "{} points, bars or cells are too many for one plot; at most {} are drawn",
          marks_of(plot), kMostMarks);
  if (plot.kind == Plot::Kind::heat) return heat(plot);
  require(!plot.lines.empty(), "there is nothing to draw: no line has a point on these axes");
  return plot.kind == Plot::Kind::bars ? bars(plot, narrow) : curves(plot, narrow);
}

std::string chart_file(const Plot& plot) {
  constexpr double kMargin = 8;
  const bool named = plot.kind != Plot::Kind::bars && !plot.y_title.empty();  // bars say it
  const double top = named ? 46 : 30;
  static constexpr std::array<std::string_view, kColours> kLight = {
      "#0067a5", "#c44e00", "#00805c", "#a8437f", "#0b8aa3", "#9a6a00", "#6b57b5", "#b3261e"};
  std::string chart = chart_svg(plot);
  double width = 0, height = 0;
  require(std::sscanf(chart.c_str(), "<svg viewBox=\"0 0 %lf %lf\"", &width, &height) == 2,
          "a chart without a size");
  const std::size_t tag = std::string_view("<svg").size();
  chart.insert(tag, fmt::format(" x=\"{0}\" y=\"{1}\" width=\"{2}\" height=\"{3}\"", kMargin, top,
                                width, height));
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n<style>{2}</style>\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n{3}{4}</svg>\n",
      width + 2 * kMargin, height + top + kMargin,
      "text { fill: #1c1e21; } .quiet { fill: #61656b; } .strong { font-weight: 600; } "
      ".grid { stroke: #d5d5d2; } .axis { stroke: #61656b; } .leader { stroke: #d5d5d2; } "
      ".rule { stroke: #1c1e21; stroke-width: 1.5; } path.rest { stroke: #61656b; opacity: .5; } "
      "circle.rest { fill: #61656b; opacity: .6; } .bar { stroke-width: 1.2; opacity: .75; } "
      ".whisker { stroke: #1c1e21; stroke-width: 1.2; }",
      text_at(kMargin, 20, shortened(plot.title, width), " class=\"strong\"") +
          (named ? text_at(kMargin, 37, plot.y_title, " class=\"quiet\"") : ""),
      chart);
  const auto replace = [&](std::string_view name, std::string_view value) {
    for (std::size_t at = 0; (at = out.find(name, at)) != std::string::npos;) {
      out.replace(at, name.size(), value);
    }
  };
  for (std::size_t i = 0; i < kColours; ++i) replace(colour(i), kLight[i]);
  replace("var(--quiet)", "#61656b");
  return out;
}

std::string heat_scale_svg(double low, double high) {
  std::string out;
  constexpr int kSteps = 40;
  for (int i = 0; i < kSteps; ++i) {
    out += fmt::format("<rect x=\"{}\" y=\"2\" width=\"5.2\" height=\"10\" fill=\"{}\"/>\n", 5 * i,
                       heat_colour((i + 0.5) / kSteps));
  }
  out +=
      text_at(0, 26, number(low)) + text_at(5 * kSteps, 26, number(high), " text-anchor=\"end\"");
  return svg(5 * kSteps, 30, "colours of the maps", out);
}

}  // namespace ballast
