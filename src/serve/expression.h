// Regular expressions, taken apart.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace ballast::serve {

/// An expression of ECMA-262 without assertions inside it and without references: a tree of parts.
/// Characters above ASCII are one symbol, kOther.
struct Expression {
  static constexpr std::size_t kOther = 128, kSymbols = 129;
  static constexpr std::size_t kNoLimit = static_cast<std::size_t>(-1);
  using Set = std::bitset<kSymbols>;

  struct Part {
    enum class Kind : std::uint8_t { set, sequence, alternatives, repeat } kind = Kind::sequence;
    Set set = {};
    std::vector<std::size_t> parts = {};     ///< indices into Expression::parts
    std::size_t least = 0, most = kNoLimit;  ///< of a repeat
    bool ends = false;                       ///< any text may follow: the expression has matched
  };
  std::vector<Part> parts;
  std::size_t root = 0;

  /// `possible`: the characters that `.` stands for. `anywhere`: where an alternative is not
  /// anchored, any of these may stand before and after it. Throws Error if it cannot be read.
  Expression(std::string_view text, const Set& possible, bool anywhere);
};

}  // namespace ballast::serve
