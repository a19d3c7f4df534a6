#include "experiments/metrics/interval.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

namespace ballast {
namespace {

// Newcombe, Stat. Med. 17 (1998), table I, method 3.
TEST(Wilson, MatchesPublishedIntervals) {
  const auto expect = [](double successes, std::size_t n, double low, double high) {
    const Interval found = wilson(successes / static_cast<double>(n), n);
    EXPECT_NEAR(found.low, low, 5e-5) << successes << " of " << n;
    EXPECT_NEAR(found.high, high, 5e-5) << successes << " of " << n;
  };
  expect(81, 263, 0.2553, 0.3662);
  expect(15, 148, 0.0624, 0.1605);
  expect(0, 20, 0, 0.1611);
  expect(1, 29, 0.0061, 0.1718);
}

TEST(Wilson, HoldsTheShareAtTheEnds) {
  for (std::size_t n : {std::size_t{1}, std::size_t{7}, std::size_t{100000}}) {
    EXPECT_EQ(wilson(0, n).low, 0);
    EXPECT_EQ(wilson(1, n).high, 1);
    EXPECT_LT(wilson(0, n).high, wilson(0, n - (n > 1)).high + 1e-12);
  }
  EXPECT_EQ(wilson(0.5, 0).low, 0);
  EXPECT_EQ(wilson(0.5, 0).high, 1);
}

/// The largest and smallest difference whose score test does not reject, found by trying out every
/// difference and, for each, every probability of the pairs that differ: no formula of the
/// maximum is used.
Interval tango_by_search(int b, int c, int n) {
  const auto log_likelihood = [&](double first, double second) {
    const auto term = [](int count, double p) {
      return count == 0 ? 0.0 : p <= 0 ? -1e300 : count * std::log(p);
    };
    return term(b, first) + term(c, second) + term(n - b - c, 1 - first - second);
  };
  Interval out{2, -2};
  constexpr int kSteps = 2000;
  for (int i = -kSteps; i <= kSteps; ++i) {
    const double delta = static_cast<double>(i) / kSteps;
    double best = -HUGE_VAL, likeliest = 0;
    for (int j = 0; j <= kSteps; ++j) {
      // `second` may be from max(0, -delta) to where both add up to 1.
      const double low = std::max(0.0, -delta), high = (1 - delta) / 2;
      const double second = low + (high - low) * j / kSteps;
      const double value = log_likelihood(second + delta, second);
      if (value > best) {
        best = value;
        likeliest = second;
      }
    }
    const double variance = n * (2 * likeliest + delta - delta * delta);
    const double off = b - c - n * delta;
    if (off * off > 1.959963984540054 * 1.959963984540054 * variance + 1e-9) continue;
    out.low = std::min(out.low, delta);
    out.high = std::max(out.high, delta);
  }
  return out;
}

TEST(Tango, IsWhatTheScoreTestDoesNotReject) {
  for (const auto& [b, c, n] : {std::array{0, 0, 20},
                                {1, 0, 30},
                                {0, 3, 30},
                                {12, 5, 50},
                                {7, 7, 40},
                                {20, 0, 20},
                                {0, 1, 1},
                                {3, 1, 200}}) {
    const Interval found = tango(static_cast<std::size_t>(b), static_cast<std::size_t>(c),
                                 static_cast<std::size_t>(n));
    const Interval expected = tango_by_search(b, c, n);
    EXPECT_NEAR(found.low, expected.low, 2e-3) << b << " " << c << " " << n;
    EXPECT_NEAR(found.high, expected.high, 2e-3) << b << " " << c << " " << n;
    EXPECT_LE(found.low, static_cast<double>(b - c) / n);
    EXPECT_GE(found.high, static_cast<double>(b - c) / n);
  }
}

TEST(Tango, HasAWidthWhereNothingDiffers) {
  constexpr double z = 1.959963984540054;
  const Interval found = tango(0, 0, 200);
  EXPECT_NEAR(found.high, z * z / (200 + z * z), 1e-12);
  EXPECT_NEAR(found.low, -found.high, 1e-12);
  EXPECT_EQ(tango(0, 0, 0).low, -1);
  EXPECT_EQ(tango(0, 0, 0).high, 1);
}

}  // namespace
}  // namespace ballast
