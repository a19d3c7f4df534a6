#include "serve/grammar/gbnf.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "serve/grammar/grammar_builder.h"
#include "serve/http/fields.h"
#include "text/tokenizer/utf8.h"

namespace ballast::serve {
namespace {

using Items = GrammarBuilder::Items;

constexpr std::size_t kMostText = 64 << 10, kMostParts = 20'000, kMostRepeats = 1'000;
constexpr int kMostGroups = 64;
constexpr std::uint16_t kDeepest = 512;
constexpr UChar32 kLastCharacter = 0x10FFFF;

bool name_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_';
}

/// Reads the text of a grammar.
class Parser {
 public:
  explicit Parser(std::string_view text) : all_(text), rest_(text) {}

  std::shared_ptr<const Grammar> parse() {
    const GrammarBuilder::Rule root = find_rule("root");
    skip();
    while (!rest_.empty()) {
      const std::string name = take_name();
      skip();
      if (!take("::=")) refuse("expected ::=");
      const GrammarBuilder::Rule rule = find_rule(name);
      if (!defined_.insert(rule).second) {
        refuse(fmt::format("{} has a rule already", shown_text(name)));
      }
      builder_.define(rule, alternatives());
    }
    std::map<GrammarBuilder::Rule, std::string> names;
    for (const auto& [name, rule] : rules_) {
      require(defined_.contains(rule), "grammar: {} has no rule; add: {} ::= …", shown_text(name),
              shown_text(name));
      names[rule] = name;
    }
    return builder_.finish(builder_.rule(root), names);
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    const std::string_view before = all_.substr(0, all_.size() - rest_.size());
    fail("grammar, line {}: {} at '{}'", std::ranges::count(before, '\n') + 1, why,
         shown_text(rest_.substr(0, std::min<std::size_t>(rest_.find('\n'), 40))));
  }
  bool take(std::string_view text) {
    if (!rest_.starts_with(text)) return false;
    rest_.remove_prefix(text.size());
    return true;
  }
  /// Blanks, lines' ends and comments.
  void skip() {
    while (!rest_.empty()) {
      if (rest_[0] == '#') {
        rest_.remove_prefix(std::min(rest_.find('\n'), rest_.size()));
      } else if (std::string_view(" \t\r\n").find(rest_[0]) != std::string_view::npos) {
        rest_.remove_prefix(1);
      } else {
        return;
      }
    }
  }
  std::string take_name() {
    std::string name;
    while (!rest_.empty() && name_letter(rest_[0])) {
      name += rest_[0];
      rest_.remove_prefix(1);
    }
    if (name.empty()) refuse("expected a name");
    return name;
  }
  GrammarBuilder::Rule find_rule(const std::string& name) {
    const auto [at, fresh] = rules_.try_emplace(name, 0);
    if (fresh) at->second = builder_.declare();
    return at->second;
  }
  /// Whether NAME ::= comes next.
  bool at_rule() {
    const std::string_view before = rest_;
    while (!rest_.empty() && name_letter(rest_[0])) rest_.remove_prefix(1);
    skip();
    const bool out = rest_.size() < before.size() && rest_.starts_with("::=");
    rest_ = before;
    return out;
  }
  void count_part() {
    if (++parts_ > kMostParts) refuse(fmt::format("more than {} parts", kMostParts));
  }

  std::vector<Items> alternatives() {
    std::vector<Items> out;
    do {
      out.push_back(sequence());
    } while (take("|"));
    return out;
  }

  Items sequence() {
    Items out;
    for (skip(); !rest_.empty() && rest_[0] != '|' && rest_[0] != ')' && !at_rule(); skip()) {
      count_part();
      Items part = atom();
      if (repeat(part)) count_part();
      out.insert(out.end(), part.begin(), part.end());
    }
    return out;
  }

