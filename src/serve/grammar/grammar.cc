#include "serve/grammar/grammar.h"

#include <algorithm>
#include <utility>

#include "base/fail.h"

namespace ballast::serve {
namespace {

constexpr std::size_t kStacks = 1024, kMostWork = 2'000'000;
/// Beyond these, states are made anew from the one that a text has reached.
constexpr std::size_t kManyStates = 16'384, kManyNodes = 200'000;

using Kind = Grammar::Item::Kind;

}  // namespace

std::size_t GrammarStates::NodeKeyedHash::operator()(const Node& node) const {
  return keyed_hash(keyed_hash(node.item | std::uint64_t{node.below} << 32) + node.count);
}

GrammarStates::GrammarStates(std::shared_ptr<const Grammar> grammar, Empty)
    : grammar_(std::move(grammar)), nodes_(1), seen_(1), states_(1) {}

GrammarStates::GrammarStates(std::shared_ptr<const Grammar> grammar)
    : GrammarStates(std::move(grammar), Empty()) {
  std::vector<Stack> stacks;
  push_rule(0, grammar_->root, stacks);
  state_of(expand(std::move(stacks)));
}

GrammarStates::Stack GrammarStates::push(Stack below, std::uint32_t item, std::uint32_t count) {
  const Grammar::Item& what = grammar_->items[item];
  if (what.kind == Kind::end) return below;
  const Node node{item, count, below, nodes_[below].depth + what.weight};
  const auto [at, fresh] = stacks_.try_emplace(node, static_cast<Stack>(nodes_.size()));
  if (fresh) {
    nodes_.push_back(node);
    seen_.push_back(0);
  }
  return at->second;
}

void GrammarStates::push_rule(Stack below, std::uint32_t rule, std::vector<Stack>& out) {
  const Grammar::Rule& r = grammar_->rules[rule];
  for (std::uint32_t i = r.first; i < r.first + r.count; ++i) {
    ++work_;
    if (nodes_[below].depth + grammar_->depths[i] > grammar_->deepest) continue;
    out.push_back(push(below, grammar_->alternatives[i]));
  }
}

std::vector<GrammarStates::Stack> GrammarStates::expand(std::vector<Stack> open) {
  std::vector<Stack> out;
  ++round_;
  while (!open.empty() && out.size() < kStacks) {
    const Stack stack = open.back();
    open.pop_back();
    if (std::exchange(seen_[stack], round_) == round_) continue;
    require(++work_ <= kMostWork,
            "grammar: it can be understood in too many ways; make it simpler");
    const Node node = nodes_[stack];
    const Grammar::Item& item = grammar_->items[node.item];
    if (stack == 0 || item.kind == Kind::bytes) {
      out.push_back(stack);
    } else if (item.kind == Kind::rule) {
      push_rule(push(node.below, node.item + 1), item.rule, open);
    } else {
      const auto [least, most] = grammar_->counts[item.count];
      if (node.count < most) {
        const bool unlimited = most == Grammar::kNoLimit;
        const std::uint32_t count = unlimited ? std::min(node.count + 1, least) : node.count + 1;
        const bool last = count == most;
        push_rule(last ? push(node.below, node.item + 1) : push(node.below, node.item, count),
                  item.rule, open);
      }
      // The end is looked at first: of too many ways it must be among those that are followed.
      if (node.count >= least) open.push_back(push(node.below, node.item + 1));
    }
  }
  return out;
}

GrammarStates::State GrammarStates::state_of(std::vector<Stack> stacks) {
  if (stacks.empty()) return kDead;
  std::ranges::sort(stacks);
  const auto [at, fresh] =
      known_.try_emplace(std::move(stacks), static_cast<State>(states_.size()));
  if (fresh) {
    StateInfo info{.stacks = &at->first};
    info.accepts = at->first.front() == 0;
    info.ends = info.accepts && at->first.size() == 1;
    states_.push_back(std::move(info));
  }
  return at->second;
}

GrammarStates::State GrammarStates::next(State state, char byte) {
  if (state == kDead) return kDead;
  const auto b = static_cast<std::uint8_t>(byte);
  const std::size_t column = grammar_->classes[b];
  std::vector<State>& row = states_[state].next;
  if (row.empty()) row.assign(grammar_->class_count, kUnknown);
  if (row[column] != kUnknown) return row[column];
  std::vector<Stack> stacks;
  for (const Stack stack : *states_[state].stacks) {
    ++work_;
    if (stack == 0) continue;
    const Node node = nodes_[stack];
    const Grammar::Item& item = grammar_->items[node.item];
    if (b >= item.low && b <= item.high) stacks.push_back(push(node.below, node.item + 1));
  }
  const State out = state_of(expand(std::move(stacks)));
  states_[state].next[column] = out;
  return out;
}

GrammarStates::State GrammarStates::like(State state, std::uint32_t bytes) {
  const auto near = [&](const Node& node) {
    const Grammar::Item& item = grammar_->items[node.item];
    if (item.kind != Kind::repeat) return node.count;
    // A text of so many bytes has at most as many repetitions, each of at least one byte.
    const auto [least, most] = grammar_->counts[item.count];
    if (node.count < least) return least - node.count > bytes ? std::uint32_t{0} : node.count;
    const bool far = most != Grammar::kNoLimit && most - node.count > bytes;
    return far ? least : node.count;
  };
  // From the bottom up, without recursion.
  std::unordered_map<Stack, Stack, KeyedHash> done{{0, 0}};
  std::vector<Stack> out, way;
  const std::vector<Stack> stacks = *states_[state].stacks;
  bool same = true;
  for (const Stack stack : stacks) {
    for (Stack at = stack; !done.contains(at); at = nodes_[at].below) way.push_back(at);
    for (; !way.empty(); way.pop_back()) {
      const Node node = nodes_[way.back()];
      done[way.back()] = push(done[node.below], node.item, near(node));
    }
    out.push_back(done[stack]);
    same = same && out.back() == stack;
  }
  if (same) return state;
  std::ranges::sort(out);
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return state_of(std::move(out));
}

bool GrammarStates::is_large() const {
  return states_.size() > kManyStates || nodes_.size() > kManyNodes;
}

std::shared_ptr<GrammarStates> GrammarStates::from(State state) const {
  std::shared_ptr<GrammarStates> out(new GrammarStates(grammar_, Empty()));
  std::unordered_map<Stack, Stack, KeyedHash> done{{0, 0}};
  std::vector<Stack> stacks, way;
  for (const Stack stack : *states_[state].stacks) {
    for (Stack at = stack; !done.contains(at); at = nodes_[at].below) way.push_back(at);
    for (; !way.empty(); way.pop_back()) {
      const Node& node = nodes_[way.back()];
      done[way.back()] = out->push(done[node.below], node.item, node.count);
    }
    stacks.push_back(done[stack]);
  }
  out->state_of(std::move(stacks));
  return out;
}

bool GrammarReader::push(std::string_view text) {
  states_->allow_work();
  for (const char c : text) {
    if (!push(c)) return false;
  }
  if (!states_->is_large()) return true;
  states_ = states_->from(state_);
  state_ = GrammarStates::kStart;
  return true;
}

}  // namespace ballast::serve
