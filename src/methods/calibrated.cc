// Calibrated: scores that cost nothing. A linear function of what enters a layer, found once a
// model (ballast calibrate), says how much of replay's score a token will get; one budget over all
// layers and heads then gives every entry a precision, or nothing. Predicting KVzip's scores from
// hidden states: KVzap (2026, arXiv:2601.07891), Fast KVzip (2026, arXiv:2601.17668).
#include <limits>

#include "methods/registry.h"
#include "methods/replay.h"

namespace ballast {
namespace {

std::vector<Parameter> parameters() {
  std::vector<Parameter> all = tiered_parameters(kTiers, "256", "8", "0.3");
  all.push_back({"reach", Parameter::Kind::integer, "0", 0, std::numeric_limits<Position>::max(),
                 "",
                 "stream: what is so many tokens back leaves, but for the first ones; 0: nothing"});
  return all;
}

}  // namespace

bool takes_reach(const Policy& policy) { return policy.info().name == "calibrated"; }

std::size_t reach_of(const Policy& policy) {
  return takes_reach(policy) ? static_cast<std::size_t>(policy.integer("reach")) : 0;
}

const MethodInfo& calibrated_method() {
  static const MethodInfo info = {
      .name = "calibrated",
      .title = "read once, scored by what was calibrated for the model; precisions as replay's",
      .paper = "KVzap (arXiv:2601.07891), in closed form, with replay's tiers",
      .parameters = parameters(),
      .window = 8,
      .global_budget = true,
      .needs = {.replay = ReplayScore::given},
      .make = make_tiered,
  };
  return info;
}

}  // namespace ballast
