#include "documents/html.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <set>
#include <vector>

#include "documents/characters.h"
#include "documents/markup.h"
#include "documents/page_writer.h"

namespace ballast {
namespace {

constexpr std::string_view kBlanks = " \t\r\n\f";
constexpr std::size_t kHead = 4096;  // bytes in which a page says what it is
using Names = std::set<std::string_view>;

/// Their content is raw text, which no one sees.
const Names kUnseen = {"script", "style", "iframe", "noscript", "noembed", "noframes"};
/// Their content is raw text.
const Names kRaw = {"title", "textarea", "xmp"};
/// A blank line stands around them.
const Names kApart = {"p",   "h1",         "h2",      "h3",      "h4",    "h5",
                      "h6",  "ul",         "ol",      "dl",      "menu",  "dir",
                      "pre", "blockquote", "article", "section", "title", "caption"};
/// They begin a line.
const Names kLines = {"div",    "li",     "dt",      "dd",         "hr",      "header",
                      "footer", "main",   "aside",   "nav",        "body",    "figure",
                      "form",   "option", "address", "figcaption", "details", "fieldset",
                      "legend", "center", "summary"};
/// They end a drawing that has no end, as the HTML standard says.
const Names kBreakOut = {"b",    "big",    "blockquote", "body", "br",    "center", "code", "dd",
                         "div",  "dl",     "dt",         "em",   "h1",    "h2",     "h3",   "h4",
                         "h5",   "h6",     "head",       "hr",   "i",     "img",    "li",   "menu",
                         "meta", "nobr",   "ol",         "p",    "pre",   "ruby",   "s",    "small",
                         "span", "strong", "sub",        "sup",  "table", "tt",     "u",    "ul"};

std::string_view without_blanks(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
  return text;
}

bool starts_with_word(std::string_view text, std::string_view word) {
  const auto same = [](char a, char b) {
    return a == b || (a >= 'A' && a <= 'Z' && a - 'A' + 'a' == b);
  };
  return text.size() >= word.size() && std::equal(word.begin(), word.end(), text.begin(),
                                                  [&](char b, char a) { return same(a, b); });
}

/// Whether a tag of this name begins the text.
bool starts_with_tag(std::string_view text, std::string_view name) {
  return text.starts_with('<') && starts_with_word(text.substr(1), name) &&
         text.size() > name.size() + 1 &&
         (text[name.size() + 1] == '>' || kBlanks.find(text[name.size() + 1]) != kBlanks.npos);
}

/// What follows XML declarations and comments. `xml`: whether there is such a declaration.
std::string_view without_prolog(std::string_view text, bool* xml = nullptr) {
  for (;;) {
    text = without_blanks(text);
    std::size_t end = 0;
    if (text.starts_with("<?xml")) {
      end = text.find("?>");
      if (xml != nullptr) *xml = true;
      if (end != std::string_view::npos) end += 2;
    } else if (text.starts_with("<!-->")) {
      end = 5;
    } else if (text.starts_with("<!--")) {
      end = text.find("-->", 4);
      if (end != std::string_view::npos) end += 3;
    } else {
      return text;
    }
    if (end == std::string_view::npos) return {};
    text.remove_prefix(end);
  }
}

class PageReader {
 public:
  PageReader(std::string_view html, bool xml) : in_(html, xml), out_(html.size()) {}

  std::string read() {
    using Kind = MarkupReader::Kind;
    for (Kind kind; (kind = in_.next()) != Kind::none;) {
      if (kind == Kind::text) {
        out_.text(after_pre(in_.characters()));
        continue;
      }
      if (kind == Kind::begin) begin();
      if (kind == Kind::end || closes_itself()) end();
    }
    return out_.take();
  }

 private:
  /// In HTML a tag that ends in "/>" is one that begins, unless it is of a drawing or a formula.
  bool closes_itself() const {
    return in_.closes_itself() && (in_.xml() || name() == "svg" || formula_ > 0);
  }

  /// The first line end in <pre> is none.
  std::string after_pre(std::string text) {
    if (pre_begins_ && text.starts_with('\n')) text.erase(0, 1);
    pre_begins_ = false;
    return text;
  }

  std::size_t number(std::string_view attribute, std::size_t other) const {
    const std::string text = in_.attribute(attribute);
    std::size_t value = other;
    std::from_chars(text.data(), text.data() + text.size(), value);
    return value;
  }

  /// Without the prefix that an XML namespace of what a page shows may have.
  std::string name() const {
    const std::string& whole = in_.name();
    const std::size_t colon = whole.find(':');
    if (colon == std::string::npos || !in_.xml()) return whole;
    static const Names known = {"svg", "html", "xhtml", "h", "m", "mml", "math"};
    return known.contains(std::string_view(whole).substr(0, colon)) ? whole.substr(colon + 1)
                                                                    : whole;
  }

