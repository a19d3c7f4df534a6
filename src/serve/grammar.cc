#include "serve/grammar.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>
#include <utility>

#include "base/fail.h"
#include "base/printable.h"

namespace ballast::serve {
namespace {

constexpr std::size_t kMostText = 64 << 10, kMostParts = 20'000, kMostStates = 32'768;
constexpr std::size_t kMostWork = 3'000'000, kMostDepth = 512, kMostRepeats = 1'000;
constexpr int kMostGroups = 64;
constexpr std::uint32_t kLastCharacter = 0x10FFFF;

using Range = std::pair<std::uint32_t, std::uint32_t>;  ///< characters, both included

/// A part of a rule.
struct Part {
  enum class Kind : std::uint8_t { characters, rule, sequence, alternatives, repeat };
  Kind kind = Kind::sequence;
  std::vector<Range> ranges = {};
  std::uint32_t rule = 0;
  std::vector<Part> parts = {};
  std::size_t least = 0, most = 0;  ///< of a repeat; above kMostRepeats: any number
};

bool name_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_';
}

std::string utf8(std::uint32_t c) {
  const auto byte = [](std::uint32_t x) { return static_cast<char>(x); };
  if (c < 0x80) return {byte(c)};
  if (c < 0x800) return {byte(0xC0 | c >> 6), byte(0x80 | (c & 0x3F))};
  if (c < 0x10000)
    return {byte(0xE0 | c >> 12), byte(0x80 | (c >> 6 & 0x3F)), byte(0x80 | (c & 0x3F))};
  return {byte(0xF0 | c >> 18), byte(0x80 | (c >> 12 & 0x3F)), byte(0x80 | (c >> 6 & 0x3F)),
          byte(0x80 | (c & 0x3F))};
}

/// Calls use(first, last) with the UTF-8 of ranges that make up [low, high], such that each byte of
/// a character lies between those of the two, independently of the others.
template <typename Use>
void split(std::uint32_t low, std::uint32_t high, const Use& use) {
  for (const std::uint32_t last : {0x7Fu, 0x7FFu, 0xFFFFu}) {  // of one length
    if (low <= last && high > last) {
      split(low, last, use);
      return split(last + 1, high, use);
    }
  }
  if (low <= 0xD7FF && high >= 0xD800) {  // halves of pairs are no characters
    split(low, 0xD7FF, use);
    if (high > 0xDFFF) split(0xE000, high, use);
    return;
  }
  if (low >= 0xD800 && low <= 0xDFFF) {
    if (high > 0xDFFF) split(0xE000, high, use);
    return;
  }
  const std::size_t length = utf8(low).size();
  for (std::size_t i = 1; i < length; ++i) {
    const std::uint32_t rest = (1u << 6 * i) - 1;
    if ((low & ~rest) == (high & ~rest)) continue;
    if ((low & rest) != 0) {
      split(low, low | rest, use);
      return split((low | rest) + 1, high, use);
    }
    if ((high & rest) != rest) {
      split(low, (high & ~rest) - 1, use);
      return split(high & ~rest, high, use);
    }
  }
  use(utf8(low), utf8(high));
}

/// Reads the text of a grammar.
class Parser {
 public:
  explicit Parser(std::string_view text) : all_(text), rest_(text) {}

  std::vector<std::optional<Part>> rules;  ///< root first
  std::vector<std::string> names;

