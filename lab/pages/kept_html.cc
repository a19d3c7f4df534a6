// What methods kept of a text, as a part of the page: a strip each, and the text in colours.
#include "pages/kept_html.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "ballast/error.h"
#include "pages/svg.h"
#include "report/placed_picture.h"
#include "report/units.h"

namespace ballast {
namespace {

/// Colours the pieces of the text by the share of the chosen heads that keep each, and veils what
/// is dropped of its pictures.
constexpr std::string_view kScript = R"(
for (const view of document.querySelectorAll('.kept')) {
  const data = JSON.parse(view.querySelector('script').textContent);
  const box = view.querySelector('.textbox'), method = view.querySelector('.method');
  const head = view.querySelector('.head'), answer = view.querySelector('.answer');
  const pictures = data.pictures.map(picture => {
    const {begin, columns, rows, side, thumbnail} = picture, nodes = [];
    const canvases = (thumbnail ? [[columns, rows], [1, 1]] : [[columns, rows]]).map(([across, down]) => {
      const node = document.createElement('span'), canvas = document.createElement('canvas');
      node.className = 'picture';
      if (picture.data) node.append(Object.assign(new Image(), {src: picture.data, alt: ''}));
      else node.style.aspectRatio = `${columns} / ${rows}`;
      canvas.width = across * side;
      canvas.height = down * side;
      node.append(canvas);
      nodes.push(node);
      return canvas;
    });
    return {...picture, nodes, canvases, end: begin + (columns * rows + thumbnail) * side * side};
  });
  const spans = data.pieces.map((piece, i) => {
    const picture = pictures.find(p => i >= p.begin && i < p.end);
    if (picture) {
      if (i === picture.begin) box.append(...picture.nodes);
      return null;
    }
    const span = document.createElement('span');
    span.textContent = piece;
    if (i >= data.place[0] && i < data.place[1]) span.className = 'place';
    box.append(span);
    return span;
  });
  const held = (digits, i) => (parseInt(digits[i >> 2], 16) >> (3 - (i & 3))) & 1;
  const show = () => {
    const chosen = data.methods[method.value];
    const heads = head.value === 'all' ? chosen.kept : [chosen.kept[head.value]];
    const share_of = i => heads.reduce((sum, digits) => sum + held(digits, i), 0) / heads.length;
    for (const picture of pictures) {
      const {begin, end, columns, rows, side} = picture;
      const shares = Array.from({length: end - begin}, (_, i) => share_of(begin + i));
      const most = Math.max(...shares) || 1;
      for (const [thumbnail, canvas] of picture.canvases.entries()) {
        const pen = canvas.getContext('2d');
        pen.clearRect(0, 0, canvas.width, canvas.height);
        pen.fillStyle = getComputedStyle(document.body).backgroundColor;
        for (let y = 0; y < canvas.height; ++y) {
          for (let x = 0; x < canvas.width; ++x) {
            const tile = thumbnail ? columns * rows : Math.floor(y / side) * columns + Math.floor(x / side);
            pen.globalAlpha = 0.9 * (1 - shares[(tile * side + y % side) * side + x % side] / most);
            pen.fillRect(x, y, 1, 1);
          }
        }
      }
    }
    spans.forEach((span, i) => {
      if (!span) return;
      const share = share_of(i);
      span.style.background = share ? `rgba(var(--kept), ${(0.08 + 0.42 * share).toFixed(2)})` : '';
      span.style.opacity = share ? '' : 0.55;
    });
    answer.textContent = chosen.answer;
  };
  method.onchange = head.onchange = show;
  for (const button of view.querySelectorAll('.pick')) {
    button.onclick = () => { method.value = button.value; show(); };
  }
  show();
  const place = box.querySelector('.place');
  if (place) box.scrollTop = place.offsetTop - box.clientHeight / 2;
}
)";

bool held(const std::string& digits, std::size_t token) {
  const std::size_t at = token / 4;
  if (at >= digits.size()) return false;
  const char c = digits[at];
  const int value = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : 0;
  return (value >> (3 - token % 4) & 1) != 0;
}

/// The tokens of the sentence or line that holds the answer; an empty range if there is none.
std::pair<std::size_t, std::size_t> place_of(const std::vector<std::string>& pieces,
                                             const Json& expected) {
  const Json& first = expected.is_array() && !expected.empty() ? expected[0] : expected;
  std::string answer = first.is_string() ? first.get<std::string>() : first.dump();
  std::string text;
  std::vector<std::size_t> begins;
  for (const std::string& piece : pieces) {
    begins.push_back(text.size());
    text += piece;
  }
  // Two texts of one letter would take find() a time of their product.
  const void* found = ::memmem(text.data(), text.size(), answer.data(), answer.size());
  if (answer.empty() || found == nullptr) return {0, 0};
  const auto at = static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
  std::size_t begin = at, end = at + answer.size();
  const auto ends = [&](std::size_t i) {
    return text[i] == '\n' || (text[i] == ' ' && i > 0 && text[i - 1] == '.');
  };
  while (begin > 0 && !ends(begin - 1)) --begin;
  while (end < text.size() && !ends(end)) ++end;
  std::size_t from = pieces.size(), to = 0;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (begins[i] + pieces[i].size() > begin && begins[i] < end) {
      from = std::min(from, i);
      to = i + 1;
    }
  }
  return {from, to};
}

