// Regular expressions that texts are held to.
#pragma once

#include <unicode/uniset.h>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "serve/grammar/grammar_builder.h"

namespace ballast::serve {

/// An expression of ECMA-262 with its flag u or without, taken apart: classes, \p{…}, groups,
/// alternatives and repetitions up to 1,000, and the anchors ^ and $ at the ends of its
/// alternatives. Assertions and references are not supported.
struct Expression {
  struct Part {
    enum class Kind : std::uint8_t { set, sequence, alternatives, repeat } kind = Kind::sequence;
    icu::UnicodeSet set = {};
    std::vector<std::size_t> parts = {};                       ///< indices into Expression::parts
    std::uint32_t least = 0, most = GrammarBuilder::kNoLimit;  ///< of a repeat
  };
  std::vector<Part> parts;
  std::size_t root = 0;

  /// `anywhere`: where an alternative is not anchored, any text may stand before and after it.
  /// Throws Error that shows the expression if it cannot be read.
  Expression(std::string_view text, bool anywhere);
  /// All texts of so many characters.
  static Expression of_length(std::uint32_t least, std::uint32_t most);
  /// Whether each text has so many characters.
  bool has_length(std::uint32_t least, std::uint32_t most) const;

 private:
  Expression() = default;
};

}  // namespace ballast::serve
