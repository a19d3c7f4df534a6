#include "serve/grammar/expression_rules.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "base/fail.h"

namespace ballast::serve {
namespace {

using Items = GrammarBuilder::Items;
using Part = Expression::Part;
using icu::UnicodeSet;

constexpr std::size_t kPieces = 20'000, kWork = 500'000;

/// An expression as part of a grammar.
class Writer {
 public:
  Writer(GrammarBuilder& builder, const Expression& expression, const WriteCharacter& write)
      : builder_(builder), e_(expression), write_(write) {}

  Items items(std::size_t index) {
    const Part& part = e_.parts[index];
    if (part.kind == Part::Kind::set) return write_(part.set);
    std::vector<Items> all;
    for (const std::size_t one : part.parts) all.push_back(items(one));
    if (part.kind == Part::Kind::alternatives) return builder_.either(all);
    if (part.kind == Part::Kind::repeat) return builder_.repeat(all[0], part.least, part.most);
    Items out;
    for (const Items& one : all) out.insert(out.end(), one.begin(), one.end());
    return out;
  }

 private:
  GrammarBuilder& builder_;
  const Expression& e_;
  const WriteCharacter& write_;
};

/// The states of Thompson's construction.
class Machine {
 public:
  struct Step {
    std::size_t set = 0, to = 0;  ///< set: the part that has it
  };

  explicit Machine(const Expression& expression) : e_(expression) {
    end_ = build(e_.root, add());
    steps_.resize(nodes_.size());
    accepts_.resize(nodes_.size());
    found_.resize(nodes_.size());
  }
  const UnicodeSet& set(std::size_t part) const { return e_.parts[part].set; }
  /// Characters that lead on from a node, and whether a text may end there.
  const std::vector<Step>& steps(std::size_t node) { return find(node), steps_[node]; }
  bool accepts(std::size_t node) { return find(node), accepts_[node]; }

 private:
  struct Node {
    std::vector<Step> steps = {};
    std::vector<std::size_t> empty = {};  ///< that are reached without a character
  };

  std::size_t add() {
    require(nodes_.size() < kPieces, "the expression is too long");
    nodes_.emplace_back();
    return nodes_.size() - 1;
  }
  std::size_t link(std::size_t from) {
    const std::size_t to = add();
    nodes_[from].empty.push_back(to);
    return to;
  }
  /// Adds a part behind a node; returns the node behind it.
  std::size_t build(std::size_t index, std::size_t from) {
    const Part& part = e_.parts[index];
    if (part.kind == Part::Kind::set) {
      const std::size_t to = add();
      nodes_[from].steps.push_back({index, to});
      return to;
    }
    if (part.kind == Part::Kind::sequence) {
      for (const std::size_t one : part.parts) from = build(one, from);
      return from;
    }
    if (part.kind == Part::Kind::alternatives) {
      const std::size_t to = add();
      for (const std::size_t one : part.parts) nodes_[build(one, link(from))].empty.push_back(to);
      return to;
    }
    for (std::uint32_t i = 0; i < part.least; ++i) from = build(part.parts[0], from);
    if (part.most == GrammarBuilder::kNoLimit) {
      const std::size_t loop = link(from);
      nodes_[build(part.parts[0], loop)].empty.push_back(loop);
      return link(loop);
    }
    const std::size_t to = add();
    for (std::uint32_t i = part.least; i < part.most; ++i) {
      nodes_[from].empty.push_back(to);
      from = build(part.parts[0], from);
    }
    nodes_[from].empty.push_back(to);
    return to;
  }
  void find(std::size_t node) {
    if (found_[node]) return;
    found_[node] = true;
    std::vector<std::size_t> open{node};
    std::set<std::size_t> seen;
    while (!open.empty()) {
      const std::size_t one = open.back();
      open.pop_back();
      if (!seen.insert(one).second) continue;
      if (one == end_) accepts_[node] = true;
      steps_[node].insert(steps_[node].end(), nodes_[one].steps.begin(), nodes_[one].steps.end());
      open.insert(open.end(), nodes_[one].empty.begin(), nodes_[one].empty.end());
      require(++work_ < kWork, "the expression takes too long to prepare");
    }
  }

  const Expression& e_;
  std::vector<Node> nodes_;
  std::size_t end_ = 0, work_ = 0;
  std::vector<std::vector<Step>> steps_;
  std::vector<bool> accepts_, found_;
};

/// The texts of several machines, whose states are those of all of them.
class Product {
 public:
  Product(GrammarBuilder& builder, std::span<const Expression> all, const WriteCharacter& write)
      : builder_(builder), write_(write), machines_(all.begin(), all.end()) {}

