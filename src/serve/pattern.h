// Regular expressions that answers are held to.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "serve/expression.h"

namespace ballast::serve {

/// The texts that match a regular expression, as a table of states. Of ECMA-262 it takes classes,
/// groups, alternatives and repetitions, and the anchors ^ and $ at the ends of the expression's
/// alternatives; a character above ASCII stands in classes as any such character. The expression
/// may match anywhere in the text where it is not anchored. Texts hold no quotes, backslashes and
/// control characters, which JSON would escape.
class Pattern {
 public:
  using State = std::uint32_t;
  static constexpr State kDead = 0, kStart = 1;
  static constexpr std::size_t kNoLimit = static_cast<std::size_t>(-1);

  /// Texts have from `least` to `most` characters. Throws Error if the expression cannot be read,
  /// if no text matches, or beyond 4,096 states.
  explicit Pattern(std::string_view expression, std::size_t least = 0, std::size_t most = kNoLimit);

  /// The state after a character, which its first byte stands for. kDead: no text goes on so.
  State next(State state, char first) const {
    const auto byte = static_cast<unsigned char>(first);
    return table_[state][byte < 0x80 ? byte : kOther];
  }
  /// Whether a text may end here.
  bool accepts(State state) const { return accepts_[state]; }
  /// Whether any characters may follow, and change nothing.
  bool is_free(State state) const { return free_[state]; }

  static constexpr std::size_t kOther = Expression::kOther, kSymbols = Expression::kSymbols;
  using Set = Expression::Set;

 private:
  std::vector<std::array<State, kSymbols>> table_;
  std::vector<bool> accepts_, free_;
};

}  // namespace ballast::serve
