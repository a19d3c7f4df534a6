// JSON texts as parts of grammars.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "serve/grammar/grammar_builder.h"

namespace ballast::serve {

/// Parts of JSON (RFC 8259, without halves of pairs). Between two parts at most 8 whitespace
/// characters may stand, and none before the first, so that a model cannot go on with them for
/// ever. Numbers have at most 33 digits before and after the point and an exponent of two, integers
/// 18 digits, so that they fit into a double and an int64. Values nest at most 64 deep.
class JsonRules {
 public:
  using Items = GrammarBuilder::Items;
  static constexpr std::uint16_t kDeepest = 64;

  /// `builder`: of the depth kDeepest and no weight. It must outlive the rules.
  explicit JsonRules(GrammarBuilder& builder);

  Items any, any_object, any_array, any_string, number, integer, boolean, null;

  /// Whitespace between parts.
  const Items& space() const { return space_; }
  /// A text as a string.
  Items quoted(const Items& characters) const;
  /// A character of a string, with its escape where it needs one.
  Items character(const icu::UnicodeSet& set);
  /// A string of so many characters, however they are written.
  Items string(std::uint32_t least, std::uint32_t most);
  /// A string that differs from each of these. It has no escapes until then.
  Items other_string(std::vector<std::u32string> texts);

  struct Member {
    Items key, value;
    bool required = false;
  };
  /// Members in their order, then any number of `further`.
  Items object(const std::vector<Member>& members, const std::optional<Member>& further);
  Items array(const std::vector<Items>& first, const Items& rest, std::uint32_t least,
              std::uint32_t most);

  /// Numbers whose value times 10^decimals is a whole number in [low, high] and a multiple of
  /// `step`; |low|, |high| < 10^18. Written without an exponent. Of multiples of a step above 1,000
  /// (but for zeros at its end) a thousand, those nearest to zero.
  struct Numbers {
    std::int64_t low = 0, high = 0;
    std::uint8_t decimals = 0;
    std::uint64_t step = 1;
  };
  Items numbers(const Numbers& numbers);

 private:
  Items as_rule(const std::vector<Items>& ways);
  Items other_from(const std::vector<std::u32string>& texts, std::size_t first, std::size_t last,
                   std::size_t at);

  GrammarBuilder& b_;
  Items space_, string_character_, string_end_;
  std::map<std::string, Items> characters_;  ///< by the set's ranges
};

}  // namespace ballast::serve
