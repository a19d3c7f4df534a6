#include "serve/pattern.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <string>

#include "base/fail.h"
#include "base/printable.h"

namespace ballast::serve {
namespace {

using Set = Pattern::Set;

constexpr std::size_t kStates = 4096, kPieces = 20'000, kWork = 50'000'000;
constexpr std::size_t kRepeats = 1000;
constexpr int kDepth = 64;

/// A part of an expression.
struct Part {
  enum class Kind : std::uint8_t { set, sequence, alternatives, repeat } kind = Kind::sequence;
  Set set = {};
  std::vector<std::size_t> parts = {};
  std::size_t least = 0, most = Pattern::kNoLimit;  ///< of a repeat
  bool ends = false;  ///< any text may follow: the expression has matched
};

/// Characters that texts may have.
Set every() {
  Set out;
  for (std::size_t c = 0x20; c < Pattern::kSymbols; ++c) out.set(c);
  return out.reset('"').reset('\\');
}

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
  explicit Parser(std::string_view text) : all_(text), rest_(text) {}

  std::vector<Part> parts;

  /// The whole expression.
  std::size_t parse() {
    Part out{.kind = Part::Kind::alternatives};
    do {
      Part branch;
      if (!take('^')) branch.parts.push_back(anything());
      branch.parts.push_back(sequence());
      if (!take('$')) {
        branch.parts.push_back(anything());
        parts.back().ends = true;
      }
      out.parts.push_back(add(std::move(branch)));
    } while (take('|'));
    if (!rest_.empty()) refuse_rest();
    return add(std::move(out));
  }

 private:
  std::size_t add(Part part) {
    require(parts.size() < kPieces, "the expression is too long");
    parts.push_back(std::move(part));
    return parts.size() - 1;
  }
  std::size_t add_set(const Set& set) { return add({.kind = Part::Kind::set, .set = set}); }
  std::size_t anything() { return add({.kind = Part::Kind::repeat, .parts = {add_set(every())}}); }
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
    if (take(',')) out.most = rest_.starts_with('}') ? Pattern::kNoLimit : number();
    if (!take('}') || out.most < out.least) {
      rest_ = before;
      refuse_rest();
    }
  }

  std::size_t atom() {
    if (rest_[0] == '(') return group();
    if (rest_[0] == '[') return add_set(character_class());
    if (take('.')) return add_set(every());
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
    return Set().set(c < 0x80 ? c : Pattern::kOther);
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
        return Set().set(std::min<std::size_t>(code, Pattern::kOther));
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
  int depth_ = 0;
};

/// The states of Thompson's construction.
class Machine {
 public:
  struct Node {
    Set set = {};  ///< characters that lead to `to`
    std::size_t to = 0;
    std::vector<std::size_t> empty = {};  ///< that are reached without one
  };
  std::vector<Node> nodes;

  explicit Machine(const std::vector<Part>& parts) : parts_(parts) {}

  std::size_t add() {
    require(nodes.size() < kPieces, "the expression is too long");
    nodes.emplace_back();
    return nodes.size() - 1;
  }
  /// Adds a part behind a node; returns the node behind it.
  std::size_t build(std::size_t index, std::size_t from) {
    const Part& part = parts_[index];
    switch (part.kind) {
      case Part::Kind::set: {
        const std::size_t at = link(from), to = add();
        nodes[at].set = part.set;
        nodes[at].to = to;
        return to;
      }
      case Part::Kind::sequence:
        for (std::size_t one : part.parts) from = build(one, from);
        return from;
      case Part::Kind::alternatives: {
        const std::size_t to = add();
        for (std::size_t one : part.parts) nodes[build(one, link(from))].empty.push_back(to);
        return to;
      }
      case Part::Kind::repeat:
        break;
    }
    for (std::size_t i = 0; i < part.least; ++i) from = build(part.parts[0], from);
    if (part.most == Pattern::kNoLimit) {
      const std::size_t loop = link(from);
      nodes[build(part.parts[0], loop)].empty.push_back(loop);
      if (part.ends) ends_.push_back(loop);
      return loop;
    }
    const std::size_t to = add();
    nodes[from].empty.push_back(to);
    for (std::size_t i = part.least; i < part.most; ++i) {
      from = build(part.parts[0], from);
      nodes[from].empty.push_back(to);
    }
    return to;
  }
  /// All nodes that are reached without a character, sorted.
  std::vector<std::size_t> closed(std::vector<std::size_t> open, bool all = false) const {
    std::vector<std::size_t> out;
    std::vector<bool> seen(nodes.size());
    while (!open.empty()) {
      const std::size_t one = open.back();
      open.pop_back();
      if (seen[one]) continue;
      seen[one] = true;
      out.push_back(one);
      open.insert(open.end(), nodes[one].empty.begin(), nodes[one].empty.end());
    }
    std::ranges::sort(out);
    // Where any text may follow, the rest of the nodes changes nothing.
    for (const std::size_t end : ends_) {
      if (!all && seen[end]) return closed({end}, true);
    }
    return out;
  }

