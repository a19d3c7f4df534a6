// Every l-th token before the window: the strided pattern of the Sparse Transformer (Child et al.
// 2019), as a rule for evicting; a baseline of H2O.
#include <bit>

#include "methods/position_rule.h"
#include "methods/registry.h"

namespace ballast {
namespace {

class Strided : public PositionRule {
 public:
  explicit Strided(const SummarySetup& setup) : PositionRule(setup) {
    // The shortest stride for which the pattern of all tokens fits the budget.
    const std::size_t room = std::max<std::size_t>(1, ruled_capacity(setup));
    stride_ =
        static_cast<std::uint32_t>(std::max<std::size_t>(1, (setup.tokens + room - 1) / room));
  }

 protected:
  int level(std::uint32_t at) const override {
    return at % stride_ != 0 ? -1 : std::countr_zero(at / stride_);
  }

 private:
  std::uint32_t stride_;
};

std::unique_ptr<Summary> make(const SummarySetup& setup) {
  return std::make_unique<Strided>(setup);
}

}  // namespace

const MethodInfo& strided_method() {
  static const MethodInfo info = {
      .name = "strided",
      .title = "every l-th token and the last ones; l meets the budget, or doubles",
      .paper = "Child et al. 2019, Sparse Transformer (baseline of H2O)",
      .parameters = {heavy_parameter()},
      .window_policy = WindowPolicy::half,
      .window = 0,
      .needs = {},
      .needs_of = needs_of_position_rule,
      .make = make,
  };
  return info;
}

}  // namespace ballast
