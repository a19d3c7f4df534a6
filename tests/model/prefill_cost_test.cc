#include "model/prefill_cost.h"

#include <gtest/gtest.h>

namespace ballast {
namespace {

ModelConfig dense() {
  ModelConfig c;
  c.layers = 2;
  c.width = 10;
  c.heads = 2;
  c.kv_heads = 1;
  c.key_dim = c.value_dim = 4;
  c.ffn_width = 20;
  return c;
}

TEST(PrefillCost, CountsWeightsAndPairsOfTokens) {
  // Per layer 10 · (16 + 8 + 3·20) weights, and 16 multiplications for each pair of tokens.
  EXPECT_EQ(prefill_cost(dense(), 100), 2 * (840.0 * 100 + 16 * 100 * 100 / 2));
}

TEST(PrefillCost, OfAMixtureIsOfTheExpertsThatATokenUses) {
  ModelConfig c = dense();
  c.experts = 64;
  c.experts_used = 2;
  c.expert_width = 10;
  EXPECT_EQ(prefill_cost(c, 100), prefill_cost(dense(), 100));
}

TEST(PrefillCost, GrowsWithTheTextBeyondAWindow) {
  ModelConfig c = dense();
  c.sliding_windows = {8, 8};
  EXPECT_DOUBLE_EQ(prefill_cost(c, 300) - prefill_cost(c, 200),
                   prefill_cost(c, 200) - prefill_cost(c, 100));
  EXPECT_EQ(prefill_cost(c, 8), prefill_cost(dense(), 8));
}

TEST(PrefillCost, OfRecurrentLayersGrowsWithTheText) {
  ModelConfig c = dense();
  c.kinds = {LayerKind::short_conv, LayerKind::delta_rule};
  c.delta_key_heads = c.delta_value_heads = 2;
  c.delta_key_dim = c.delta_value_dim = 4;
  EXPECT_GT(prefill_cost(c, 1), 0);
  EXPECT_DOUBLE_EQ(prefill_cost(c, 1000), 1000 * prefill_cost(c, 1));
}

}  // namespace
}  // namespace ballast