struct KeptMethod {
  std::string name, answer;
  double score = 0;
  std::vector<std::string> kept;
  bool fits = true;
  std::string failure;  ///< why there is no answer; nothing was kept then

  bool answered() const { return !kept.empty(); }
};

KeptMethod method_from(const Json& json) {
  KeptMethod out;
  json.at("name").get_to(out.name);
  out.fits = json.value("fits", true);
  out.failure = json.value("failure", "");
  if (json.contains("failure")) return out;
  json.at("answer").get_to(out.answer);
  json.at("score").get_to(out.score);
  json.at("kept").get_to(out.kept);
  return out;
}

/// With no other addresses than data URLs: a page fetches nothing.
Json pictures_from(const Json& json, std::size_t tokens) {
  Json out = to_json(placed_pictures(json, tokens));
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::string data = json[i].value("data", "");
    if (data.starts_with("data:image/")) out[i]["data"] = data;
  }
  return out;
}

/// Of the tokens [begin, end), the share that is kept, over all heads.
double kept_share(const KeptMethod& method, std::size_t begin, std::size_t end) {
  std::size_t count = 0;
  for (const std::string& digits : method.kept) {
    for (std::size_t i = begin; i < end; ++i) count += held(digits, i);
  }
  const std::size_t all = method.kept.size() * (end - begin);
  return all == 0 ? 0 : static_cast<double>(count) / static_cast<double>(all);
}

std::string strip_svg(const KeptMethod& method, std::size_t tokens,
                      std::pair<std::size_t, std::size_t> place) {
  constexpr std::size_t kBins = 200;
  const std::size_t bins = std::min(kBins, tokens);
  std::string out = fmt::format(
      "<svg viewBox=\"0 0 {} 14\" preserveAspectRatio=\"none\" role=\"img\" "
      "aria-label=\"{}\">",
      bins, escape_html(method.name));
  std::size_t begin = 0;
  std::string shade;
  const auto draw = [&](std::size_t end) {
    if (!shade.empty() && shade != "0.00") {
      out += fmt::format("<rect x=\"{}\" width=\"{}\" height=\"14\" opacity=\"{}\"/>", begin,
                         end - begin, shade);
    }
    begin = end;
  };
  for (std::size_t b = 0; b < bins; ++b) {
    const std::string next =
        fmt::format("{:.2f}", kept_share(method, b * tokens / bins, (b + 1) * tokens / bins));
    if (next != shade) draw(b);
    shade = next;
  }
  draw(bins);
  if (place.second > place.first) {
    const double scale = static_cast<double>(bins) / static_cast<double>(tokens);
    out +=
        fmt::format("<rect class=\"place\" x=\"{:.2f}\" y=\"1\" width=\"{:.2f}\" height=\"12\"/>",
                    static_cast<double>(place.first) * scale,
                    std::max(1.0, static_cast<double>(place.second - place.first) * scale));
  }
  return out + "</svg>";
}

/// The method's name, its strip, and how much of the answer's place it kept.
std::string row_html(const KeptMethod& method, std::size_t tokens,
                     std::pair<std::size_t, std::size_t> place) {
  const std::string name = escape_html(method.name);
  if (!method.answered()) {
    return fmt::format("<div title=\"{}\"><span>{}</span><span class=\"quiet\">{}</span></div>\n",
                       escape_html(method.failure), name,
                       method.fits ? "no answer" : "does not fit");
  }
  const bool right = method.score >= 1;
  return fmt::format(
      "<div><span>{}</span>{}<span{}>{}{}</span></div>\n", name, strip_svg(method, tokens, place),
      right ? "" : " class=\"lost\"",
      place.second > place.first
          ? format_percent(kept_share(method, place.first, place.second)) + " of it, "
          : "",
      right ? "right" : "wrong");
}

/// Of two methods of one size, the one that kept the place and answered right with least, and the
/// one that kept least of it and answered wrong; what there is of the two, else of any size.
std::pair<std::optional<std::size_t>, std::optional<std::size_t>> contrast(
    const std::vector<KeptMethod>& methods, std::size_t tokens,
    std::pair<std::size_t, std::size_t> place) {
  const auto size_of = [](const KeptMethod& method) {
    return method.name.substr(std::min(method.name.find(' '), method.name.size()));
  };
  std::optional<std::size_t> keeper, loser;
  double least = 0.99;  // types of storage keep all
  for (std::size_t m = 0; m < methods.size(); ++m) {
    const double all = kept_share(methods[m], 0, tokens);
    if (methods[m].score < 1 || all >= least) continue;
    keeper = m;
    least = all;
  }
  for (const bool same_size : {true, false}) {
    least = 0.99;
    for (std::size_t m = 0; m < methods.size() && (same_size || !loser); ++m) {
      const double here = kept_share(methods[m], place.first, place.second);
      if (!methods[m].answered() || methods[m].score >= 1 || here >= least) continue;
      if (same_size && keeper && size_of(methods[m]) != size_of(methods[*keeper])) continue;
      loser = m;
      least = here;
    }
  }
  return {keeper, loser};
}