  void parse() {
    find_rule("root");
    skip();
    while (!rest_.empty()) {
      const std::string name = take_name();
      skip();
      if (!take("::=")) refuse("expected ::=");
      const std::uint32_t rule = find_rule(name);
      if (rules[rule]) refuse(fmt::format("{} has a rule already", printable(name)));
      Part part = alternatives();
      rules[rule] = std::move(part);
    }
    for (std::size_t i = 0; i < rules.size(); ++i) {
      require(rules[i].has_value(), "grammar: {} has no rule; add: {} ::= …", printable(names[i]),
              printable(names[i]));
    }
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    const std::string_view before = all_.substr(0, all_.size() - rest_.size());
    fail("grammar, line {}: {} at '{}'", std::ranges::count(before, '\n') + 1, why,
         printable(rest_.substr(0, std::min<std::size_t>(rest_.find('\n'), 40))));
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
  std::uint32_t find_rule(const std::string& name) {
    const auto at = std::ranges::find(names, name);
    const auto index = static_cast<std::uint32_t>(at - names.begin());
    if (at == names.end()) {
      names.push_back(name);
      rules.emplace_back();
    }
    return index;
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

  Part alternatives() {
    Part out{.kind = Part::Kind::alternatives};
    do {
      out.parts.push_back(sequence());
    } while (take("|"));
    return out;
  }

  Part sequence() {
    Part out;
    for (skip(); !rest_.empty() && rest_[0] != '|' && rest_[0] != ')' && !at_rule(); skip()) {
      count_part();
      Part part = atom();
      if (repeat(part)) count_part();
      out.parts.push_back(std::move(part));
    }
    return out;
  }

  /// Whether a repetition follows, which `part` then is.
  bool repeat(Part& part) {
    const std::string_view before = rest_;
    skip();
    Part out{.kind = Part::Kind::repeat, .most = kMostRepeats + 1};
    if (take("*")) {
    } else if (take("+")) {
      out.least = 1;
    } else if (take("?")) {
      out.most = 1;
    } else if (take("{")) {
      out.least = out.most = number();
      if (take(",")) out.most = rest_.starts_with('}') ? kMostRepeats + 1 : number();
      if (!take("}") || out.most < out.least) refuse("expected {m}, {m,} or {m,n}");
    } else {
      rest_ = before;
      return false;
    }
    out.parts.push_back(std::move(part));
    part = std::move(out);
    return true;
  }
  std::size_t number() {
    std::size_t value = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error != std::errc() || value > kMostRepeats) {
      refuse(fmt::format("expected a number up to {}", kMostRepeats));
    }
    rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    return value;
  }

  Part atom() {
    if (take("(")) {
      if (++depth_ > kMostGroups) refuse(fmt::format("groups nest deeper than {}", kMostGroups));
      Part out = alternatives();
      --depth_;
      if (!take(")")) refuse("expected )");
      return out;
    }
    if (take("\"")) {
      Part out;
      while (!take("\"")) {
        count_part();
        const std::uint32_t c = character();
        out.parts.push_back({.kind = Part::Kind::characters, .ranges = {{c, c}}});
      }
      return out;
    }
    if (take("[")) return characters();
    if (take(".")) return {.kind = Part::Kind::characters, .ranges = {{0, kLastCharacter}}};
    return {.kind = Part::Kind::rule, .rule = find_rule(take_name())};
  }

  Part characters() {
    const bool inverse = take("^");
    std::vector<Range> ranges;
    while (!take("]")) {
      const std::uint32_t first = character();
      std::uint32_t last = first;
      if (rest_.starts_with('-') && !rest_.starts_with("-]")) {
        take("-");
        last = character();
        if (last < first) refuse("a range ends before it begins");
      }
      ranges.emplace_back(first, last);
    }
    if (!inverse) return {.kind = Part::Kind::characters, .ranges = std::move(ranges)};
    std::ranges::sort(ranges);
    Part out{.kind = Part::Kind::characters};
    std::uint32_t from = 0;
    for (const auto& [first, last] : ranges) {
      if (first > from) out.ranges.emplace_back(from, first - 1);
      from = std::max(from, last + 1);
    }
    if (from <= kLastCharacter) out.ranges.emplace_back(from, kLastCharacter);
    return out;
  }

  /// A character of a literal or a class, or an escape.
  std::uint32_t character() {
    if (rest_.empty() || rest_[0] == '\n') refuse("a literal or class has no end");
    if (!take("\\")) {
      const auto first = static_cast<unsigned char>(rest_[0]);
      const std::size_t length = first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
      std::uint32_t c = length == 1 ? first : first & (0xFFu >> (length + 1));
      for (std::size_t i = 1; i < length && i < rest_.size(); ++i) {
        c = c << 6 | (static_cast<unsigned char>(rest_[i]) & 0x3Fu);
      }
      if (length > rest_.size() || utf8(c) != rest_.substr(0, length)) refuse("no UTF-8");
      rest_.remove_prefix(length);
      return c;
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
      if (c == name) return static_cast<std::uint32_t>(value);
    }
    const std::size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    std::uint32_t value = 0;
    const auto [end, error] =
        std::from_chars(rest_.data(), rest_.data() + std::min(digits, rest_.size()), value, 16);
    if (digits == 0 || error != std::errc() || end != rest_.data() + digits ||
        value > kLastCharacter) {
      refuse("an unknown escape");
    }
    rest_.remove_prefix(digits);
    return value;
  }

  std::string_view all_, rest_;
  std::size_t parts_ = 0;
  int depth_ = 0;
};

}  // namespace

/// Turns parts into items.
class Grammar::Builder {
 public:
  Builder(Grammar& grammar, std::vector<std::string> names)
      : g_(grammar), names_(std::move(names)) {}

