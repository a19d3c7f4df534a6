// H2O: the tokens that received most attention so far (heavy hitters), and the last ones.
// Zhang et al. 2023, Algorithm 1. The window takes half of the budget.
#include "ballast/selection.h"
#include "methods/registry.h"

namespace ballast {
namespace {

std::unique_ptr<Summary> make(const SummarySetup& setup) {
  return std::make_unique<SelectionSummary>(
      setup, SelectionSummary::Options{.mean = setup.policy.choice("score") == "mean",
                                       .lightest = setup.policy.choice("keep") == "light"});
}

}  // namespace

const MethodInfo& h2o_method() {
  static const MethodInfo info = {
      .name = "h2o",
      .title = "half heavy hitters (most accumulated attention), half recent tokens",
      .paper = "Zhang et al. 2023, H2O, Algorithm 1",
      .parameters = {{"score", Parameter::Kind::choice, "sum", 0, 0, "sum|mean",
                      "attention a token has received: its sum, or per query that could see it"},
                     {"keep", Parameter::Kind::choice, "heavy", 0, 0, "heavy|light",
                      "light: the tokens with the least attention instead, to see what heavy "
                      "hitters are worth"}},
      .window_policy = WindowPolicy::half,
      .window = 0,
      .keeps_generated = false,
      .needs = {.attention_sums = true},
      .make = make,
  };
  return info;
}

}  // namespace ballast
