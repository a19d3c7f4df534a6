#include "text/jinja/lexer.h"

#include <algorithm>
#include <array>

#include "base/fail.h"
#include "text/tokenizer/utf8.h"

namespace ballast::jinja {
namespace {

// A name is hashed wherever it is looked up; those of real templates have less than 40 letters.
constexpr std::size_t kLongestName = 256;

constexpr std::string_view kSpaces = " \t\n\r\f\v";

// The longer ones first.
constexpr std::array<std::string_view, 26> kOperators = {
    "**", "//", "==", "!=", "<=", ">=", "+", "-", "*", "/", "%", "~", "<",
    ">",  "=",  "(",  ")",  "[",  "]",  "{", "}", ",", ".", ":", "|", ";"};

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

std::string with_plain_line_ends(std::string_view source) {
  std::string out;
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out.push_back(source[i]);
    } else {
      out.push_back('\n');
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(with_plain_line_ends(source)) {}

  std::vector<Lexeme> run() {
    while (at_ < source_.size()) {
      const std::size_t open = find_open();
      const std::string_view text = std::string_view(source_).substr(at_, open - at_);
      if (open == std::string::npos) {
        add(Lexeme::Kind::text, std::string(text));
        break;
      }
      const char type = source_[open + 1];
      const char sign = open + 2 < source_.size() ? source_[open + 2] : '\0';
      add(Lexeme::Kind::text, std::string(strip_end(text, type, sign)));
      move_to(open + 2 + (sign == '-' || sign == '+'));
      if (type == '#') {
        read_comment();
      } else if (type == '%' && read_raw()) {
        continue;
      } else {
        add(type == '{' ? Lexeme::Kind::print : Lexeme::Kind::block, "");
        read_inside(type == '{' ? '}' : '%');
      }
    }
    add(Lexeme::Kind::end, "");
    return std::move(out_);
  }

 private:
  std::size_t find_open() const {
    for (std::size_t i = at_; (i = source_.find('{', i)) != std::string::npos; ++i) {
      if (i + 1 < source_.size() &&
          std::string_view("{%#").find(source_[i + 1]) != std::string_view::npos) {
        return i;
      }
    }
    return std::string::npos;
  }

  void add(Lexeme::Kind kind, std::string text) {
    if (kind == Lexeme::Kind::text && text.empty()) return;
    out_.push_back({kind, std::move(text), line_});
  }

  void move_to(std::size_t place) {
    line_ +=
        static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                    source_.begin() + static_cast<std::ptrdiff_t>(place), '\n'));
    at_ = place;
  }

  // Text before an opening: without its last spaces if there is a '-', or if it is the beginning
  // of a line before a block or comment.
  std::string_view strip_end(std::string_view text, char type, char sign) const {
    if (sign == '-') {
      const std::size_t last = text.find_last_not_of(kSpaces);
      return last == std::string_view::npos ? "" : text.substr(0, last + 1);
    }
    if (type == '{' || sign == '+') return text;
    const std::size_t newline = text.rfind('\n');
    if (newline == std::string_view::npos && !line_begins_) return text;
    const std::size_t begin = newline == std::string_view::npos ? 0 : newline + 1;
    const bool blank = text.find_first_not_of(kSpaces, begin) == std::string_view::npos;
    return blank ? text.substr(0, begin) : text;
  }

  // After "}}", "%}" or "#}" at `place`: drops what is to be dropped.
  void close(std::size_t place, char type, char sign) {
    std::size_t next = place + 2;
    if (sign == '-') next = std::min(source_.find_first_not_of(kSpaces, next), source_.size());
    if (type != '}' && sign == '\0' && next < source_.size() && source_[next] == '\n') ++next;
    move_to(next);
    line_begins_ = source_[next - 1] == '\n';
  }

  void read_comment() {
    const std::size_t end = source_.find("#}", at_);
    require(end != std::string::npos, "line {}: a comment without end", line_);
    const char last = end > at_ ? source_[end - 1] : '\0';
    close(end, '#', last == '-' || last == '+' ? last : '\0');
  }

  // {% raw %} ... {% endraw %}
  bool read_raw() {
    const auto word = [&](std::size_t i, std::string_view name, std::size_t& end, char& sign) {
      i = source_.find_first_not_of(kSpaces, i);
      if (i == std::string::npos || source_.compare(i, name.size(), name) != 0) return false;
      i = source_.find_first_not_of(kSpaces, i + name.size());
      if (i == std::string::npos) return false;
      sign = source_[i] == '-' || source_[i] == '+' ? source_[i] : '\0';
      end = i + (sign != '\0');
      return source_.compare(end, 2, "%}") == 0;
    };
    std::size_t end = 0;
    char sign = '\0';
    if (!word(at_, "raw", end, sign)) return false;
    close(end, '%', sign == '\0' ? '+' : sign);  // the line end after "raw" stays
    const int line = line_;
    for (std::size_t i = at_; (i = source_.find("{%", i)) != std::string::npos; i += 2) {
      const char before = i + 2 < source_.size() ? source_[i + 2] : '\0';
      const bool signed_open = before == '-' || before == '+';
      if (!word(i + 2 + signed_open, "endraw", end, sign)) continue;
      const auto text = std::string_view(source_).substr(at_, i - at_);
      add(Lexeme::Kind::text, std::string(strip_end(text, '%', before)));
      close(end, '%', sign);
      return true;
    }
    fail("line {}: 'raw' without 'endraw'", line);
  }