 private:
  std::size_t link(std::size_t from) {
    const std::size_t to = add();
    nodes[from].empty.push_back(to);
    return to;
  }

  const std::vector<Part>& parts_;
  std::vector<std::size_t> ends_;
};

}  // namespace

Pattern::Pattern(std::string_view expression, std::size_t least, std::size_t most) {
  Parser parser(expression);
  const std::size_t root = parser.parse();
  Machine machine(parser.parts);
  const std::size_t end = machine.build(root, machine.add());
  const std::size_t cap = most != kNoLimit ? most : least;

  // Sets of nodes, with the characters so far as far as they matter.
  using Key = std::pair<std::vector<std::size_t>, std::size_t>;
  std::map<Key, State> states;
  std::vector<const Key*> keys = {nullptr};
  table_.emplace_back();
  accepts_.push_back(false);
  const auto state_of = [&](std::vector<std::size_t> nodes, std::size_t length) {
    nodes = machine.closed(std::move(nodes));
    const auto [at, fresh] = states.try_emplace({std::move(nodes), length}, table_.size());
    if (fresh) {
      require(table_.size() < kStates, "{} and its lengths need more than {} states",
              printable(expression), kStates);
      keys.push_back(&at->first);
      table_.emplace_back();
      accepts_.push_back(length >= least && std::ranges::binary_search(at->first.first, end));
    }
    return at->second;
  };
  state_of({0}, 0);
  const Set possible = every();
  std::vector<std::vector<State>> before(1);
  std::size_t work = 0;
  for (State state = kStart; state < table_.size(); ++state) {
    const auto& [nodes, length] = *keys[state];
    if (most != kNoLimit && length == most) continue;
    // Characters that lead to the same nodes are looked at once.
    std::map<std::vector<std::size_t>, State> known;
    for (std::size_t c = 0; c < kSymbols; ++c) {
      if (!possible[c]) continue;
      std::vector<std::size_t> to;
      for (std::size_t node : nodes) {
        if (machine.nodes[node].set[c]) to.push_back(machine.nodes[node].to);
      }
      work += nodes.size() + to.size();
      require(work < kWork, "{} takes too long to prepare", printable(expression));
      if (to.empty()) continue;
      const auto at = known.find(to);
      table_[state][c] =
          at != known.end() ? at->second : known[to] = state_of(to, std::min(cap, length + 1));
    }
  }

  // States from which no end is reached are dead.
  before.resize(table_.size());
  for (State state = kStart; state < table_.size(); ++state) {
    for (State next : table_[state]) {
      if (before[next].empty() || before[next].back() != state) before[next].push_back(state);
    }
  }
  std::vector<bool> alive(table_.size());
  std::vector<State> open;
  for (State state = kStart; state < table_.size(); ++state) {
    if (accepts_[state]) open.push_back(state);
  }
  while (!open.empty()) {
    const State state = open.back();
    open.pop_back();
    if (alive[state]) continue;
    alive[state] = true;
    open.insert(open.end(), before[state].begin(), before[state].end());
  }
  require(alive[kStart], "no text without quotes and backslashes matches {}",
          printable(expression));
  free_.resize(table_.size());
  for (State state = kStart; state < table_.size(); ++state) {
    bool all = true;
    for (std::size_t c = 0; c < kSymbols; ++c) {
      State& next = table_[state][c];
      if (!alive[next]) next = kDead;
      all = all && (!possible[c] || next == state);
    }
    free_[state] = all;
  }
}

}  // namespace ballast::serve