  void begin() {
    const std::string name = this->name();
    if (kUnseen.contains(name)) {
      // An element that has no end hides nothing, but for code.
      const bool open = !in_.raw_content() && !in_.closes_itself();
      if (open && (name == "script" || name == "style")) {
        while (in_.next() != MarkupReader::Kind::none) {
        }
      }
      return;
    }
    if (name == "svg" || name == "template") {
      if (!in_.closes_itself()) skip(name, 1);
      return;
    }
    blocks(name);
    const bool list = name == "ul" || name == "ol";
    if (name == "table") out_.begin_table();
    if (name == "tr") out_.row();
    if (name == "td" || name == "th") {
      const std::size_t rows = number("rowspan", 1);
      out_.cell(number("colspan", 1), rows == 0 ? html_rows : rows);
    }
    if (name == "br") out_.line_break();
    if (name == "pre") {
      ++pre_;
      out_.preformatted = pre_begins_ = true;
    }
    if (list) lists_.push_back(name == "ul" ? kNoNumber : static_cast<long>(number("start", 1)));
    if (name == "li") {
      long* next = lists_.empty() ? nullptr : &lists_.back();
      const bool counted = next != nullptr && *next != kNoNumber;
      if (counted) *next = static_cast<long>(number("value", static_cast<std::size_t>(*next)));
      out_.mark(counted ? fmt::format("{}. ", (*next)++) : "- ");
    }
    if (name == "q") out_.text("“");
    if (name == "sup" || name == "sub") out_.begin_raised(name == "sup");
    if (name == "span") begin_span();
    if (name == "math" || formula_ > 0) begin_formula(name);
    if (kRaw.contains(name)) {
      if (const auto content = in_.raw_content()) {
        const bool before = out_.preformatted;
        out_.preformatted = before || name == "xmp";
        out_.text(name == "xmp" ? std::string(*content) : with_characters(*content));
        out_.preformatted = before;
      }
    }
  }

  void end() {
    const std::string name = this->name();
    if (!drawings_.empty() && (name == "foreignobject" || name == "svg")) return end_foreign(name);
    if (name == "table") out_.end_table();
    if (name == "tr") out_.row();
    if (name == "td" || name == "th") out_.end_cell();
    if (name == "pre" && pre_ > 0) out_.preformatted = --pre_ > 0;
    if ((name == "ul" || name == "ol") && !lists_.empty()) lists_.pop_back();
    if (name == "q") out_.text("”");
    if (name == "sup" || name == "sub") out_.end_raised();
    if (name == "span" && !spans_.empty()) {
      if (spans_.back()) out_.end_raised();
      spans_.pop_back();
    }
    if (formula_ > 0) end_formula(name);
    blocks(name);
  }

  /// Some programs raise letters by their style.
  void begin_span() {
    std::string style = in_.attribute("style");
    std::erase_if(style, [](unsigned char c) { return std::isspace(c) != 0; });
    const bool above = style.find("vertical-align:super") != std::string::npos;
    spans_.push_back(above || style.find("vertical-align:sub") != std::string::npos);
    if (spans_.back()) out_.begin_raised(above);
  }

  void blocks(const std::string& name) {
    // A list in a list goes on with its lines.
    const bool inner = !lists_.empty() && (name == "ul" || name == "ol");
    if (inner) return out_.line();
    if (kApart.contains(name)) out_.paragraph();
    if (kLines.contains(name)) out_.line();
  }

  /// Leaves out a drawing or a template, with those in it, of which `open` are open. Returns, too,
  /// where a drawing shows a part of a page: end_foreign() goes on with it.
  void skip(const std::string& name, std::size_t open) {
    const bool drawing = name == "svg";
    std::size_t html = 0;  // titles of a drawing, which hold HTML
    for (MarkupReader::Kind kind; open > 0 && (kind = in_.next()) != MarkupReader::Kind::none;) {
      if (kind == MarkupReader::Kind::text) continue;
      const bool begins = kind == MarkupReader::Kind::begin;
      const std::string one = this->name();
      if (begins && in_.closes_itself()) continue;
      if (one == name) open += begins ? 1 : static_cast<std::size_t>(-1);
      if (drawing && begins && one == "foreignobject") {
        drawings_.push_back(open);
        out_.line();
        return;
      }
      if (one == "desc" || one == "title") {
        if (begins) ++html;
        if (!begins && html > 0) --html;
      }
      if (begins && one == "script") in_.raw_content();
      if (begins && drawing && html == 0 && !in_.xml() && kBreakOut.contains(one)) {
        begin();
        return;
      }
    }
  }

  /// At the end of a drawing's part of a page, or of the drawing.
  void end_foreign(const std::string& name) {
    const std::size_t open = drawings_.back() - (name == "svg" ? 1 : 0);
    drawings_.pop_back();
    out_.line();
    if (open > 0) skip("svg", open);
  }

