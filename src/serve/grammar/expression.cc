#include "serve/grammar/expression.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>
#include <utility>

#include "base/fail.h"
#include "serve/http/fields.h"
#include "text/tokenizer/utf8.h"

namespace ballast::serve {
namespace {

using Part = Expression::Part;
using icu::UnicodeSet;

constexpr std::size_t kPieces = 20'000, kRepeats = 1000;
constexpr int kDepth = 64;
constexpr UChar32 kLastCharacter = 0x10FFFF;

UnicodeSet every() { return {0, kLastCharacter}; }
UnicodeSet other(UnicodeSet set) { return set.complement(); }
UnicodeSet digits() { return {'0', '9'}; }
UnicodeSet words() { return digits().add('a', 'z').add('A', 'Z').add('_'); }
UnicodeSet line_ends() { return UnicodeSet('\n', '\n').add('\r').add(0x2028, 0x2029); }
/// ECMA-262's WhiteSpace and LineTerminator.
UnicodeSet blanks() {
  return line_ends()
      .add('\t')
      .add('\v')
      .add('\f')
      .add(' ')
      .add(0xA0)
      .add(0xFEFF)
      .add(0x1680)
      .add(0x2000, 0x200A)
      .add(0x202F)
      .add(0x205F)
      .add(0x3000);
}

class Parser {
 public:
  Parser(std::string_view text, bool anywhere, std::vector<Part>& out)
      : all_(text), rest_(text), anywhere_(anywhere), parts_(out) {}