  Items items() {
    find_states();
    find_alive();
    require(alive_[0], "no text matches it and its lengths");
    const std::size_t count = states_.size();
    std::vector<GrammarBuilder::Rule> rules(count);
    for (std::size_t i = 0; i < count; ++i) {
      if (alive_[i]) rules[i] = builder_.declare();
    }
    for (std::size_t i = 0; i < count; ++i) {
      if (!alive_[i]) continue;
      std::vector<Items> ways;
      for (const auto& [set, to] : steps_[i]) {
        if (!alive_[to]) continue;
        Items& way = ways.emplace_back(write_(sets_[set]));
        const Items rest = builder_.rule(rules[to]);
        way.insert(way.end(), rest.begin(), rest.end());
      }
      if (accepts_[i]) ways.emplace_back();
      builder_.define(rules[i], ways);
    }
    return builder_.rule(rules[0]);
  }

 private:
  using State = std::vector<std::size_t>;  ///< a node of each machine

  void find_states() {
    state_of(State(machines_.size()));
    for (std::size_t i = 0; i < states_.size(); ++i) {
      const State state = *states_[i];
      bool accepts = true;
      for (std::size_t m = 0; m < state.size(); ++m) {
        accepts = accepts && machines_[m].accepts(state[m]);
      }
      accepts_.push_back(accepts);
      steps_.emplace_back();
      State parts, to;
      follow(i, state, parts, to);
    }
  }
  void follow(std::size_t from, const State& state, State& parts, State& to) {
    const std::size_t m = parts.size();
    if (m == state.size()) {
      const std::size_t set = set_of(parts);
      if (!sets_[set].isEmpty()) steps_[from].emplace_back(set, state_of(to));
      return;
    }
    for (const auto& [set, next] : machines_[m].steps(state[m])) {
      require(++work_ < kWork, "the expression takes too long to prepare");
      parts.push_back(set);
      to.push_back(next);
      follow(from, state, parts, to);
      parts.pop_back();
      to.pop_back();
    }
  }
  std::size_t set_of(const State& parts) {
    const auto [at, fresh] = known_sets_.try_emplace(parts, sets_.size());
    if (fresh) {
      sets_.push_back(machines_[0].set(parts[0]));
      for (std::size_t m = 1; m < parts.size(); ++m) {
        sets_.back().retainAll(machines_[m].set(parts[m]));
      }
    }
    return at->second;
  }
  std::size_t state_of(State state) {
    const auto [at, fresh] = known_.try_emplace(std::move(state), states_.size());
    if (fresh) {
      require(states_.size() < kPieces, "the expression and its lengths need more than {} states",
              kPieces);
      states_.push_back(&at->first);
    }
    return at->second;
  }
  /// States from which an end is reached.
  void find_alive() {
    alive_.resize(states_.size());
    std::vector<std::vector<std::size_t>> before(states_.size());
    std::vector<std::size_t> open;
    for (std::size_t i = 0; i < states_.size(); ++i) {
      for (const auto& [set, to] : steps_[i]) before[to].push_back(i);
      if (accepts_[i]) open.push_back(i);
    }
    while (!open.empty()) {
      const std::size_t one = open.back();
      open.pop_back();
      if (alive_[one]) continue;
      alive_[one] = true;
      open.insert(open.end(), before[one].begin(), before[one].end());
    }
  }

  GrammarBuilder& builder_;
  const WriteCharacter& write_;
  std::vector<Machine> machines_;
  std::map<State, std::size_t> known_, known_sets_;
  std::vector<const State*> states_;
  std::vector<UnicodeSet> sets_;
  std::vector<std::vector<std::pair<std::size_t, std::size_t>>> steps_;  ///< sets, states
  std::vector<bool> accepts_, alive_;
  std::size_t work_ = 0;
};

}  // namespace

std::shared_ptr<const Grammar> parse_expression(std::string_view text) {
  GrammarBuilder builder(1, 0);
  const Expression expression(text, false);
  return builder.finish(matching(builder, {&expression, 1},
                                 [&](const UnicodeSet& set) { return builder.one_of(set); }));
}

Items matching(GrammarBuilder& builder, std::span<const Expression> expressions,
               const WriteCharacter& write) {
  if (expressions.size() == 1) {
    return Writer(builder, expressions[0], write).items(expressions[0].root);
  }
  return Product(builder, expressions, write).items();
}

}  // namespace ballast::serve
