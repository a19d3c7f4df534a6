// CriticalKV: half of the budget goes to the tokens with most attention, the rest to those whose
// attention times what their value writes into the residual stream is largest. Feng et al. 2025
// (arXiv:2502.03805), Algorithm 1, with SnapKV's attention.
#include <algorithm>
#include <cmath>

#include "methods/adaptive.h"
#include "methods/registry.h"
#include "methods/scored.h"
#include "methods/snapkv.h"

namespace ballast {
namespace {

class CriticalKv : public ScoredSummary {
 public:
  explicit CriticalKv(const SummarySetup& setup)
      : ScoredSummary(setup, {.attention = true, .weight = true}),
        reach_(static_cast<Position>(setup.policy.integer("kernel") / 2)),
        maximum_(setup.policy.choice("pooling") == "max"),
        part_(setup.policy.real("first")) {}

 protected:
  // Mean over the observed queries and the query heads is the sum but for a constant; epsilon is
  // added to the mean.
  void score(const Candidates& all, std::span<float> scores) override {
    for (std::size_t i = 0; i < all.size(); ++i) {
      const auto near = [&](std::size_t j) {
        return std::abs(all.position(j) - all.position(i)) <= reach_;
      };
      double pooled = all.attention[i];
      const auto pool = [&](std::size_t j) {
        pooled = maximum_ ? std::max(pooled, double{all.attention[j]})
                          : pooled + double{all.attention[j]};
      };
      for (std::size_t j = i; j-- > 0 && near(j);) pool(j);
      for (std::size_t j = i + 1; j < all.size() && near(j); ++j) pool(j);
      scores[i] = static_cast<float>(pooled);
    }
  }

  std::size_t chosen_first() const override {
    return static_cast<std::size_t>(part_ * static_cast<double>(capacity()));
  }

  void score_rest(const Candidates& all, std::span<float> scores) override {
    const auto seen = static_cast<std::size_t>(all.block.now);
    const std::size_t tokens = std::min(setup().policy.observed(), seen);
    const auto queries = static_cast<double>(tokens * setup().queries_per_kv_head);
    const double divisor = maximum_ ? queries : queries * (2 * reach_ + 1);
    for (std::size_t i = 0; i < all.size(); ++i) {
      scores[i] = static_cast<float>((double{scores[i]} / divisor + 1e-4) * double{all.weights[i]});
    }
  }

  void weigh(const Block& block, std::span<float> weights) override {
    if (const ValueNorms* norms = block.observed->value_norms()) {
      norms->measure(setup().random.layer, setup().random.head, block.values, weights);
      return;
    }
    std::vector<float> value(setup().value_dim);
    for (std::size_t i = 0; i < block.size(); ++i) {
      block.values.decode(i, value);
      double sum = 0;
      for (float x : value) sum += std::abs(double{x});
      weights[i] = static_cast<float>(sum);
    }
  }

 private:
  Position reach_;
  bool maximum_;
  double part_;
};

std::unique_ptr<Summary> make(const SummarySetup& setup) {
  return std::make_unique<CriticalKv>(setup);
}

std::vector<Parameter> parameters() {
  std::vector<Parameter> all = snapkv_parameters();
  all.push_back({"first", Parameter::Kind::real, "0.5", 0, 1, "",
                 "part of the budget that attention alone chooses"});
  return all;
}

}  // namespace

const MethodInfo& criticalkv_method() {
  static const MethodInfo info = {
      .name = "criticalkv",
      .title = "half by attention, half by attention times what values write",
      .paper = "Feng et al. 2025, CriticalKV (arXiv:2502.03805), Algorithm 1",
      .parameters = parameters(),
      .step = 32,
      .needs = {.recent_queries = true, .value_norms = true},
      .make = make,
  };
  return info;
}

}  // namespace ballast