  /// Whether a repetition follows, which `part` then is.
  bool repeat(Items& part) {
    const std::string_view before = rest_;
    skip();
    std::uint32_t least = 0, most = Grammar::kNoLimit;
    if (take("*")) {
    } else if (take("+")) {
      least = 1;
    } else if (take("?")) {
      most = 1;
    } else if (take("{")) {
      least = most = number();
      if (take(",")) most = rest_.starts_with('}') ? Grammar::kNoLimit : number();
      if (!take("}") || most < least) refuse("expected {m}, {m,} or {m,n}");
    } else {
      rest_ = before;
      return false;
    }
    part = builder_.repeat(part, least, most);
    return true;
  }
  std::uint32_t number() {
    std::uint32_t value = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error != std::errc() || value > kMostRepeats) {
      refuse(fmt::format("expected a number up to {}", kMostRepeats));
    }
    rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    return value;
  }

  Items atom() {
    if (take("(")) {
      if (++depth_ > kMostGroups) refuse(fmt::format("groups nest deeper than {}", kMostGroups));
      Items out = builder_.either(alternatives());
      --depth_;
      if (!take(")")) refuse("expected )");
      return out;
    }
    if (take("\"")) {
      Items out;
      while (!take("\"")) {
        count_part();
        const UChar32 c = character();
        const Items one = builder_.one_of(icu::UnicodeSet(c, c));
        out.insert(out.end(), one.begin(), one.end());
      }
      return out;
    }
    if (take("[")) return characters();
    if (take(".")) return builder_.one_of(icu::UnicodeSet(0, kLastCharacter));
    return builder_.rule(find_rule(take_name()));
  }

  Items characters() {
    const bool inverse = take("^");
    icu::UnicodeSet set;
    while (!take("]")) {
      const UChar32 first = character();
      UChar32 last = first;
      if (rest_.starts_with('-') && !rest_.starts_with("-]")) {
        take("-");
        last = character();
        if (last < first) refuse("a range ends before it begins");
      }
      set.add(first, last);
    }
    if (inverse) set.complement();
    return builder_.one_of(set);
  }

  /// A character of a literal or a class, or an escape.
  UChar32 character() {
    if (rest_.empty() || rest_[0] == '\n') refuse("a literal or class has no end");
    if (!take("\\")) {
      const Utf8Char c = next_utf8(rest_, 0);
      if (c.state != Utf8Char::State::valid) refuse("no UTF-8");
      rest_.remove_prefix(c.length);
      return static_cast<UChar32>(c.code);
    }
    if (rest_.empty()) refuse("an escape has no end");
    const char c = rest_[0];
    rest_.remove_prefix(1);
    for (const auto& [name, value] : {std::pair{'n', '\n'},
                                      {'r', '\r'},
                                      {'t', '\t'},
                                      {'\\', '\\'},
                                      {'"', '"'},
                                      {'[', '['},
                                      {']', ']'},
                                      {'-', '-'},
                                      {'^', '^'},
                                      {'/', '/'}}) {
      if (c == name) return value;
    }
    const std::size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    std::uint32_t value = 0;
    const auto [end, error] =
        std::from_chars(rest_.data(), rest_.data() + std::min(digits, rest_.size()), value, 16);
    if (digits == 0 || error != std::errc() || end != rest_.data() + digits ||
        value > static_cast<std::uint32_t>(kLastCharacter)) {
      refuse("an unknown escape");
    }
    rest_.remove_prefix(digits);
    return static_cast<UChar32>(value);
  }

  std::string_view all_, rest_;
  GrammarBuilder builder_{kDeepest, 1};
  std::map<std::string, GrammarBuilder::Rule> rules_;  ///< by name
  std::set<GrammarBuilder::Rule> defined_;
  std::size_t parts_ = 0;
  int depth_ = 0;
};

}  // namespace

std::shared_ptr<const Grammar> parse_gbnf(std::string_view text) {
  require(text.size() <= kMostText, "grammar: {} bytes, at most {} are taken", text.size(),
          kMostText);
  return Parser(text).parse();
}

}  // namespace ballast::serve