  /// The whole expression.
  std::size_t parse() {
    Part out{.kind = Part::Kind::alternatives};
    do {
      Part branch;
      if (!take('^') && anywhere_) branch.parts.push_back(anything());
      branch.parts.push_back(sequence());
      if (!take('$') && anywhere_) branch.parts.push_back(anything());
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
  std::size_t add_set(const UnicodeSet& set) { return add({.kind = Part::Kind::set, .set = set}); }
  std::size_t anything() { return add({.kind = Part::Kind::repeat, .parts = {add_set(every())}}); }
  bool take(char c) {
    if (!rest_.starts_with(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }
  [[noreturn]] void refuse_rest() const {
    fail("{} is not supported at {}", shown_text(all_), shown_text(rest_));
  }
  UChar32 next() {
    if (rest_.empty()) fail("{} ends within a part", shown_text(all_));
    const Utf8Char c = next_utf8(rest_, 0);
    if (c.state != Utf8Char::State::valid) refuse_rest();
    rest_.remove_prefix(c.length);
    return static_cast<UChar32>(c.code);
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
      std::uint32_t value = 0;
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
    if (take(',')) out.most = rest_.starts_with('}') ? GrammarBuilder::kNoLimit : number();
    if (!take('}') || out.most < out.least) {
      rest_ = before;
      refuse_rest();
    }
  }

  std::size_t atom() {
    if (rest_[0] == '(') return group();
    if (rest_[0] == '[') return add_set(character_class());
    if (take('.')) return add_set(other(line_ends()));
    if (std::string_view("*+?{^").find(rest_[0]) != std::string_view::npos) refuse_rest();
    if (rest_[0] == '\\') return add_set(escaped(false));
    const UChar32 c = next();
    return add_set({c, c});
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

  UnicodeSet character_class() {
    take('[');
    const bool inverse = take('^');
    UnicodeSet out;
    while (!take(']')) {
      const std::string_view before = rest_;
      const UnicodeSet first = class_member();
      out.addAll(first);
      if (!(rest_.starts_with('-') && rest_.size() > 1 && rest_[1] != ']')) continue;
      take('-');
      const UnicodeSet last = class_member();
      if (first.size() == 1 && last.size() == 1) {
        if (first.charAt(0) > last.charAt(0)) {
          rest_ = before;
          refuse_rest();
        }
        out.add(first.charAt(0), last.charAt(0));
      } else {  // [\\w-.]: the characters themselves
        out.add('-').addAll(last);
      }
    }
    return inverse ? other(out) : out;
  }
  UnicodeSet class_member() {
    if (rest_.starts_with('\\')) return escaped(true);
    const UChar32 c = next();
    return {c, c};
  }

  UnicodeSet escaped(bool in_class) {
    const std::string_view before = rest_;
    take('\\');
    const UChar32 c = next();
    switch (c) {
      case 'd':
        return digits();
      case 'D':
        return other(digits());
      case 'w':
        return words();
      case 'W':
        return other(words());
      case 's':
        return blanks();
      case 'S':
        return other(blanks());
      case 'p':
      case 'P':
        if (const auto set = property()) return c == 'p' ? *set : other(*set);
        break;
      case 't':
        return {'\t', '\t'};
      case 'n':
        return {'\n', '\n'};
      case 'r':
        return {'\r', '\r'};
      case 'f':
        return {'\f', '\f'};
      case 'v':
        return {'\v', '\v'};
      case 'b':
        if (in_class) return {'\b', '\b'};
        break;
      case '0':
        if (rest_.empty() || rest_[0] < '0' || rest_[0] > '9') return {0, 0};
        break;
      case 'x':
      case 'u':
        if (const auto code = code_of(c == 'x' ? 2 : 4)) return {*code, *code};
        break;
      default: {
        const bool letter =
            (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!letter) return {c, c};
      }
    }
    rest_ = before;
    refuse_rest();
  }

  std::optional<std::uint32_t> hex(std::size_t length) {
    std::uint32_t code = 0;
    const auto [end, error] =
        std::from_chars(rest_.data(), rest_.data() + std::min(length, rest_.size()), code, 16);
    if (error != std::errc() || end != rest_.data() + length) return std::nullopt;
    rest_.remove_prefix(length);
    return code;
  }
  /// HH, HHHH, {H…}, or two halves of a pair.
  std::optional<UChar32> code_of(std::size_t length) {
    std::optional<std::uint32_t> code;
    if (length == 4 && take('{')) {
      const std::size_t digits = std::min(rest_.find('}'), rest_.size());
      if (digits <= 6) code = hex(digits);
      if (!code || *code > static_cast<std::uint32_t>(kLastCharacter) || !take('}')) return {};
    } else {
      code = hex(length);
    }
    if (!code || *code < 0xD800 || *code > 0xDFFF) return code;
    // Halves of pairs are no characters of their own.
    if (*code > 0xDBFF || !rest_.starts_with("\\u")) return {};
    rest_.remove_prefix(2);
    const auto low = hex(4);
    if (!low || *low < 0xDC00 || *low > 0xDFFF) return {};
    return 0x10000 + ((*code - 0xD800) << 10) + (*low - 0xDC00);
  }
  /// {L}, {Script=Greek}, …
  std::optional<UnicodeSet> property() {
    const std::size_t end = rest_.find('}');
    if (!take('{') || end == std::string_view::npos) return std::nullopt;
    const std::string name(rest_.substr(0, end - 1));
    const bool plain = std::ranges::all_of(name, [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
             c == '_' || c == '=';
    });
    rest_.remove_prefix(end);
    UErrorCode status = U_ZERO_ERROR;
    UnicodeSet out(icu::UnicodeString::fromUTF8("[\\p{" + name + "}]"), status);
    if (!plain || U_FAILURE(status)) return std::nullopt;
    return out;
  }

  std::string_view all_, rest_;
  bool anywhere_;
  std::vector<Part>& parts_;
  int depth_ = 0;
};

/// The least and the most characters of a part's texts; kNoLimit: any number.
std::pair<std::uint64_t, std::uint64_t> lengths(const Expression& e, std::size_t index) {
  constexpr std::uint64_t kMost = GrammarBuilder::kNoLimit;
  const Part& part = e.parts[index];
  if (part.kind == Part::Kind::set) return {1, 1};
  std::uint64_t least = part.kind == Part::Kind::alternatives ? kMost : 0, most = 0;
  for (const std::size_t one : part.parts) {
    const auto [low, high] = lengths(e, one);
    if (part.kind == Part::Kind::alternatives) {
      least = std::min(least, low);
      most = std::max(most, high);
    } else {
      least += low;
      most += high;
    }
  }
  if (part.kind == Part::Kind::repeat) {
    least *= part.least;
    most *= part.most;
  }
  return {std::min(least, kMost), std::min(most, kMost)};
}

}  // namespace

Expression::Expression(std::string_view text, bool anywhere) {
  root = Parser(text, anywhere, parts).parse();
}

Expression Expression::of_length(std::uint32_t least, std::uint32_t most) {
  Expression out;
  out.parts.push_back({.kind = Part::Kind::set, .set = every()});
  out.parts.push_back({.kind = Part::Kind::repeat, .parts = {0}, .least = least, .most = most});
  out.root = 1;
  return out;
}

bool Expression::has_length(std::uint32_t least, std::uint32_t most) const {
  const auto [low, high] = lengths(*this, root);
  return low >= least && high <= most;
}

}  // namespace ballast::serve