  void build(const std::vector<std::optional<Part>>& rules) {
    g_.rules_.resize(rules.size());
    for (std::size_t i = 0; i < rules.size(); ++i) fill(static_cast<std::uint32_t>(i), *rules[i]);
    refuse_left_recursion();
  }

 private:
  using Items = std::vector<Item>;

  std::uint32_t new_rule() {
    g_.rules_.emplace_back();
    return static_cast<std::uint32_t>(g_.rules_.size() - 1);
  }
  void add_alternative(std::uint32_t rule, const Items& items) {
    require(g_.items_.size() + items.size() < 16 * kMostParts,
            "grammar: repetitions make more than {} parts", 16 * kMostParts);
    g_.rules_[rule].push_back(static_cast<std::uint32_t>(g_.items_.size()));
    g_.items_.insert(g_.items_.end(), items.begin(), items.end());
    g_.items_.emplace_back();
  }
  void fill(std::uint32_t rule, const Part& part) {
    if (part.kind == Part::Kind::alternatives) {
      for (const Part& one : part.parts) {
        Items items;
        append(one, items);
        add_alternative(rule, items);
      }
      return;
    }
    Items items;
    append(part, items);
    add_alternative(rule, items);
  }
  static Item of_rule(std::uint32_t rule) { return {.kind = Item::Kind::rule, .rule = rule}; }
  static Item of_bytes(char low, char high) {
    return {.kind = Item::Kind::bytes,
            .low = static_cast<std::uint8_t>(low),
            .high = static_cast<std::uint8_t>(high)};
  }

  void append(const Part& part, Items& out) {
    switch (part.kind) {
      case Part::Kind::sequence:
        for (const Part& one : part.parts) append(one, out);
        return;
      case Part::Kind::rule:
        out.push_back(of_rule(part.rule));
        return;
      case Part::Kind::alternatives: {
        const std::uint32_t rule = new_rule();
        fill(rule, part);
        out.push_back(of_rule(rule));
        return;
      }
      case Part::Kind::characters:
        return append_characters(part.ranges, out);
      case Part::Kind::repeat:
        return append_repeat(part, out);
    }
  }
  void append_characters(const std::vector<Range>& ranges, Items& out) {
    std::vector<Items> ways;
    for (const auto& [first, last] : ranges) {
      split(first, last, [&](const std::string& low, const std::string& high) {
        Items& way = ways.emplace_back();
        for (std::size_t i = 0; i < low.size(); ++i) way.push_back(of_bytes(low[i], high[i]));
      });
    }
    if (ways.size() == 1) {
      out.insert(out.end(), ways[0].begin(), ways[0].end());
      return;
    }
    const std::uint32_t rule = new_rule();
    for (const Items& way : ways) add_alternative(rule, way);
    out.push_back(of_rule(rule));
  }
  void append_repeat(const Part& part, Items& out) {
    const std::uint32_t one = new_rule();
    fill(one, part.parts[0]);
    out.insert(out.end(), part.least, of_rule(one));
    if (part.most > kMostRepeats) {
      const std::uint32_t more = new_rule();  // more ::= one more | ""
      add_alternative(more, {of_rule(one), of_rule(more)});
      add_alternative(more, {});
      out.push_back(of_rule(more));
      return;
    }
    std::optional<std::uint32_t> rest;  // of optional ones in each other, the innermost first
    for (std::size_t i = part.least; i < part.most; ++i) {
      const std::uint32_t rule = new_rule();
      Items items{of_rule(one)};
      if (rest) items.push_back(of_rule(*rest));
      add_alternative(rule, items);
      add_alternative(rule, {});
      rest = rule;
    }
    if (rest) out.push_back(of_rule(*rest));
  }

