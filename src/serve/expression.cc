#include "serve/expression.h"

#include <algorithm>
#include <charconv>

#include "base/fail.h"
#include "base/printable.h"

namespace ballast::serve {
namespace {

using Set = Expression::Set;
using Part = Expression::Part;

constexpr std::size_t kPieces = 20'000, kRepeats = 1000;
constexpr int kDepth = 64;

Set range(char first, char last) {
  Set out;
  for (char c = first; c <= last; ++c) out.set(static_cast<std::size_t>(c));
  return out;
}

Set digits() { return range('0', '9'); }
Set words() { return digits() | range('a', 'z') | range('A', 'Z') | range('_', '_'); }
Set blanks() {
  Set out;
  for (char c : {' ', '\t', '\n', '\r', '\f', '\v'}) out.set(static_cast<std::size_t>(c));
  return out;
}

class Parser {
 public:
  Parser(std::string_view text, const Set& possible, bool anywhere, std::vector<Part>& out)
      : all_(text), rest_(text), possible_(possible), anywhere_(anywhere), parts_(out) {}

  /// The whole expression.
  std::size_t parse() {
    Part out{.kind = Part::Kind::alternatives};
    do {
      Part branch;
      if (!take('^') && anywhere_) branch.parts.push_back(anything());
      branch.parts.push_back(sequence());
      if (!take('$') && anywhere_) {
        branch.parts.push_back(anything());
        parts_.back().ends = true;
      }
      out.parts.push_back(add(std::move(branch)));
    } while (take('|'));
    if (!rest_.empty()) refuse_rest();
    return add(std::move(out));
  }

