// Which bytes the text of an answer may go on with.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/keyed_hash.h"

namespace ballast::serve {

/// The rules of a context-free grammar over bytes of UTF-8, made by GrammarBuilder.
struct Grammar {
  /// A place in an alternative of a rule.
  struct Item {
    enum class Kind : std::uint8_t { end, bytes, rule, repeat } kind = Kind::end;
    std::uint8_t low = 0, high = 0;  ///< of bytes, both included
    std::uint8_t weight = 0;         ///< while it is still to come, it adds this to the depth
    std::uint32_t rule = 0;          ///< of a repeat, that which is repeated
    std::uint32_t count = 0;         ///< of a repeat: index into `counts`
  };
  static constexpr std::uint32_t kNoLimit = static_cast<std::uint32_t>(-1);
  struct Counts {
    std::uint32_t least = 0, most = kNoLimit;
  };
  struct Rule {
    std::uint32_t first = 0, count = 0;  ///< its alternatives: a part of `alternatives`
    std::uint16_t depth = 0;             ///< that it needs at least
  };

  std::vector<Item> items = {};                  ///< alternatives, each with an end
  std::vector<std::uint32_t> alternatives = {};  ///< their first items
  std::vector<std::uint16_t> depths = {};        ///< that an alternative needs at least
  std::vector<Rule> rules = {};
  std::vector<Counts> counts = {};
  std::uint32_t root = 0;
  std::uint16_t deepest = 0;  ///< the depth of what is still to come is at most this
  std::array<std::uint8_t, 256> classes = {};  ///< of bytes that no item tells apart
  std::size_t class_count = 1;
};

/// The states that texts of a grammar reach, made as they are reached and kept. A state is a set of
/// stacks: what may still come, in each way to understand the text so far. Of more than 1,024 ways
/// the shortest to the end are followed. One thread at a time.
class GrammarStates {
 public:
  using State = std::uint32_t;
  static constexpr State kDead = 0, kStart = 1;

  explicit GrammarStates(std::shared_ptr<const Grammar> grammar);

  /// The state after a byte; kDead: no text goes on so. From every other state a text can end.
  /// Throws Error where two million stacks were looked at since allow_work().
  State next(State state, char byte);
  void allow_work() { work_ = 0; }
  /// Whether a text may end here.
  bool accepts(State state) const { return states_[state].accepts; }
  /// Whether it must.
  bool ends(State state) const { return states_[state].ends; }

  /// A state that takes the same texts of up to `bytes` bytes, the same one for all counts of
  /// repetitions that are far from their limits.
  State like(State state, std::uint32_t bytes);
  /// Whether there is more than is worth keeping.
  bool is_large() const;
  /// New states of the same grammar that begin with one of these.
  std::shared_ptr<GrammarStates> from(State state) const;

  /// What the caller keeps of states: of tokens, whether they are taken.
  std::map<State, std::vector<bool>> masks;

 private:
  using Stack = std::uint32_t;  ///< its top, by index; 0: empty
  /// A part of stacks, shared by all that go on with it.
  struct Node {
    std::uint32_t item = 0, count = 0;  ///< count: repetitions begun before
    Stack below = 0;
    std::uint32_t depth = 0;
    bool operator==(const Node&) const = default;
  };
  struct NodeKeyedHash {
    std::size_t operator()(const Node& node) const;
  };
  struct StateInfo {
    const std::vector<Stack>* stacks = nullptr;
    bool accepts = false, ends = false;
    std::vector<State> next = {};  ///< by class; kUnknown: not asked for yet
  };
  static constexpr State kUnknown = static_cast<State>(-1);

  struct Empty {};
  GrammarStates(std::shared_ptr<const Grammar> grammar, Empty);

  Stack push(Stack below, std::uint32_t item, std::uint32_t count = 0);
  /// Puts the alternatives of a rule that fit on a stack.
  void push_rule(Stack below, std::uint32_t rule, std::vector<Stack>& out);
  /// Replaces rules and repetitions on top of stacks by what they begin with.
  std::vector<Stack> expand(std::vector<Stack> open);
  State state_of(std::vector<Stack> stacks);

  std::shared_ptr<const Grammar> grammar_;
  std::vector<Node> nodes_;
  std::unordered_map<Node, Stack, NodeKeyedHash> stacks_;
  std::vector<std::uint32_t> seen_;  ///< of each node the last round it was seen in
  std::uint32_t round_ = 0;
  std::map<std::vector<Stack>, State> known_;
  std::vector<StateInfo> states_;
  std::size_t work_ = 0;
};

/// Reads the beginning of a text of a grammar byte by byte. Copies share the states.
class GrammarReader {
 public:
  explicit GrammarReader(std::shared_ptr<const Grammar> grammar)
      : states_(std::make_shared<GrammarStates>(std::move(grammar))) {}

  /// Whether the text so far may be followed by this byte; if not, the reader is spent.
  bool push(char c) {
    state_ = states_->next(state_, c);
    return state_ != GrammarStates::kDead;
  }
  /// The same for the bytes of a token.
  bool push(std::string_view text);
  /// Whether the text has ended.
  bool done() const { return states_->ends(state_); }
  /// Whether it may end.
  bool may_end() const { return states_->accepts(state_); }

  GrammarStates& states() const { return *states_; }
  GrammarStates::State state() const { return state_; }

 private:
  std::shared_ptr<GrammarStates> states_;
  GrammarStates::State state_ = GrammarStates::kStart;
};

}  // namespace ballast::serve
