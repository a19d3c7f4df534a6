#include "base/interval.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace ballast
