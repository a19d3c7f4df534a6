#include "documents/sections.h"

#include <algorithm>
#include <cctype>
#include <limits>

#include "documents/document.h"

namespace ballast {
namespace {

/// A part of the text that is not divided, with the blanks behind it.
struct Piece {
  std::size_t begin = 0, end = 0;
  std::size_t tokens = 0;
  double cost = 0;      ///< of a section that begins here
  std::string heading;  ///< its text, if it is one
};

constexpr double kAtHeading = 0, kAtChild = 0.3, kAtPage = 0.5, kAtParagraph = 0.8, kAtLine = 2,
                 kAtWord = 8;
constexpr std::size_t kLongestHeading = 90;  // bytes

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r\n\f");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r\n\f") + 1 - begin);
}

bool is_rule(std::string_view line) {
  return line.size() > 2 && line.find_first_not_of(line[0]) == std::string_view::npos &&
         std::string_view("=-~*^#").find(line[0]) != std::string_view::npos;
}

/// The heading that a paragraph is: "# Title", a line with a rule below, a short line without an
/// end of a sentence. Empty: it is none.
std::string heading_of(std::string_view paragraph) {
  std::string_view line = trimmed(paragraph);
  const std::size_t end = line.find('\n');
  if (end != std::string_view::npos) {
    const bool marked = line.starts_with('#') && line.find_first_not_of('#') < 7;
    const std::string_view rest = trimmed(line.substr(end));
    if (!marked && !is_rule(rest.substr(0, rest.find('\n')))) return "";
    line = trimmed(line.substr(0, end));
  }
  while (line.starts_with('#')) line.remove_prefix(1);
  line = trimmed(line);
  if (line.empty() || line.size() > kLongestHeading || is_rule(line)) return "";
  if (std::string_view(".,;:!?").find(line.back()) != std::string_view::npos) return "";
  const auto first = static_cast<unsigned char>(line[0]);
  // Of other scripts, too; not a wide blank or a mark of U+00A0 and of U+2000 on.
  const bool other = first >= 0xc3 && first != 0xe2;
  const bool begins = std::isupper(first) != 0 || std::isdigit(first) != 0 || other;
  const bool row = line.find(" | ") != std::string_view::npos || line.find("  ") < line.size();
  return begins && !row ? std::string(line) : "";
}

/// Ends of paragraphs: behind empty lines.
std::vector<std::size_t> ends_of_paragraphs(std::string_view text) {
  std::vector<std::size_t> ends;
  bool blank = false;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size() - 1) + 1;
    const bool empty = is_blank(text.substr(begin, end - begin));
    if (blank && !empty) ends.push_back(begin);
    blank = empty;
    begin = end;
  }
  ends.push_back(text.size());
  return ends;
}

class Pieces {
 public:
  Pieces(std::string_view text, const std::function<std::size_t(std::string_view)>& tokens,
         std::size_t most)
      : text_(text), tokens_(tokens), most_(most) {
    std::size_t begin = 0;
    bool after_heading = false;
    for (const std::size_t end : ends_of_paragraphs(text)) {
      const std::string heading = heading_of(text.substr(begin, end - begin));
      const bool page = part_named(text, begin).has_value();
      double cost = heading.empty() ? kAtParagraph : kAtHeading;
      if (page) cost = kAtPage;
      // A heading stays with what follows it.
      if (after_heading) cost = heading.empty() ? kAtWord : kAtChild;
      after_heading = !heading.empty() || page;
      add(begin, end, cost, heading);
      begin = end;
    }
  }

  std::vector<Piece> take() { return std::move(pieces_); }

