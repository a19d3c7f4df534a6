#include "experiments/attention/set_functions.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>
#include <set>

#include "ballast/error.h"

namespace ballast {
namespace {

GroundAttention random_attention(std::size_t queries, std::size_t tokens, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  GroundAttention out{Matrix(queries, tokens), Matrix(tokens, 3)};
  for (std::size_t i = 0; i < queries * tokens; ++i) out.logits.data()[i] = 2 * normal(random);
  for (std::size_t i = 0; i < tokens * 3; ++i) out.values.data()[i] = normal(random);
  return out;
}

/// Which of five sets' numbers a choice of sets covers: the textbook's submodular function.
TEST(SetFunctions, GreedyCoversWhatTheTheoremPromises) {
  const std::vector<std::set<int>> sets = {{1, 2, 3}, {3, 4}, {4, 5, 6}, {1, 6}, {7}};
  const SetFunction f = SetFunction::of(5, [&](std::uint32_t mask) {
    std::set<int> all;
    for (int i = 0; i < 5; ++i) {
      if ((mask >> i & 1) != 0) all.insert(sets[i].begin(), sets[i].end());
    }
    return static_cast<double>(all.size());
  });
  const Diminishing d = diminishing_returns(f);
  EXPECT_EQ(d.holds, 1);
  EXPECT_EQ(d.ratio, 1);
  EXPECT_TRUE(d.monotone);
  EXPECT_EQ(greedy_set(f, 3), 0b10101u);
  EXPECT_EQ(f.value[best_set(f, 3)], 7);
  EXPECT_EQ(greedy_set(f, 0), 0u);
  EXPECT_EQ(greedy_set(f, 9), 31u);
}

TEST(SetFunctions, GreedyFailsWhereReturnsGrow) {
  // Two elements are worth something together only.
  const SetFunction f = SetFunction::of(3, [](std::uint32_t mask) {
    return ((mask & 6) == 6 ? 10.0 : 0.0) + ((mask & 1) != 0 ? 1.0 : 0.0);
  });
  EXPECT_EQ(f.value[greedy_set(f, 2)], 1);
  EXPECT_EQ(best_set(f, 2), 6u);
  const Diminishing d = diminishing_returns(f);
  EXPECT_LT(d.holds, 1);
  EXPECT_EQ(d.ratio, 0);
  EXPECT_THROW(SetFunction::of(21, [](std::uint32_t) { return 0.0; }), Error);
}

TEST(SetFunctions, ConcaveSumsOfAttentionAreSubmodularAndGreedyKeepsTheirBound) {
  for (std::uint32_t seed = 0; seed < 5; ++seed) {
    const GroundAttention a = random_attention(7, 8, seed);
    for (const SetFunction& f : {score_function(a), coverage_function(a)}) {
      const Diminishing d = diminishing_returns(f);
      EXPECT_EQ(d.holds, 1);
      EXPECT_TRUE(d.monotone);
      for (std::size_t keep : {1, 3, 7}) {
        const double best = f.value[best_set(f, keep)], greedy = f.value[greedy_set(f, keep)];
        EXPECT_LE(greedy, best + 1e-12);
        EXPECT_GE(greedy, (1 - std::exp(-1.0)) * best);
        EXPECT_TRUE(keep > 1 || greedy == best);
      }
    }
    // The score is one concave function of a sum, so taking the largest is best.
    const SetFunction score = score_function(a);
    EXPECT_NEAR(score.value[greedy_set(score, 3)], score.value[best_set(score, 3)], 1e-12);
  }
}

TEST(SetFunctions, ValuesAreThoseOfNaiveAttention) {
  const GroundAttention a = random_attention(4, 5, 9);
  const SetFunction cover = coverage_function(a), output = output_function(a);
  EXPECT_NEAR(output.value[0], 0, 1e-12);
  const std::uint32_t subset = 0b01101;
  double coverage = 0, saved = 0;
  for (std::size_t q = 0; q < 4; ++q) {
    double all = 0, part = 0;
    double z[3] = {}, zs[3] = {};
    for (std::size_t i = 0; i < 5; ++i) all += std::exp(double{a.logits[q][i]});
    for (std::size_t i : {0, 2, 3}) part += std::exp(double{a.logits[q][i]});
    for (std::size_t c = 0; c < 3; ++c) {
      for (std::size_t i = 0; i < 5; ++i)
        z[c] += std::exp(double{a.logits[q][i]}) / all * a.values[i][c];
      for (std::size_t i : {0, 2, 3})
        zs[c] += std::exp(double{a.logits[q][i]}) / part * a.values[i][c];
      saved += z[c] * z[c] - (z[c] - zs[c]) * (z[c] - zs[c]);
    }
    coverage += std::log(1 + part / all);
  }
  EXPECT_NEAR(cover.value[subset], coverage, 1e-9);
  EXPECT_NEAR(output.value[subset], saved, 1e-6);
}

TEST(SetFunctions, AlgorithmTwoEvictsTheLeastSum) {
  // Every query looks at token 1 if it is there, a little at token 0, and at nothing else.
  GroundAttention a{Matrix(5, 5), Matrix(5, 1)};
  for (std::size_t q = 0; q < 5; ++q) {
    for (std::size_t i = 0; i < 5; ++i) {
      a.logits[q][i] = i > q    ? -std::numeric_limits<float>::infinity()
                       : i == 1 ? 5.f
                       : i == 0 ? 1.f
                                : -4.f;
    }
  }
  EXPECT_EQ(h2o_set(a, 2), 0b00011u);
  EXPECT_EQ(h2o_set(a, 5), 31u);
  EXPECT_EQ(h2o_set(a, 1), 0b00001u) << "token 0 had a sum of 1 before token 1 came";
  for (std::size_t keep : {1, 2, 3, 4}) {
    const GroundAttention r = random_attention(6, 6, 3);
    EXPECT_EQ(std::popcount(h2o_set(r, keep)), static_cast<int>(keep));
  }
}

}  // namespace
}  // namespace ballast
