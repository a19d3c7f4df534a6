// The last tokens of every block: the fixed pattern of the Sparse Transformer (Child et al. 2019),
// as a rule for evicting; a baseline of H2O. The window stands for the current block.
#include <bit>

#include "methods/position_rule.h"
#include "methods/registry.h"

namespace ballast {
namespace {

class Fixed : public PositionRule {
 public:
  explicit Fixed(const SummarySetup& setup) : PositionRule(setup) {
    const std::size_t room = std::max<std::size_t>(1, ruled_capacity(setup));
    tail_ = std::min(static_cast<std::size_t>(setup.policy.integer("tail")), room);
    // The shortest block for which the pattern of all tokens fits the budget.
    length_ = std::max(tail_, setup.tokens / (room / tail_ + 1));
    while (kept_of(setup.tokens) > room) ++length_;
  }

 protected:
  int level(std::uint32_t at) const override {
    const auto block = static_cast<std::uint32_t>(at / length_);
    return at % length_ < length_ - tail_ ? -1 : std::countr_zero(block + 1);
  }

 private:
  std::size_t kept_of(std::size_t tokens) const {
    const std::size_t rest = tokens % length_;
    return tokens / length_ * tail_ + rest - std::min(rest, length_ - tail_);
  }

  std::size_t tail_;
  std::size_t length_;
};

std::unique_ptr<Summary> make(const SummarySetup& setup) { return std::make_unique<Fixed>(setup); }

}  // namespace

const MethodInfo& fixed_method() {
  static const MethodInfo info = {
      .name = "fixed",
      .title =
          "the last `tail` tokens of every block, and the last ones; the block meets the budget",
      .paper = "Child et al. 2019, Sparse Transformer (baseline of H2O)",
      .parameters = {{"tail", Parameter::Kind::integer, "8", 1, 65536, "",
                      "tokens kept at the end of each block"},
                     heavy_parameter()},
      .window_policy = WindowPolicy::half,
      .window = 0,
      .needs = {},
      .needs_of = needs_of_position_rule,
      .make = make,
  };
  return info;
}

}  // namespace ballast