  // --- formulas in MathML ---

  void begin_formula(const std::string& name) {
    if (name == "math") ++formula_;
    if (name == "annotation" || name == "annotation-xml") {
      if (!in_.closes_itself()) in_.raw_content();
      return;
    }
    if (!parts_.empty()) {
      Part& within = parts_.back();
      ++within.children;
      const bool second = within.children == 2;
      if (second && (within.name == "msup" || within.name == "msub" || within.name == "msubsup")) {
        out_.begin_raised(within.name == "msup");
        within.raised = true;
      } else if (within.children == 3 && within.name == "msubsup") {
        out_.end_raised();
        out_.begin_raised(true);
      } else if (second && within.name == "mfrac") {
        out_.text("/");
      }
      if (within.name == "mfrac" && name == "mrow") out_.text("(");
    }
    if (name == "msqrt") out_.text("√(");
    if (parts_.size() < kDeepest) parts_.push_back({name, 0, false});
  }

  void end_formula(const std::string& name) {
    // An end tag ends what was begun within its element.
    const auto at = std::ranges::find(parts_.rbegin(), parts_.rend(), name, &Part::name);
    if (at == parts_.rend()) return;
    for (bool last = false; !last;) {
      last = parts_.back().name == name;
      const Part part = parts_.back();
      parts_.pop_back();
      if (part.raised) out_.end_raised();
      const bool in_fraction = !parts_.empty() && parts_.back().name == "mfrac";
      if (part.name == "msqrt" || (part.name == "mrow" && in_fraction)) out_.text(")");
      if (part.name == "math") --formula_;
    }
  }

  struct Part {
    std::string name;
    std::size_t children = 0;
    bool raised = false;
  };
  static constexpr std::size_t html_rows = 65534;  // as many as there are
  static constexpr long kNoNumber = -1;
  static constexpr std::size_t kDeepest = 64;  // elements in a formula

  MarkupReader in_;
  PageWriter out_;
  std::vector<long> lists_;  ///< the next number of each, or none
  std::vector<bool> spans_;  ///< that are open: whether each is raised
  /// Parts of a page in drawings, that are open: how many drawings are around each.
  std::vector<std::size_t> drawings_;
  std::size_t pre_ = 0;
  bool pre_begins_ = false;
  std::size_t formula_ = 0;  ///< how many are open
  std::vector<Part> parts_;  ///< of the formula, open elements
};

}  // namespace

bool is_html(std::string_view text) {
  text = without_prolog(text);
  return starts_with_word(text, "<!doctype html") || starts_with_tag(text, "html");
}

bool may_be_html(std::string_view text) {
  // Those of the MIME Sniffing standard, and some that begin parts of pages.
  constexpr std::string_view kFirst[] = {
      "head",  "script", "iframe", "h1",   "div",     "font",    "table", "a",  "style",
      "title", "b",      "body",   "br",   "p",       "meta",    "link",  "h2", "h3",
      "ul",    "ol",     "span",   "main", "article", "section", "header"};
  const std::string_view rest = without_prolog(text);
  return is_html(text) || std::ranges::any_of(kFirst, [&](std::string_view name) {
           return starts_with_tag(rest, name);
         });
}

std::string declared_encoding(std::string_view html) {
  html = html.substr(0, kHead);
  const auto word_after = [](std::string_view text, std::string_view key) {
    std::string lower(text);
    std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
    std::size_t at = lower.find(key);
    if (at == std::string::npos) return std::string();
    at = std::min(text.find_first_not_of(" \t\r\n\f='\"", at + key.size()), text.size());
    return std::string(text.substr(at, text.find_first_of(" \t\r\n\f;'\"?>", at) - at));
  };
  const std::string_view begin = without_blanks(html);
  if (begin.starts_with("<?xml")) {
    const std::string name = word_after(begin.substr(0, begin.find('>')), "encoding");
    if (!name.empty()) return name;
  }
  MarkupReader in(html, false);
  for (MarkupReader::Kind kind; (kind = in.next()) != MarkupReader::Kind::none;) {
    if (kind != MarkupReader::Kind::begin) continue;
    if (kUnseen.contains(in.name())) in.raw_content();
    if (in.name() != "meta") continue;
    std::string name = in.attribute("charset");
    if (name.empty()) name = word_after(in.attribute("content"), "charset");
    if (!name.empty()) return name;
  }
  return "";
}

std::string html_to_text(std::string_view html) {
  bool xml = false;
  const std::string_view rest = without_prolog(html, &xml);
  const std::string_view head = rest.substr(0, kHead);
  xml = xml || head.find("//DTD XHTML") != std::string_view::npos ||
        head.find("xmlns=\"http://www.w3.org/1999/xhtml\"") != std::string_view::npos;
  return PageReader(html, xml).read();
}

}  // namespace ballast