  /// A rule that begins with itself would be expanded for ever.
  void refuse_left_recursion() const {
    const std::size_t count = g_.rules_.size();
    std::vector<bool> empty(count);  // whether a text of it may be
    for (bool changed = true; changed;) {
      changed = false;
      for (std::size_t r = 0; r < count; ++r) {
        for (std::uint32_t at : g_.rules_[r]) {
          while (g_.items_[at].kind == Item::Kind::rule && empty[g_.items_[at].rule]) ++at;
          if (empty[r] || g_.items_[at].kind != Item::Kind::end) continue;
          empty[r] = changed = true;
        }
      }
    }
    enum : std::uint8_t { unseen, open, closed };
    std::vector<std::uint8_t> seen(count, unseen);
    std::vector<std::pair<std::uint32_t, std::vector<std::uint32_t>>> path;
    const auto begins_with = [&](std::uint32_t r) {
      std::vector<std::uint32_t> out;
      for (std::uint32_t at : g_.rules_[r]) {
        for (; g_.items_[at].kind == Item::Kind::rule; ++at) {
          out.push_back(g_.items_[at].rule);
          if (!empty[out.back()]) break;
        }
      }
      return out;
    };
    for (std::uint32_t root = 0; root < count; ++root) {
      if (seen[root] != unseen) continue;
      seen[root] = open;
      path.emplace_back(root, begins_with(root));
      while (!path.empty()) {
        auto& [rule, next] = path.back();
        if (next.empty()) {
          seen[rule] = closed;
          path.pop_back();
          continue;
        }
        const std::uint32_t to = next.back();
        next.pop_back();
        if (seen[to] == open) {
          std::string name = "a repetition of what may be empty";
          for (const auto& [on, rest] : path) {
            if (on < names_.size()) name = printable(names_[on]);
          }
          fail("grammar: {} begins with itself; let it begin with something else", name);
        }
        if (seen[to] == unseen) {
          seen[to] = open;
          path.emplace_back(to, begins_with(to));
        }
      }
    }
  }

  Grammar& g_;
  std::vector<std::string> names_;
};

Grammar::Grammar(std::string_view gbnf) {
  require(gbnf.size() <= kMostText, "grammar: {} bytes, at most {} are taken", gbnf.size(),
          kMostText);
  Parser parser(gbnf);
  parser.parse();
  Builder(*this, parser.names).build(parser.rules);
  states_.emplace_back();
  std::vector<Stack> stacks;
  for (const std::uint32_t item : rules_[0]) push(stacks.emplace_back(), item);
  state_of(expand(std::move(stacks)));
}

void Grammar::push(Stack& stack, std::uint32_t item) const {
  if (items_[item].kind != Item::Kind::end) stack.push_back(item);
}

std::vector<Grammar::Stack> Grammar::expand(std::vector<Stack> open) {
  std::vector<Stack> out;
  std::set<Stack> seen;
  while (!open.empty()) {
    Stack stack = std::move(open.back());
    open.pop_back();
    work_ += stack.size() + 1;
    require(work_ <= kMostWork, "grammar: it can be understood in too many ways; make it simpler");
    if (stack.size() > kMostDepth || !seen.insert(stack).second) continue;
    if (stack.empty() || items_[stack.back()].kind == Item::Kind::bytes) {
      out.push_back(std::move(stack));
      continue;
    }
    const std::uint32_t item = stack.back();
    stack.pop_back();
    push(stack, item + 1);
    for (const std::uint32_t first : rules_[items_[item].rule]) {
      push(open.emplace_back(stack), first);
    }
  }
  return out;
}

Grammar::State Grammar::state_of(std::vector<Stack> stacks) {
  if (stacks.empty()) return kDead;
  std::ranges::sort(stacks);
  const auto [at, fresh] =
      known_.try_emplace(std::move(stacks), static_cast<State>(states_.size()));
  if (fresh) {
    require(states_.size() < kMostStates,
            "grammar: the answer needs more than {} states; make it simpler", kMostStates);
    StateInfo info{.stacks = &at->first};
    info.accepts = at->first.front().empty();
    info.ends = info.accepts && at->first.size() == 1;
    states_.push_back(std::move(info));
  }
  return at->second;
}

Grammar::State Grammar::next(State state, char byte) {
  if (state == kDead) return kDead;
  const auto b = static_cast<std::uint8_t>(byte);
  if (!states_[state].next) {
    states_[state].next = std::make_unique<std::array<State, 256>>();
    states_[state].next->fill(kUnknown);
  }
  if (const State known = (*states_[state].next)[b]; known != kUnknown) return known;
  std::vector<Stack> stacks;
  for (const Stack& stack : *states_[state].stacks) {
    if (stack.empty()) continue;
    const Item& item = items_[stack.back()];
    if (b < item.low || b > item.high) continue;
    push(stacks.emplace_back(stack.begin(), stack.end() - 1), stack.back() + 1);
  }
  const State out = state_of(expand(std::move(stacks)));
  (*states_[state].next)[b] = out;
  return out;
}

}  // namespace ballast::serve
