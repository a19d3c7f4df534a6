#include "methods/softmax_balance.h"

#include <set>

#include "methods/balance_support.h"
#include "methods/kernels/balance.h"

namespace ballast::test {
namespace {

BalanceOptions options_for(std::size_t key_dim, std::uint64_t seed = 1) {
  BalanceOptions options;
  options.scale = 1.0 / std::sqrt(static_cast<double>(key_dim));
  options.random = {seed, 0, 0};
  return options;
}

/// Reduces and takes out what was dropped; the number dropped.
std::size_t halve(SoftmaxBalance& rule, WeightedTokens& tokens, std::size_t drop,
                  std::uint32_t round = 0) {
  std::vector<std::uint8_t> dropped(tokens.size(), 7);
  rule.reduce(tokens, drop, round, dropped);
  const std::size_t before = tokens.size();
  tokens.remove(dropped);
  return before - tokens.size();
}

double weight_sum(const WeightedTokens& tokens) {
  double sum = 0;
  for (float w : tokens.log_weights) sum += std::exp(double{w});
  return sum;
}

TEST(WeightedTokens, TheirBytesAreThoseOfFourNumbers) {
  WeightedTokens tokens;
  EXPECT_EQ(tokens.bytes(), 0u);
  tokens.reserve(1000);
  EXPECT_EQ(tokens.bytes(), 1000 * 4 * sizeof(float));
}

TEST(SoftmaxBalance, ExactlyHalfSurvivesAndWeightIsKept) {
  for (std::size_t n : {1, 2, 3, 5, 16, 63, 64, 65, 255, 256, 257, 700, 1001}) {
    for (std::size_t block : {2, 64, 256, 4096}) {
      const Tokens data = random_tokens(n, 8, 4, n + block);
      BalanceOptions options = options_for(8);
      options.block = block;
      SoftmaxBalance rule(options);
      WeightedTokens tokens = data.weighted();
      EXPECT_EQ(halve(rule, tokens, (n + 1) / 2), (n + 1) / 2);
      EXPECT_EQ(tokens.size(), n / 2);
      if (n > 1) {
        EXPECT_NEAR(weight_sum(tokens) / static_cast<double>(n), 1, 1e-4);
      }
      EXPECT_EQ(tokens.log_weights, tokens.log_normalisers);
      EXPECT_TRUE(std::is_sorted(tokens.positions.begin(), tokens.positions.end()));
    }
  }
}

TEST(SoftmaxBalance, DropsAnyNumberFromTheOldest) {
  const std::size_t n = 500;
  const Tokens data = random_tokens(n, 8, 4, 5);
  for (std::size_t drop : {0, 1, 7, 50, 100, 249, 250}) {
    SoftmaxBalance rule(options_for(8));
    WeightedTokens tokens = data.weighted();
    EXPECT_EQ(halve(rule, tokens, drop), drop);
    EXPECT_NEAR(weight_sum(tokens), static_cast<double>(n), 1e-2);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      if (tokens.positions[i] >= static_cast<Position>(2 * drop)) {
        EXPECT_EQ(tokens.log_weights[i], 0.0f) << "the rest stays exactly";
      }
    }
  }
}

TEST(SoftmaxBalance, AuthorsWeightsDoubleInBothSums) {
  const Tokens data = random_tokens(512, 8, 4, 6);
  BalanceOptions options = options_for(8);
  options.weights = BalanceOptions::Weights::authors;
  SoftmaxBalance rule(options);
  WeightedTokens tokens = data.weighted();
  for (std::uint32_t round = 0; round < 3; ++round) halve(rule, tokens, tokens.size() / 2, round);
  ASSERT_EQ(tokens.size(), 64u);
  std::set<int> powers;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    EXPECT_FLOAT_EQ(std::exp(tokens.log_normalisers[i]), 8.0f);
    const float power = tokens.log_weights[i] / std::log(2.0f);
    EXPECT_NEAR(power, std::round(power), 1e-5);
    powers.insert(static_cast<int>(std::round(power)));
  }
  EXPECT_TRUE(powers.contains(3));
  EXPECT_LE(*powers.rbegin(), 3);
}

