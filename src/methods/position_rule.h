// Summaries that choose by position: patterns of the Sparse Transformer.
#pragma once

#include "ballast/selection.h"
#include "methods/heavy.h"

namespace ballast {

/// Keeps the tokens of a periodic pattern. Each token has a level. Doubling the period l times
/// keeps the tokens of level l and more, so the period doubles whenever the capacity is reached.
class PositionRule : public SelectionSummary {
 public:
  explicit PositionRule(const SummarySetup& setup)
      : SelectionSummary(setup, {.by_rule = ruled_capacity(setup), .whole_ranks = true}),
        first_(static_cast<Position>(setup.sink)) {}

 protected:
  /// Level of the token that is `at`-th after the sink, below 0: not in the pattern.
  virtual int level(std::uint32_t at) const = 0;

  float rank(const Block& block, std::size_t i) override {
    const int l =
        level(static_cast<std::uint32_t>(block.first - first_) + static_cast<std::uint32_t>(i));
    return l < 0 ? kNever : static_cast<float>(l);
  }

 private:
  Position first_;
};

inline Needs needs_of_position_rule(const Policy& policy) {
  return {.attention_sums = has_heavy(policy)};
}

}  // namespace ballast
