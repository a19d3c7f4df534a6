#include "ballast/engine/sampler.h"

#include <cmath>
#include <map>
#include <set>

#include "support.h"

namespace ballast {
namespace {

using test::error_of;

const std::vector<float> kLogits = {1.0f, 3.0f, 2.0f, -1.0f, 2.5f, 0.0f, 2.0f};

std::vector<double> softmax(std::span<const float> logits, double temperature,
                            const std::set<Token>& keep) {
  std::vector<double> p(logits.size(), 0.0);
  double sum = 0;
  for (Token t : keep) sum += p[t] = std::exp(logits[t] / temperature);
  for (double& x : p) x /= sum;
  return p;
}

/// The chi-square of 20000 draws has at most the value that chance exceeds once in a million times.
void expect_distribution(SamplingOptions options, const std::vector<double>& expected) {
  options.seed = 12345;
  Sampler sampler(options);
  constexpr int kDraws = 20000;
  std::vector<int> count(kLogits.size());
  for (int i = 0; i < kDraws; ++i) ++count[sampler.sample(kLogits, {}).token];
  double chi_square = 0;
  for (std::size_t t = 0; t < expected.size(); ++t) {
    if (expected[t] == 0) {
      EXPECT_EQ(count[t], 0) << "token " << t;
      continue;
    }
    chi_square += std::pow(count[t] - kDraws * expected[t], 2) / (kDraws * expected[t]);
  }
  EXPECT_LT(chi_square, 39.0);  // 6 degrees of freedom at 1e-6: 38.3
}

TEST(Sampler, DrawsByProbability) {
  for (float temperature : {0.5f, 1.0f, 2.0f}) {
    expect_distribution({.temperature = temperature},
                        softmax(kLogits, temperature, {0, 1, 2, 3, 4, 5, 6}));
  }
}

TEST(Sampler, TopKKeepsTheLikeliestTiesById) {
  expect_distribution({.temperature = 1, .top_k = 3}, softmax(kLogits, 1, {1, 4, 2}));
  expect_distribution({.temperature = 1, .top_k = 100}, softmax(kLogits, 1, {0, 1, 2, 3, 4, 5, 6}));
}

TEST(Sampler, TopPKeepsTheFewestThatHaveTheMass) {
  // Probabilities: 0.408, 0.248, 0.150, 0.150, 0.055, 0.020, 0.007 roughly.
  const std::vector<double> p = softmax(kLogits, 1, {0, 1, 2, 3, 4, 5, 6});
  const auto mass = static_cast<float>(p[1] + p[4]);
  expect_distribution({.temperature = 2, .top_p = mass - 0.001f}, softmax(kLogits, 2, {1, 4}));
  expect_distribution({.temperature = 2, .top_p = mass + 0.001f}, softmax(kLogits, 2, {1, 4, 2}));
  expect_distribution({.temperature = 1, .top_p = 1e-6f}, softmax(kLogits, 1, {1}));
}

TEST(Sampler, TopPOfAFlatDistributionKeepsItsShare) {
  const std::vector<float> flat(1000, 0.5f);
  Sampler sampler({.temperature = 1, .top_p = 0.3f});
  for (int i = 0; i < 2000; ++i) EXPECT_LT(sampler.sample(flat, {}).token, 301);
}

TEST(Sampler, MinPLeavesOutTheUnlikely) {
  expect_distribution({.temperature = 1, .min_p = 0.3f}, softmax(kLogits, 1, {1, 2, 4, 6}));
}

TEST(Sampler, FiltersWorkTogether) {
  expect_distribution({.temperature = 1, .top_k = 4, .top_p = 0.95f, .min_p = 0.5f},
                      softmax(kLogits, 1, {1, 4}));
}

TEST(Sampler, GreedyTakesTheFirstOfTheLikeliest) {
  Sampler sampler({});
  EXPECT_EQ(sampler.sample(kLogits, {}).token, 1);
  EXPECT_EQ(sampler.sample(std::vector<float>{0, 5, 5}, {}).token, 1);
}

TEST(Sampler, PenaltyTouchesEachTokenOfTheWindowOnce) {
  Sampler sampler({.repetition_penalty = 1.25f, .repetition_window = 2});
  EXPECT_EQ(sampler.sample(kLogits, std::vector<Token>{1, 1}).token, 4);     // 3 / 1.25 < 2.5
  EXPECT_EQ(sampler.sample(kLogits, std::vector<Token>{1, 0, 0}).token, 1);  // out of the window
  const std::vector<float> negative = {-1.0f, -1.1f};
  EXPECT_EQ(sampler.sample(negative, std::vector<Token>{0}).token, 1);  // -1 · 1.25
}

// Logits are 0, 3, 1.5, …, 2.5 at token 4.
TEST(Sampler, PresenceAndFrequencyCountWhatItHasChosen) {
  const std::vector<Token> prompt = {1, 1, 1};
  const auto choices = [&](const SamplingOptions& options) {
    Sampler sampler(options);
    std::vector<Token> history = prompt;
    for (int i = 0; i < 5; ++i) history.push_back(sampler.sample(kLogits, history).token);
    return std::vector<Token>(history.begin() + 3, history.end());
  };
  EXPECT_THAT(choices({}), testing::Each(1));
  EXPECT_EQ(choices({.presence_penalty = 0.75f}), (std::vector<Token>{1, 4, 1, 1, 1}));
  EXPECT_EQ(choices({.frequency_penalty = 0.3f}), (std::vector<Token>{1, 1, 4, 1, 4}));
}

TEST(Sampler, BiasIsAddedToLogits) {
  Sampler sampler({.logit_bias = {{4, 0.6f}}});
  const TokenChance choice = sampler.sample(kLogits, {});
  EXPECT_EQ(choice.token, 4);
  EXPECT_NEAR(choice.log_probability, 2.5 - log_sum_exp(kLogits), 1e-6);  // the model's own
  EXPECT_EQ(Sampler({.logit_bias = {{1, -100.0f}}}).sample(kLogits, {}).token, 4);
  EXPECT_EQ(Sampler({.temperature = 1, .logit_bias = {{2, 100.0f}}}).sample(kLogits, {}).token, 2);
}

TEST(Sampler, ReportsTheModelsOwnLogProbability) {
  const double total = log_sum_exp(kLogits);
  Sampler sampler({.temperature = 0.1f, .top_k = 1, .repetition_penalty = 1.1f});
  const TokenChance choice = sampler.sample(kLogits, std::vector<Token>{1});
  EXPECT_EQ(choice.token, 1);
  EXPECT_NEAR(choice.log_probability, 3.0 - total, 1e-6);
}

TEST(Sampler, SameSeedSameTokens) {
  auto draw = [](std::uint64_t seed) {
    Sampler sampler({.temperature = 1, .seed = seed});
    std::vector<Token> out;
    for (int i = 0; i < 50; ++i) out.push_back(sampler.sample(kLogits, {}).token);
    return out;
  };
  EXPECT_EQ(draw(7), draw(7));
  EXPECT_NE(draw(7), draw(8));
}

TEST(Sampler, LikeliestAreInOrder) {
  const auto top = likeliest(kLogits, 4);
  ASSERT_EQ(top.size(), 4u);
  EXPECT_EQ(top[0].token, 1);
  EXPECT_EQ(top[1].token, 4);
  EXPECT_EQ(top[2].token, 2);
  EXPECT_EQ(top[3].token, 6);
  EXPECT_NEAR(top[0].log_probability, 3.0 - log_sum_exp(kLogits), 1e-6);
  EXPECT_EQ(likeliest(kLogits, 100).size(), kLogits.size());
}

TEST(Sampler, ToleratesInfinitiesAndHugeLogits) {
  constexpr float inf = std::numeric_limits<float>::infinity();
  Sampler sampler({.temperature = 1, .top_p = 0.9f});
  EXPECT_EQ(sampler.sample(std::vector<float>{-inf, 1e30f, -inf, 0.0f}, {}).token, 1);
}

TEST(Sampler, NamesBadOptionsAndLogits) {
  EXPECT_EQ(error_of([] { Sampler({.temperature = -1}); }), "temperature -1: expected 0 or more");
  EXPECT_EQ(error_of([] { Sampler({.top_p = 0}); }), "top-p 0: expected more than 0, at most 1");
  EXPECT_EQ(error_of([] { Sampler({.min_p = 1}); }), "min-p 1: expected 0 or more, below 1");
  EXPECT_EQ(error_of([] { Sampler({.repetition_penalty = 0.5f}); }),
            "repetition penalty 0.5: expected 1 or more");
  EXPECT_EQ(error_of([] { Sampler({.presence_penalty = NAN}); }),
            "presence penalty nan: expected a finite number");
  EXPECT_EQ(error_of([] { Sampler({.frequency_penalty = INFINITY}); }),
            "frequency penalty inf: expected a finite number");
  EXPECT_EQ(error_of([] {
              Sampler({.logit_bias = {{-1, 1}}});
            }),
            "logit bias 1 of token -1: expected a finite number");
  EXPECT_EQ(error_of([] {
              Sampler({.logit_bias = {{7, 1}}}).sample(kLogits, {});
            }),
            "token id 7 among 7 logits");
  EXPECT_EQ(error_of([] {
              Sampler({}).sample(std::vector<float>{0, NAN}, {});
            }),
            "the logit of token 1 is not a number");
  EXPECT_EQ(error_of([] { Sampler({}).sample({}, {}); }), "no logit is finite");
  EXPECT_EQ(
      error_of([] { Sampler({.repetition_penalty = 2}).sample(kLogits, std::vector<Token>{7}); }),
      "token id 7 among 7 logits");
}

}  // namespace
}  // namespace ballast