 private:
  void add(std::size_t begin, std::size_t end, double cost, const std::string& heading) {
    const std::size_t tokens = tokens_(text_.substr(begin, end - begin));
    if (tokens <= most_ / 4 || end - begin < 2) {
      pieces_.push_back({begin, end, tokens, cost, heading});
      return;
    }
    // At the line or the word that is nearest to the middle.
    const std::size_t middle = begin + (end - begin) / 2;
    std::size_t at = text_.rfind('\n', middle);
    double inner = kAtLine;
    if (at == std::string_view::npos || at + 1 <= begin || at + 1 < begin + (middle - begin) / 2) {
      at = text_.rfind(' ', middle);
      inner = kAtWord;
    }
    if (at == std::string_view::npos || at + 1 <= begin) {
      at = middle;
      while (at > begin + 1 && (static_cast<unsigned char>(text_[at]) & 0xc0) == 0x80) --at;
      --at;
    }
    add(begin, at + 1, cost, heading);
    add(at + 1, end, inner, "");
  }

  std::string_view text_;
  const std::function<std::size_t(std::string_view)>& tokens_;
  std::size_t most_;
  std::vector<Piece> pieces_;
};

/// Where sections begin: the cheapest division.
std::vector<std::size_t> best_begins(const std::vector<Piece>& pieces, const SectionSizes& sizes) {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  const std::size_t n = pieces.size();
  std::vector<double> best(n + 1, kNever);  // of the pieces before
  std::vector<std::size_t> from(n + 1, 0);
  best[0] = 0;
  for (std::size_t end = 1; end <= n; ++end) {
    std::size_t tokens = 0;
    for (std::size_t begin = end; begin-- > 0;) {
      tokens += pieces[begin].tokens;
      if (tokens > sizes.most && begin + 1 < end) break;
      const double off = (static_cast<double>(tokens) - static_cast<double>(sizes.good)) /
                         static_cast<double>(sizes.good);
      const double cost = best[begin] + (begin == 0 ? 0 : pieces[begin].cost) + 1 + 4 * off * off;
      if (cost >= best[end]) continue;
      best[end] = cost;
      from[end] = begin;
    }
  }
  std::vector<std::size_t> begins;
  for (std::size_t end = n; end > 0; end = from[end]) begins.push_back(from[end]);
  std::ranges::reverse(begins);
  return begins;
}

}  // namespace

std::string title_of(std::string_view text) {
  std::size_t begin = std::min(text.find_first_not_of(" \t\r\n\f"), text.size());
  const std::size_t line = text.rfind('\n', begin);
  begin = line == std::string_view::npos ? 0 : line + 1;
  if (part_named(text, begin)) {  // the name of a part and the empty line behind it
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    return title_of(text.substr(end));
  }
  const std::vector<std::size_t> ends = ends_of_paragraphs(text.substr(begin));
  return heading_of(text.substr(begin, ends[0]));
}

std::vector<Section> divide(std::string_view text,
                            const std::function<std::size_t(std::string_view)>& tokens,
                            const SectionSizes& sizes) {
  if (is_blank(text)) return {};
  // A text of few bytes is one section in any case.
  const std::size_t all = text.size() < 16 * sizes.most ? tokens(text) : sizes.most + 1;
  if (all <= sizes.most) return {{0, text.size(), title_of(text), all}};
  const std::vector<Piece> pieces = Pieces(text, tokens, sizes.most).take();
  const std::vector<std::size_t> begins = best_begins(pieces, sizes);
  std::vector<Section> out;
  std::string heading;
  std::size_t next = 0;
  for (std::size_t p = 0; p < pieces.size(); ++p) {
    const bool named = !pieces[p].heading.empty();
    if (named) heading = pieces[p].heading;
    if (next < begins.size() && begins[next] == p) {
      // A page's name may stand before the heading.
      const bool above = p + 1 < pieces.size() && part_named(text, pieces[p].begin);
      const bool own = above && !pieces[p + 1].heading.empty();
      out.push_back({pieces[p].begin, 0, own ? pieces[p + 1].heading : heading, 0});
      ++next;
    }
    out.back().end = pieces[p].end;
    out.back().tokens += pieces[p].tokens;
  }
  return out;
}

}  // namespace ballast
