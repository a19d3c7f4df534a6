// Makes grammars of parts.
#pragma once

#include <unicode/uniset.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "serve/grammar/grammar.h"

namespace ballast::serve {

/// Parts are runs of items: one behind the other they are a sequence.
class GrammarBuilder {
 public:
  using Items = std::vector<Grammar::Item>;
  using Rule = std::uint32_t;
  static constexpr std::uint32_t kNoLimit = Grammar::kNoLimit;

  /// What is still to come of a text has at most the depth `deepest`; each item adds `weight`.
  explicit GrammarBuilder(std::uint16_t deepest, std::uint8_t weight)
      : deepest_(deepest), weight_(weight) {}

  /// A text of UTF-8.
  Items text(std::string_view text) const;
  /// A bracket that is to come: while it is, the depth is one more.
  Items closing(char bracket) const;
  /// One character of a set; halves of pairs are none.
  Items one_of(const icu::UnicodeSet& set);
  /// One of the ways; none: nothing matches.
  Items either(const std::vector<Items>& ways);
  /// One of texts that are sorted, each there once.
  Items either_text(const std::vector<std::string>& texts);
  /// Throws Error that names no place if `most` is less than `least`.
  Items repeat(const Items& one, std::uint32_t least, std::uint32_t most);

  /// A rule to be defined, for parts that name each other.
  Rule declare();
  void define(Rule rule, const std::vector<Items>& ways);
  Items rule(Rule rule) const;

  /// Throws Error if a rule begins with itself (`names` are for the message), if
  /// each text needs more than the greatest depth, and beyond 4 million items.
  std::shared_ptr<const Grammar> finish(const Items& root,
                                        const std::map<Rule, std::string>& names = {});

 private:
  Grammar::Item bytes(char low, char high) const;
  Items texts_from(const std::vector<std::string>& texts, std::size_t first, std::size_t last,
                   std::size_t at);
  /// Whether a text may be empty, of each rule.
  std::vector<bool> find_empty() const;
  void refuse_left_recursion(const std::vector<bool>& empty,
                             const std::map<Rule, std::string>& names) const;
  void find_depths();
  void find_classes();

  std::uint16_t deepest_;
  std::uint8_t weight_;
  Grammar g_ = {.items = {Grammar::Item()}};
  std::map<std::string, Rule> sets_;  ///< rules of one_of(), by the ranges
};

}  // namespace ballast::serve
