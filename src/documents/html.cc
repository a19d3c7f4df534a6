#include "documents/html.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <utility>

namespace ballast {
namespace {

constexpr std::string_view kBlanks = " \t\r\n\f";

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }
bool is_letter(char c) { return lower(c) >= 'a' && lower(c) <= 'z'; }
bool is_name(char c) { return is_letter(c) || (c >= '0' && c <= '9'); }

bool starts_with_word(std::string_view text, std::string_view word) {
  return text.size() >= word.size() && std::equal(word.begin(), word.end(), text.begin(),
                                                  [](char a, char b) { return a == lower(b); });
}

template <std::size_t n>
bool is_among(const std::string& name, const std::array<std::string_view, n>& names) {
  return std::ranges::find(names, name) != names.end();
}

/// Their content is not shown.
constexpr std::array<std::string_view, 6> kHidden = {"script", "style",  "template",
                                                     "svg",    "iframe", "noscript"};
/// A blank line stands around them.
constexpr std::array<std::string_view, 15> kApart = {
    "p",  "h1",    "h2",  "h3",         "h4",      "h5",      "h6",   "ul",
    "ol", "table", "pre", "blockquote", "article", "section", "title"};
/// They begin a line.
constexpr std::array<std::string_view, 18> kLines = {
    "br",   "div",   "li",  "tr",   "dt",     "dd",   "hr",     "header",  "footer",
    "main", "aside", "nav", "body", "figure", "form", "option", "address", "figcaption"};

constexpr std::array<std::pair<std::string_view, std::string_view>, 30> kCharacters = {{
    {"amp", "&"},   {"lt", "<"},    {"gt", ">"},     {"quot", "\""},  {"apos", "'"},
    {"nbsp", " "},  {"shy", ""},    {"ndash", "–"},  {"mdash", "—"},  {"hellip", "…"},
    {"lsquo", "‘"}, {"rsquo", "’"}, {"ldquo", "“"},  {"rdquo", "”"},  {"laquo", "«"},
    {"raquo", "»"}, {"bull", "•"},  {"middot", "·"}, {"copy", "©"},   {"reg", "®"},
    {"trade", "™"}, {"deg", "°"},   {"times", "×"},  {"plusmn", "±"}, {"sect", "§"},
    {"euro", "€"},  {"pound", "£"}, {"eacute", "é"}, {"egrave", "è"}, {"ouml", "ö"},
}};

void append_utf8(std::string& out, std::uint32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xc0 | c >> 6);
    out += static_cast<char>(0x80 | (c & 63));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xe0 | c >> 12);
    out += static_cast<char>(0x80 | (c >> 6 & 63));
    out += static_cast<char>(0x80 | (c & 63));
  } else {
    out += static_cast<char>(0xf0 | c >> 18);
    out += static_cast<char>(0x80 | (c >> 12 & 63));
    out += static_cast<char>(0x80 | (c >> 6 & 63));
    out += static_cast<char>(0x80 | (c & 63));
  }
}

/// The character that "&…;" at the beginning of `text` names, after which `text` goes on; else "&".
std::string character(std::string_view& text) {
  constexpr std::size_t kLongest = 10;
  const std::size_t end = text.substr(0, kLongest).find(';');
  if (end != std::string_view::npos && end > 1) {
    std::string_view name = text.substr(1, end - 1);
    std::string out;
    bool known = false;
    if (name[0] == '#') {
      const bool hex = name.size() > 1 && lower(name[1]) == 'x';
      const std::string_view digits = name.substr(hex ? 2 : 1);
      std::uint32_t code = 0;
      const auto [stop, error] =
          std::from_chars(digits.data(), digits.data() + digits.size(), code, hex ? 16 : 10);
      known = error == std::errc() && stop == digits.data() + digits.size() && code >= 32 &&
              code < 0x110000 && (code < 0xd800 || code > 0xdfff);
      if (known && code == 0xa0) code = ' ';
      if (known) append_utf8(out, code);
    } else {
      for (const auto& [word, value] : kCharacters) {
        if (name != word) continue;
        out = value;
        known = true;
      }
    }
    if (known) {
      text.remove_prefix(end + 1);
      return out;
    }
  }
  text.remove_prefix(1);
  return "&";
}