 private:
  std::size_t add(Part part) {
    require(parts_.size() < kPieces, "the expression is too long");
    parts_.push_back(std::move(part));
    return parts_.size() - 1;
  }
  std::size_t add_set(const Set& set) { return add({.kind = Part::Kind::set, .set = set}); }
  std::size_t anything() {
    return add({.kind = Part::Kind::repeat, .parts = {add_set(possible_)}});
  }
  bool take(char c) {
    if (!rest_.starts_with(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }
  [[noreturn]] void refuse_rest() const {
    fail("{} is not supported at {}", printable(all_), printable(rest_));
  }
  char next() {
    if (rest_.empty()) fail("{} ends within a part", printable(all_));
    const char c = rest_[0];
    rest_.remove_prefix(1);
    return c;
  }

  std::size_t alternatives() {
    Part out{.kind = Part::Kind::alternatives};
    do {
      out.parts.push_back(sequence());
    } while (take('|'));
    return add(std::move(out));
  }

  std::size_t sequence() {
    Part out;
    while (!rest_.empty() && std::string_view("|)$").find(rest_[0]) == std::string_view::npos) {
      out.parts.push_back(repeated(atom()));
    }
    return add(std::move(out));
  }

  std::size_t repeated(std::size_t part) {
    while (!rest_.empty()) {
      Part out{.kind = Part::Kind::repeat, .parts = {part}};
      if (take('*')) {
      } else if (take('+')) {
        out.least = 1;
      } else if (take('?')) {
        out.most = 1;
      } else if (rest_[0] == '{') {
        counts(out);
      } else {
        return part;
      }
      take('?');  // lazy: the same texts
      part = add(std::move(out));
    }
    return part;
  }

  /// {n}, {n,}, {n,m}
  void counts(Part& out) {
    const std::string_view before = rest_;
    const auto number = [&] {
      std::size_t value = 0;
      const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
      if (error != std::errc() || value > kRepeats) {
        rest_ = before;
        refuse_rest();
      }
      rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
      return value;
    };
    take('{');
    out.least = out.most = number();
    if (take(',')) out.most = rest_.starts_with('}') ? Expression::kNoLimit : number();
    if (!take('}') || out.most < out.least) {
      rest_ = before;
      refuse_rest();
    }
  }

  std::size_t atom() {
    if (rest_[0] == '(') return group();
    if (rest_[0] == '[') return add_set(character_class());
    if (take('.')) return add_set(possible_);
    if (std::string_view("*+?{^").find(rest_[0]) != std::string_view::npos) refuse_rest();
    const bool escape = rest_[0] == '\\';
    Set set;
    if (escape) {
      set = escaped();
    } else {
      const auto c = static_cast<unsigned char>(rest_[0]);
      if (c >= 0x80) refuse_rest();
      set.set(c);
      rest_.remove_prefix(1);
    }
    return add_set(set);
  }

  std::size_t group() {
    const std::string_view before = rest_;
    take('(');
    if (take('?')) {
      if (take('<') && !rest_.starts_with('=') && !rest_.starts_with('!')) {
        rest_.remove_prefix(std::min(rest_.find('>'), rest_.size() - 1) + 1);
      } else if (!take(':')) {
        rest_ = before;
        refuse_rest();
      }
    }
    require(++depth_ <= kDepth, "groups nest deeper than {}", kDepth);
    const std::size_t out = alternatives();
    --depth_;
    if (!take(')')) {
      if (!rest_.empty()) refuse_rest();
      rest_ = before;
      refuse_rest();
    }
    return out;
  }

  Set character_class() {
    take('[');
    const bool inverse = take('^');
    Set out;
    while (!take(']')) {
      const std::string_view before = rest_;
      const Set first = class_member();
      if (!(rest_.starts_with('-') && rest_.size() > 1 && rest_[1] != ']')) {
        out |= first;
        continue;
      }
      take('-');
      const Set last = class_member();
      const bool characters = first.count() == 1 && last.count() == 1;
      if (!characters || lowest(first) > lowest(last)) {
        rest_ = before;
        refuse_rest();
      }
      for (std::size_t c = lowest(first); c <= lowest(last); ++c) out.set(c);
    }
    return inverse ? ~out : out;
  }
  static std::size_t lowest(const Set& set) {
    std::size_t c = 0;
    while (!set[c]) ++c;
    return c;
  }
  Set class_member() {
    if (rest_.starts_with('\\')) return escaped();
    const auto c = static_cast<unsigned char>(next());
    // The other bytes of the character are members like it.
    return Set().set(c < 0x80 ? c : Expression::kOther);
  }

  Set escaped() {
    const std::string_view before = rest_;
    take('\\');
    const char c = next();
    switch (c) {
      case 'd':
        return digits();
      case 'D':
        return ~digits();
      case 'w':
        return words();
      case 'W':
        return ~words();
      case 's':
        return blanks();
      case 'S':
        return ~blanks();
      case 't':
        return Set().set('\t');
      case 'n':
        return Set().set('\n');
      case 'r':
        return Set().set('\r');
      case 'f':
        return Set().set('\f');
      case 'v':
        return Set().set('\v');
      case 'x':
      case 'u': {
        const std::size_t length = c == 'x' ? 2 : 4;
        unsigned code = 0;
        const auto [end, error] =
            std::from_chars(rest_.data(), rest_.data() + std::min(length, rest_.size()), code, 16);
        if (error != std::errc() || end != rest_.data() + length) break;
        rest_.remove_prefix(length);
        return Set().set(std::min<std::size_t>(code, Expression::kOther));
      }
      default: {
        const bool letter =
            (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!letter && static_cast<unsigned char>(c) < 0x80) {
          return Set().set(static_cast<std::size_t>(c));
        }
      }
    }
    rest_ = before;
    refuse_rest();
  }

  std::string_view all_, rest_;
  const Set& possible_;
  bool anywhere_;
  std::vector<Part>& parts_;
  int depth_ = 0;
};

}  // namespace

Expression::Expression(std::string_view text, const Set& possible, bool anywhere) {
  root = Parser(text, possible, anywhere, parts).parse();
}

}  // namespace ballast::serve
