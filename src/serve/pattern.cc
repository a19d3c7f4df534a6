#include "serve/pattern.h"

#include <algorithm>
#include <map>
#include <string>

#include "base/fail.h"
#include "base/printable.h"
#include "serve/expression.h"

namespace ballast::serve {
namespace {

using Set = Pattern::Set;
using Part = Expression::Part;

constexpr std::size_t kStates = 4096, kPieces = 20'000, kWork = 50'000'000;

/// Characters that texts may have.
Set every() {
  Set out;
  for (std::size_t c = 0x20; c < Pattern::kSymbols; ++c) out.set(c);
  return out.reset('"').reset('\\');
}

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
  const Expression parsed(expression, every(), true);
  Machine machine(parsed.parts);
  const std::size_t end = machine.build(parsed.root, machine.add());
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