  void read_inside(char closing) {
    int depth = 0;  // of brackets
    const int line = line_;
    while (true) {
      move_to(std::min(source_.find_first_not_of(kSpaces, at_), source_.size()));
      require(at_ < source_.size(), "line {}: '{}' without end", line,
              closing == '}' ? "{{" : "{%");
      const char c = source_[at_];
      const bool is_signed = c == '-' || c == '+';
      const std::size_t end = at_ + is_signed;
      if (depth == 0 && source_.compare(end, 2, {closing, '}'}) == 0) {
        add(Lexeme::Kind::close, "");
        return close(end, closing, is_signed ? c : '\0');
      }
      if (c == '"' || c == '\'') {
        read_string(c);
      } else if (is_digit(c)) {
        read_number();
      } else if (is_letter(c)) {
        std::size_t i = at_;
        while (i < source_.size() && (is_letter(source_[i]) || is_digit(source_[i]))) ++i;
        require(i - at_ <= kLongestName, "line {}: a name of {} letters; at most {} are read",
                line_, i - at_, kLongestName);
        add(Lexeme::Kind::name, source_.substr(at_, i - at_));
        move_to(i);
      } else {
        depth += read_operator();
      }
    }
  }

  // The change of bracket depth.
  int read_operator() {
    for (std::string_view op : kOperators) {
      if (source_.compare(at_, op.size(), op) != 0) continue;
      add(Lexeme::Kind::op, std::string(op));
      move_to(at_ + op.size());
      if (op == "(" || op == "[" || op == "{") return 1;
      return op == ")" || op == "]" || op == "}" ? -1 : 0;
    }
    fail("line {}: unexpected character '{}'", line_,
         source_.substr(at_, next_utf8(source_, at_).length));
  }

  void read_number() {
    std::size_t i = at_;
    const auto digits = [&] {
      while (i < source_.size() && (is_digit(source_[i]) || source_[i] == '_')) ++i;
    };
    const bool has_base = source_[i] == '0' && i + 1 < source_.size() &&
                          std::string_view("xXoObB").find(source_[i + 1]) != std::string_view::npos;
    if (has_base) {
      i += 2;
      while (i < source_.size() && (is_letter(source_[i]) || is_digit(source_[i]))) ++i;
    } else {
      digits();
    }
    Lexeme::Kind kind = Lexeme::Kind::integer;
    const bool is_index = !out_.empty() && out_.back().is_op(".");  // of x.0.1
    if (!is_index && !has_base) kind = read_fraction(i);
    std::string text = source_.substr(at_, i - at_);
    std::erase(text, '_');
    add(kind, std::move(text));
    move_to(i);
  }

  // The fraction and exponent behind an integer that ends at `i`, which moves behind them.
  Lexeme::Kind read_fraction(std::size_t& i) const {
    Lexeme::Kind kind = Lexeme::Kind::integer;
    const auto digits = [&] {
      while (i < source_.size() && (is_digit(source_[i]) || source_[i] == '_')) ++i;
    };
    if (i + 1 < source_.size() && source_[i] == '.' && is_digit(source_[i + 1])) {
      kind = Lexeme::Kind::real;
      ++i;
      digits();
    }
    if (i < source_.size() && (source_[i] == 'e' || source_[i] == 'E')) {
      const std::size_t sign =
          i + 1 < source_.size() && (source_[i + 1] == '+' || source_[i + 1] == '-');
      if (i + 1 + sign < source_.size() && is_digit(source_[i + 1 + sign])) {
        kind = Lexeme::Kind::real;
        i += 1 + sign;
        digits();
      }
    }
    return kind;
  }

  void read_string(char quote) {
    std::string text;
    const int line = line_;
    for (std::size_t i = at_ + 1; i < source_.size(); ++i) {
      if (source_[i] == quote) {
        out_.push_back({Lexeme::Kind::string, std::move(text), line});
        return move_to(i + 1);
      }
      if (source_[i] == '\\' && i + 1 < source_.size()) {
        i = read_escape(i + 1, text);
      } else {
        text.push_back(source_[i]);
      }
    }
    fail("line {}: a string without end", line);
  }

  // Python's escapes; `i` is behind the backslash. Returns the last place read.
  std::size_t read_escape(std::size_t i, std::string& text) const {
    const char c = source_[i];
    constexpr std::string_view kLetters = "abfnrtv0\\'\"";
    constexpr std::string_view kMeanings{"\a\b\f\n\r\t\v\0\\'\"", 11};
    if (const auto at = kLetters.find(c); at != std::string_view::npos) {
      text.push_back(kMeanings[at]);
      return i;
    }
    if (c == '\n') return i;
    const std::size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    char32_t code = 0;
    for (std::size_t k = 1; k <= digits; ++k) {
      const char d = i + k < source_.size() ? source_[i + k] : '\0';
      const auto value = std::string_view("0123456789abcdef")
                             .find(static_cast<char>(d >= 'A' && d <= 'F' ? d + 32 : d));
      require(value != std::string_view::npos, "line {}: a string escape '\\{}' needs {} digits",
              line_, c, digits);
      code = code << 4 | static_cast<char32_t>(value);
    }
    if (digits > 0) {
      require(code < 0x110000 && (code < 0xd800 || code > 0xdfff),
              "line {}: a string escape is not a Unicode character", line_);
      append_utf8(text, code);
    } else {
      text += {'\\', c};
    }
    return i + digits;
  }

  std::string source_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool line_begins_ = true;
  std::vector<Lexeme> out_;
};

}  // namespace

std::vector<Lexeme> cut_into_lexemes(std::string_view source) { return Lexer(source).run(); }

}  // namespace ballast::jinja
