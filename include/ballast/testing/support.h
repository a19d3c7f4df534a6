// Random inputs, and the float64 reference of attention. Needs GoogleTest.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "ballast/attention.h"
#include "ballast/error.h"
#include "ballast/matrix.h"

namespace ballast::test {

/// Normal entries of the given deviation.
inline Matrix random_matrix(std::size_t rows, std::size_t cols, std::uint64_t seed,
                            float deviation = 1.0f) {
  std::mt19937_64 rng(seed);
  std::normal_distribution<float> normal(0.0f, deviation);
  Matrix m(rows, cols);
  for (std::size_t i = 0; i < rows * cols; ++i) m.data()[i] = normal(rng);
  return m;
}

/// One entry as the naive reference sees it.
struct PlainEntry {
  std::vector<double> key;
  std::vector<double> value;
  double numerator_weight = 1;
  double normaliser_weight = 1;
};

/// z(q) of algorithms.md in float64: a direct sum after subtracting the largest logit.
/// `logit` maps (entry index, <k,q>·scale) to the final logit (soft-cap, bias, -inf to hide).
inline std::vector<double> naive_attention(
    const std::vector<PlainEntry>& entries, std::span<const float> query, double scale,
    const std::function<double(std::size_t, double)>& logit = {}) {
  std::vector<double> s(entries.size());
  double top = -std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < entries.size(); ++i) {
    double dot = 0;
    for (std::size_t c = 0; c < query.size(); ++c) dot += entries[i].key[c] * double{query[c]};
    s[i] = logit ? logit(i, dot * scale) : dot * scale;
    top = std::max(top, s[i]);
  }
  std::size_t dv = entries.empty() ? 0 : entries[0].value.size();
  std::vector<double> z(dv, 0.0);
  double normaliser = 0, largest_term = 0;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    double e = std::exp(s[i] - top);
    if (!(e > 0)) continue;
    normaliser += entries[i].normaliser_weight * e;
    largest_term = std::max(largest_term, entries[i].numerator_weight * e);
    for (std::size_t c = 0; c < dv; ++c)
      z[c] += entries[i].numerator_weight * e * entries[i].value[c];
  }
  normaliser = std::max(normaliser, largest_term);  // no entry gets more than all of itself
  for (double& x : z) x = normaliser > 0 ? x / normaliser : 0.0;
  return z;
}

/// ‖a − b‖ / ‖b‖ over all numbers.
inline double relative_error(std::span<const float> a, std::span<const double> b) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    difference += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
    size += b[i] * b[i];
  }
  return std::sqrt(difference) / std::max(std::sqrt(size), 1e-300);
}

/// The message of the Error that `action` throws; fails the test when it throws none.
template <typename Action>
std::string error_of(Action&& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "no Error was thrown";
  return {};
}

}  // namespace ballast::test