TEST(SoftmaxBalance, TheoryKeepsTheSmallerClassWithTwiceTheWeight) {
  for (std::size_t n : {1, 2, 3, 64, 200, 301}) {
    const Tokens data = random_tokens(n, 4, 3, n);
    BalanceOptions options = options_for(4);
    options.mode = BalanceOptions::Mode::theory;
    options.block = 100;
    SoftmaxBalance rule(options);
    WeightedTokens tokens = data.weighted();
    EXPECT_GE(halve(rule, tokens, (n + 1) / 2), (n + 1) / 2);
    EXPECT_LE(tokens.size(), n / 2);
    for (float w : tokens.log_weights) EXPECT_FLOAT_EQ(w, std::log(2.0f));
    for (float w : tokens.log_normalisers) EXPECT_FLOAT_EQ(w, std::log(2.0f));
    EXPECT_EQ(rule.blocks(), (n + 99) / 100);
    EXPECT_EQ(rule.failures(), 0u);
  }
}

TEST(SoftmaxBalance, SameSeedSameResult) {
  const Tokens data = random_tokens(300, 8, 4, 8);
  auto kept = [&](std::uint64_t seed, std::uint32_t round) {
    BalanceOptions options = options_for(8, seed);
    options.gamma = 0.01;  // so that draws decide
    SoftmaxBalance rule(options);
    WeightedTokens tokens = data.weighted();
    halve(rule, tokens, 150, round);
    return tokens.positions;
  };
  EXPECT_EQ(kept(1, 0), kept(1, 0));
  EXPECT_NE(kept(1, 0), kept(2, 0));
  EXPECT_NE(kept(1, 0), kept(1, 1));
}

TEST(SoftmaxBalance, StrangeTokens) {
  for (float size : {0.0f, 1e-30f, 1e4f, 1e15f}) {
    for (bool zero_values : {false, true}) {
      Tokens data = random_tokens(130, 16, 4, 9, size);
      if (zero_values) data.values = Matrix(130, 4);
      for (auto mode : {BalanceOptions::Mode::practical, BalanceOptions::Mode::theory}) {
        BalanceOptions options = options_for(16);
        options.mode = mode;
        SoftmaxBalance rule(options);
        WeightedTokens tokens = data.weighted();
        halve(rule, tokens, 65);
        EXPECT_LE(tokens.size(), 65u);
        EXPECT_GT(tokens.size(), 20u);
        for (float w : tokens.log_weights) EXPECT_TRUE(std::isfinite(w));
      }
    }
  }
}

TEST(SoftmaxBalance, BalancesWhateverTheStorageType) {
  const Tokens data = random_tokens(200, 32, 32, 10);
  for (StorageType type : {StorageType::bf16, StorageType::f16, StorageType::int8}) {
    Rows keys(type, 32, 200), values(type, 32, 200);
    for (std::size_t i = 0; i < 200; ++i) {
      keys.set(i, data.keys[i]);
      values.set(i, data.values[i]);
    }
    Tokens rounded{Matrix(200, 32), Matrix(200, 32)};
    keys.view(0, 200).decode(rounded.keys.view());
    values.view(0, 200).decode(rounded.values.view());
    SoftmaxBalance rule(options_for(32));
    WeightedTokens stored = data.weighted(), plain = rounded.weighted();
    stored.keys = keys.view(0, 200);
    stored.values = values.view(0, 200);
    halve(rule, stored, 100);
    halve(rule, plain, 100);
    EXPECT_EQ(stored.positions, plain.positions);
  }
}

/// ‖Σ η_i e^{scale·<k_i,q>} v_i‖ summed over queries in quadrature, for signs that keep `kept`.
double discrepancy(const Tokens& data, const std::vector<bool>& kept, const Matrix& queries,
                   double scale) {
  double total = 0;
  for (std::size_t q = 0; q < queries.rows(); ++q) {
    std::vector<double> sum(data.values.cols());
    for (std::size_t i = 0; i < data.size(); ++i) {
      const double e = factor(data.keys[i], queries[q], scale) * (kept[i] ? 1 : -1);
      for (std::size_t c = 0; c < sum.size(); ++c) sum[c] += e * data.values[i][c];
    }
    total += std::inner_product(sum.begin(), sum.end(), sum.begin(), 0.0);
  }
  return std::sqrt(total);
}

