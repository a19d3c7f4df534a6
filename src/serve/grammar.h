// Grammars in GBNF, llama.cpp's form, that answers are held to.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace ballast::serve {

/// A context-free grammar over bytes of UTF-8, as a machine whose states are made as they are
/// reached. A state is a set of stacks: what may still come, in each way to understand the text so
/// far. One thread at a time.
class Grammar {
 public:
  using State = std::uint32_t;
  static constexpr State kDead = 0, kStart = 1;

  /// Rules NAME ::= …, the first of which is `root`, of literals "…", classes […], any character
  /// (.), names, groups, alternatives and repetitions (* + ? {m} {m,} {m,n}); # begins a comment.
  /// Throws Error with the line on anything else, on a rule that begins with itself, and on
  /// grammars above 64 KiB or 20,000 parts.
  explicit Grammar(std::string_view gbnf);

  /// The state after a byte; kDead: no text goes on so. Throws Error beyond 32,768 states, and
  /// where there are too many ways to understand the text.
  State next(State state, char byte);
  /// Whether a text may end here.
  bool accepts(State state) const { return states_[state].accepts; }
  /// Whether it must.
  bool ends(State state) const { return states_[state].ends; }

 private:
  /// A place in an alternative of a rule.
  struct Item {
    enum class Kind : std::uint8_t { end, bytes, rule } kind = Kind::end;
    std::uint8_t low = 0, high = 0;  ///< of bytes
    std::uint32_t rule = 0;
  };
  /// Items to come, the next last; none is an end.
  using Stack = std::vector<std::uint32_t>;
  struct StateInfo {
    const std::vector<Stack>* stacks = nullptr;
    bool accepts = false, ends = false;
    std::unique_ptr<std::array<State, 256>> next = {};  ///< kUnknown: not asked for yet
  };
  static constexpr State kUnknown = static_cast<State>(-1);

  class Builder;

  /// Replaces rules on top of stacks by their alternatives.
  std::vector<Stack> expand(std::vector<Stack> open);
  void push(Stack& stack, std::uint32_t item) const;
  State state_of(std::vector<Stack> stacks);

  std::vector<Item> items_;
  std::vector<std::vector<std::uint32_t>> rules_;  ///< of each the first items of its alternatives
  std::map<std::vector<Stack>, State> known_;
  std::vector<StateInfo> states_;
  std::size_t work_ = 0;  ///< stacks' items looked at
};

/// Reads the beginning of a text of a grammar byte by byte.
class GrammarReader {
 public:
  explicit GrammarReader(std::shared_ptr<Grammar> grammar) : grammar_(std::move(grammar)) {}

  /// Whether the text so far may be followed by this byte; if not, the reader is spent.
  bool push(char c) {
    state_ = grammar_->next(state_, c);
    return state_ != Grammar::kDead;
  }
  /// Whether the text has ended.
  bool done() const { return grammar_->ends(state_); }
  /// Whether it may end.
  bool may_end() const { return grammar_->accepts(state_); }
  static bool in_free_string(std::size_t) { return false; }  ///< see JsonReader

 private:
  std::shared_ptr<Grammar> grammar_;
  Grammar::State state_ = Grammar::kStart;
};

}  // namespace ballast::serve
