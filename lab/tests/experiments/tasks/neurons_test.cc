#include "experiments/tasks/neurons.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "ballast/engine/gguf.h"
#include "ballast/error.h"
#include "model/reference_case.h"

namespace ballast {
namespace {

TEST(Neurons, AreActiveWhereThePaperSaysAndRelativeToTheLargestElsewhere) {
  const float rows[] = {0, 1, -0.01f, 5, 0.5f, -0.5f, 0.49f, 0};
  const ConstMatrix neurons{rows, 2, 4};
  std::size_t relu[4] = {}, silu[4] = {};
  count_active(Activation::relu, neurons, relu);
  count_active(Activation::silu, neurons, silu);
  EXPECT_EQ(std::vector<std::size_t>(relu, relu + 4), (std::vector<std::size_t>{1, 2, 2, 1}));
  EXPECT_EQ(std::vector<std::size_t>(silu, silu + 4), (std::vector<std::size_t>{1, 2, 1, 1}));
  EXPECT_FALSE(is_active(Activation::gelu, 0, 0));
}

TEST(Neurons, OverlapIsOfTheUnion) {
  using Sets = std::vector<std::vector<bool>>;
  EXPECT_EQ(overlap(Sets{{true, true, false}}, Sets{{false, true, true}}), 1.0 / 3);
  EXPECT_EQ(overlap(Sets{{false}}, Sets{{false}}), 1);
  const NeuronUse use{{{0.1, 0.3}, {0.2, 0.5}}};
  EXPECT_EQ(use.above(0.2), (Sets{{false, true}, {false, true}}));
}

class NeuronsModel : public testing::Test {
 protected:
  NeuronsModel() : case_("llama") {}
  void SetUp() override {
    BALLAST_NEED_REFERENCE(case_);
    model_.emplace(case_.gguf());
  }
  /// The model's file with neurons whose weights into the residual stream are 0.
  std::filesystem::path without(const std::vector<std::vector<bool>>& removed) const {
    std::string bytes = read_text(case_.gguf());
    const Gguf file(case_.gguf());
    for (std::size_t l = 0; l < removed.size(); ++l) {
      const TensorView& down = file.tensor("blk." + std::to_string(l) + ".ffn_down.weight");
      EXPECT_EQ(down.type, TensorType::f32);
      const std::string data(reinterpret_cast<const char*>(down.data.data()), down.data.size());
      const std::size_t at = bytes.find(data);
      const std::size_t width = down.shape[1];
      for (std::size_t r = 0; r < down.shape[0]; ++r) {
        for (std::size_t i = 0; i < width; ++i) {
          if (removed[l][i]) bytes.replace(at + 4 * (r * width + i), 4, 4, '\0');
        }
      }
    }
    const auto path = case_.dir() / "without.gguf";
    write_text(path, bytes);
    return path;
  }

  test::ReferenceCase case_;
  std::optional<Model> model_;
};

TEST_F(NeuronsModel, LossIsThatOfTheReferencesLogits) {
  double sum = 0;
  const std::size_t v = case_.vocabulary, n = case_.tokens.size();
  for (std::size_t t = 0; t + 1 < n; ++t) {
    double all = 0;
    for (std::size_t i = 0; i < v; ++i) all += std::exp(double{case_.logits[t * v + i]});
    sum +=
        std::log(all) - double{case_.logits[t * v + static_cast<std::size_t>(case_.tokens[t + 1])]};
  }
  const RunningMean loss = loss_without(*model_, case_.tokens, {});
  EXPECT_EQ(loss.count, n - 1);
  // The cache rounds to bf16.
  EXPECT_NEAR(loss.mean(), sum / static_cast<double>(n - 1), 0.02);
  EXPECT_THROW(loss_without(*model_, std::vector<Token>{1}, {}), Error);
}

TEST_F(NeuronsModel, RemovedNeuronsAreThoseOfAModelWhoseWeightsAreZero) {
  const NeuronUse use = count_neurons(*model_, case_.tokens);
  ASSERT_EQ(use.frequency.size(), model_->config().layers);
  const auto heavy = use.above(0.5);
  std::size_t count = 0;
  for (const auto& layer : heavy)
    count += static_cast<std::size_t>(std::ranges::count(layer, true));
  ASSERT_GT(count, 0u);
  const double removed = loss_without(*model_, case_.tokens, heavy).mean();
  const Model zeroed(without(heavy));
  EXPECT_NEAR(loss_without(zeroed, case_.tokens, {}).mean(), removed, 1e-5);
  EXPECT_NE(removed, loss_without(*model_, case_.tokens, {}).mean());
  for (const auto& layer : use.frequency) {
    for (double f : layer) {
      const double times = f * static_cast<double>(case_.tokens.size());
      EXPECT_NEAR(times, std::round(times), 1e-9);
    }
  }
}

}  // namespace
}  // namespace ballast