/// Text with breaks that do not add up.
class Lines {
 public:
  void add(char c) {
    if (!preformatted && kBlanks.find(c) != std::string_view::npos) {
      blank_ = true;
      return;
    }
    put_breaks();
    out_ += c;
  }
  void add(std::string_view text) {
    for (char c : text) add(c);
  }
  /// `lines`: 1 for a new line, 2 for a blank one before.
  void end_line(std::size_t lines) {
    breaks_ = std::max(breaks_, lines);
    blank_ = false;
  }
  bool at_begin() const { return out_.empty() || breaks_ > 0; }
  std::string take() {
    if (!out_.empty()) out_ += '\n';
    return std::move(out_);
  }

  bool preformatted = false;

 private:
  void put_breaks() {
    if (!out_.empty()) {
      while (breaks_ > 0 && out_.ends_with(' ')) out_.pop_back();
      out_.append(breaks_, '\n');
      if (blank_ && breaks_ == 0) out_ += ' ';
    }
    breaks_ = 0;
    blank_ = false;
  }

  std::string out_;
  std::size_t breaks_ = 0;
  bool blank_ = false;
};

/// Finds the next of a character from places that only move forward: in time in proportion to the
/// text, however often it is asked.
class Next {
 public:
  explicit Next(char c) : c_(c) {}
  /// text.size() if there is none. `text`: what is left of the same text each time.
  std::size_t find(std::string_view text, std::size_t from) {
    if (at_ == nullptr || at_ < text.data() + from) {
      at_ = text.data() + std::min(text.find(c_, from), text.size());
    }
    return static_cast<std::size_t>(at_ - text.data());
  }

 private:
  char c_;
  const char* at_ = nullptr;
};

/// The ends of tags of one text.
class Tags {
 public:
  /// Where the tag that begins `text` ends, behind its '>': quotes may hold one, unless they do not
  /// end.
  std::size_t end(std::string_view text) {
    constexpr std::size_t kLongest = 1 << 16;  ///< of a quote
    for (std::size_t i = 1; i < text.size(); ++i) {
      const char c = text[i];
      if (c == '>') return i + 1;
      if ((c != '"' && c != '\'') || text[i - 1] != '=') continue;
      const std::size_t close = (c == '"' ? double_ : single_).find(text, i + 1);
      if (close == text.size() || close - i > kLongest) {
        return std::min(text.find('>', i), text.size() - 1) + 1;
      }
      i = close;
    }
    return text.size();
  }

 private:
  Next double_{'"'}, single_{'\''};
};

/// Leaves out the content of a hidden element, to behind its end.
void skip_hidden(std::string_view& text, const std::string& name) {
  const std::string end = "</" + name;
  std::size_t at = 0;
  while (at < text.size() && !starts_with_word(text.substr(at), end)) {
    at = std::min(text.find('<', at + 1), text.size());
  }
  text.remove_prefix(at);
}

}  // namespace

bool is_html(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
  return starts_with_word(text, "<!doctype html") || starts_with_word(text, "<html");
}

std::string html_to_text(std::string_view html) {
  Lines out;
  Tags tags;
  while (!html.empty()) {
    if (html[0] == '&') {
      out.add(character(html));
      continue;
    }
    const bool closes = html.size() > 2 && html[1] == '/' && is_letter(html[2]);
    const bool tag = html[0] == '<' && html.size() > 1 && (closes || is_letter(html[1]));
    if (html.starts_with("<!--")) {
      const std::size_t end = html.find("-->", 4);
      html.remove_prefix(end == std::string_view::npos ? html.size() : end + 3);
      continue;
    }
    if (html.starts_with("<!") || html.starts_with("<?")) {
      html.remove_prefix(tags.end(html));
      continue;
    }
    if (!tag) {
      out.add(html[0]);
      html.remove_prefix(1);
      continue;
    }
    std::string name;
    for (std::size_t i = closes ? 2 : 1; i < html.size() && is_name(html[i]); ++i) {
      name += lower(html[i]);
    }
    html.remove_prefix(tags.end(html));
    if (!closes && is_among(name, kHidden)) skip_hidden(html, name);
    if (is_among(name, kApart)) out.end_line(2);
    if (is_among(name, kLines)) out.end_line(1);
    if (name == "pre") out.preformatted = !closes;
    if (name == "li" && !closes) out.add("- ");
    if ((name == "td" || name == "th") && !closes && !out.at_begin()) out.add(" | ");
  }
  return out.take();
}

}  // namespace ballast