double slope(const std::vector<double>& x, const std::vector<double>& y) {
  const double n = static_cast<double>(x.size());
  const double mx = std::accumulate(x.begin(), x.end(), 0.0) / n;
  const double my = std::accumulate(y.begin(), y.end(), 0.0) / n;
  double xy = 0, xx = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    xy += (x[i] - mx) * (y[i] - my);
    xx += (x[i] - mx) * (x[i] - mx);
  }
  return xy / xx;
}

TEST(SoftmaxBalance, ErrorGrowsLikeALogarithmAndThatOfSamplingLikeARoot) {
  const double scale = 1 / std::sqrt(2.0);
  std::vector<double> log_n, log_balance, log_uniform;
  for (std::size_t n : {128, 256, 512, 1024, 2048, 4096}) {
    double balance = 0, uniform = 0;
    for (std::uint64_t seed = 0; seed < 6; ++seed) {
      const Tokens data = random_tokens(n, 2, 2, 100 + seed, 0.7f);
      const Matrix queries = random_matrix(8, 2, 200 + seed, 0.7f);
      BalanceOptions options = options_for(2, seed);
      options.block = 65536;
      SoftmaxBalance rule(options);
      WeightedTokens tokens = data.weighted();
      halve(rule, tokens, n / 2);
      std::vector<bool> kept(n, false), sampled(n, false);
      for (Position p : tokens.positions) kept[static_cast<std::size_t>(p)] = true;
      balance += discrepancy(data, kept, queries, scale);
      std::fill_n(sampled.begin(), n / 2, true);
      std::mt19937_64 rng(seed);
      std::shuffle(sampled.begin(), sampled.end(), rng);
      uniform += discrepancy(data, sampled, queries, scale);
    }
    log_n.push_back(std::log(static_cast<double>(n)));
    log_balance.push_back(std::log(balance));
    log_uniform.push_back(std::log(uniform));
  }
  const double of_balance = slope(log_n, log_balance), of_uniform = slope(log_n, log_uniform);
  EXPECT_NEAR(of_uniform, 0.5, 0.15);
  EXPECT_LT(of_balance, 0.25);
  EXPECT_LT(std::exp(log_balance.back()), std::exp(log_uniform.back()) / 4);
}

// Theorem 3.3: the two halves differ by at most O(√s·ln(ns/δ)·e^{|q|²·scale/2}·R) for each query.
TEST(SoftmaxBalance, TheoryMeetsTheTheoremsBound) {
  const std::size_t n = 1024, s = 2;
  const double scale = 1 / std::sqrt(3.0), delta = 0.01;
  std::size_t beyond = 0, seen = 0;
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    const Tokens data = random_tokens(n, 3, s, seed, 0.5f);
    BalanceOptions options = options_for(3, seed);
    options.mode = BalanceOptions::Mode::theory;
    options.block = 65536;
    options.delta = delta;
    SoftmaxBalance rule(options);
    WeightedTokens tokens = data.weighted();
    halve(rule, tokens, n / 2);
    std::vector<bool> kept(n, false);
    for (Position p : tokens.positions) kept[static_cast<std::size_t>(p)] = true;
    double key = 0, value = 0;
    for (std::size_t i = 0; i < n; ++i) {
      key = std::max(key, std::inner_product(data.keys[i].begin(), data.keys[i].end(),
                                             data.keys[i].begin(), 0.0));
      value = std::max(value, std::inner_product(data.values[i].begin(), data.values[i].end(),
                                                 data.values[i].begin(), 0.0));
    }
    const Matrix queries = random_matrix(20, 3, 300 + seed, 0.5f);
    for (std::size_t q = 0; q < 20; ++q) {
      const double norm =
          std::inner_product(queries[q].begin(), queries[q].end(), queries[q].begin(), 0.0);
      const double bound = std::sqrt(double{s}) * std::log(n * s / delta) *
                           std::exp(norm * scale / 2 + key * scale / 2) * std::sqrt(value);
      Matrix one(1, 3);
      std::copy(queries[q].begin(), queries[q].end(), one[0].begin());
      beyond += discrepancy(data, kept, one, scale) > bound ? 1 : 0;
      ++seen;
    }
  }
  EXPECT_LE(beyond, seen / 100);
}

}  // namespace
}  // namespace ballast::test
