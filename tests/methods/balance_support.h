// What the tests of BalanceKV share.
#pragma once

#include <cmath>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "ballast/summary.h"
#include "methods/softmax_balance.h"
#include "support.h"

namespace ballast::test {

struct Tokens {
  Matrix keys, values;
  std::size_t size() const { return keys.rows(); }
  Block block(std::size_t begin, std::size_t count) const {
    Block b;
    b.keys = view_f32(keys.view().slice(begin, count));
    b.values = view_f32(values.view().slice(begin, count));
    b.first = static_cast<Position>(begin);
    b.now = static_cast<Position>(begin + count);
    return b;
  }
  WeightedTokens weighted() const {
    WeightedTokens w;
    w.keys = view_f32(keys.view());
    w.values = view_f32(values.view());
    for (std::size_t i = 0; i < size(); ++i) {
      w.add(static_cast<std::uint32_t>(i), static_cast<Position>(i), 0.0f, 0.0f);
    }
    return w;
  }
};

inline Tokens random_tokens(std::size_t n, std::size_t key_dim, std::size_t value_dim,
                            std::uint64_t seed, float key_size = 1.0f) {
  return {random_matrix(n, key_dim, seed, key_size), random_matrix(n, value_dim, seed + 1000)};
}

/// e^{scale·<k,q>} in float64.
inline double factor(std::span<const float> key, std::span<const float> query, double scale) {
  double dot = 0;
  for (std::size_t i = 0; i < key.size(); ++i) dot += double{key[i]} * query[i];
  return std::exp(scale * dot);
}

/// Mean and its standard error: the statistic of a t-test of "the mean is `expected`".
inline double t_statistic(const std::vector<double>& x, double expected) {
  const double n = static_cast<double>(x.size());
  const double mean = std::accumulate(x.begin(), x.end(), 0.0) / n;
  double square = 0;
  for (double v : x) square += (v - mean) * (v - mean);
  return (mean - expected) / std::max(std::sqrt(square / (n - 1) / n), 1e-300);
}

/// Two-sided 1e-6 of Student's t with hundreds of degrees of freedom.
inline constexpr double kMillionth = 4.95;

inline SummarySetup setup_of(const std::string& method, Protocol protocol, std::size_t capacity,
                             const Tokens& tokens, std::size_t expected = 0) {
  SummarySetup setup;
  setup.policy = Policy::parse(method);
  setup.protocol = protocol;
  setup.capacity = capacity;
  setup.tokens = expected;
  setup.key_dim = tokens.keys.cols();
  setup.value_dim = tokens.values.cols();
  setup.logits.scale = 1.0f / std::sqrt(static_cast<float>(setup.key_dim));
  setup.random = {3, 0, 0};
  return setup;
}

inline double total_weight(const Summary& summary, bool normaliser = false) {
  double sum = 0;
  for (const KeptEntry& e : summary.kept()) sum += normaliser ? e.normaliser_weight : e.weight;
  return sum;
}

}  // namespace ballast::test