constexpr std::size_t kMostHeads = 100'000;  ///< of all layers
constexpr std::string_view kOtherKept =
    "<p class=\"kind\">What was kept is not as ballast writes it.</p>\n";

}  // namespace

std::string_view kept_script() { return kScript; }

std::string kept_html(const Json& kept) {
  std::vector<std::string> pieces;
  std::vector<KeptMethod> methods;
  std::size_t layers = 0, heads = 0;
  Json expected, pictures = Json::array();
  std::string question;
  try {
    kept.at("pieces").get_to(pieces);
    layers = kept.at("layers");
    heads = kept.at("kv_heads");
    expected = kept.at("expected");
    question = kept.at("question");
    question.erase(0, question.find_first_not_of(" \n"));
    question.erase(question.find_last_not_of(" \n") + 1);
    for (const Json& m : kept.at("methods")) methods.push_back(method_from(m));
    if (kept.contains("pictures")) pictures = pictures_from(kept["pictures"], pieces.size());
  } catch (const SortedJson::exception&) {
    return std::string(kOtherKept);
  } catch (const Error&) {
    return std::string(kOtherKept);
  }
  // Digits of each head, one for four pieces: then the page is no larger than the file allows.
  const bool whole = std::ranges::all_of(methods, [&](const KeptMethod& m) {
    if (!m.answered()) return true;
    return heads > 0 && m.kept.size() <= kMostHeads && m.kept.size() / heads == layers &&
           m.kept.size() % heads == 0 &&
           std::ranges::all_of(m.kept, [&](const std::string& digits) {
             return digits.size() == (pieces.size() + 3) / 4;
           });
  });
  if (!whole) return std::string(kOtherKept);
  const auto first = std::ranges::find_if(methods, &KeptMethod::answered);
  if (pieces.empty() || first == methods.end()) return "";
  const auto place = place_of(pieces, expected);
  const std::size_t from = place.first, to = place.second;  // a lambda uses them
  std::string out = fmt::format(
      "<div class=\"kept\">\n<h3>What each method kept of one text of {} tokens</h3>\n"
      "<p>Asked afterwards: “{}”. The outline is where the answer stands; a bar is the text from "
      "left to right, darker where more of the {} KV heads keep it.{}</p>\n<div "
      "class=\"strips\">\n",
      format_count(pieces.size()), escape_html(question.substr(0, 400)), layers * heads,
      pictures.empty() ? "" : " A picture is clear where most of them do, veiled where none does.");
  Json names = Json::array();
  std::string choices;
  const auto [keeper, loser] = contrast(methods, pieces.size(), place);
  const std::size_t chosen =
      loser.value_or(keeper.value_or(static_cast<std::size_t>(first - methods.begin())));
  for (std::size_t m = 0; m < methods.size(); ++m) {
    const KeptMethod& method = methods[m];
    out += row_html(method, pieces.size(), place);
    names.push_back({{"answer", method.answer}, {"kept", method.kept}});
  }
  for (std::size_t m = 0; m < methods.size(); ++m) {
    if (!methods[m].answered()) continue;
    choices += fmt::format("<option value=\"{}\"{}>{}</option>", m, m == chosen ? " selected" : "",
                           escape_html(methods[m].name));
  }
  out += "</div>\n";
  if (keeper && loser) {
    const auto said = [&](std::size_t m, const char* how) {
      return fmt::format(
          "<button type=\"button\" class=\"pick\" value=\"{}\">{}</button> kept {} "
          "of the answer's place and answers {}",
          m, escape_html(methods[m].name), format_percent(kept_share(methods[m], from, to)), how);
    };
    out += fmt::format("<p>{}; {}.</p>\n", said(*keeper, "right"), said(*loser, "wrong"));
  }
  out += fmt::format(
      "<div class=\"choices\"><label>method <select class=\"method\">{}"
      "</select></label>\n<label>heads <select class=\"head\"><option "
      "value=\"all\">all</option>",
      choices);
  for (std::size_t l = 0; l < layers; ++l) {
    for (std::size_t h = 0; h < heads; ++h) {
      out += fmt::format("<option value=\"{}\">layer {}, head {}</option>", l * heads + h, l, h);
    }
  }
  const std::string data = Json{
      {"pieces", pieces},
      {"place", {from, to}},
      {"methods", names},
      {"pictures", pictures}}.dump(-1, ' ', true, Json::error_handler_t::replace);
  out +=
      "</select></label></div>\n<div class=\"textbox\" tabindex=\"0\"></div>\n"
      "<p>Its answer: <b class=\"answer\"></b></p>\n"
      "<noscript><p class=\"kind\">The text is shown by a script.</p></noscript>\n"
      "<script type=\"application/json\">";
  for (const char c : data) {
    if (c == '<') {
      out += "\\u003c";  // no text of it ends the script
    } else {
      out += c;
    }
  }
  return out + "</script>\n</div>\n";
}

}  // namespace ballast
