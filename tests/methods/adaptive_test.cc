// AdaKV's division of a layer's budget among its heads.
#include "methods/adaptive.h"

#include "methods/scored_support.h"

namespace ballast::test {
namespace {

/// Entries one by one: every head's safe ones, then always the best of what is left.
std::vector<std::size_t> direct(const std::vector<std::vector<float>>& scores, std::size_t per_head,
                                double floor) {
  const auto safe = static_cast<std::size_t>(floor * double(per_head));
  std::vector<std::size_t> budgets(scores.size());
  std::vector<std::vector<double>> left;
  std::size_t more = per_head * scores.size();
  for (std::size_t h = 0; h < scores.size(); ++h) {
    left.emplace_back(scores[h].begin(), scores[h].end());
    for (Position i : best(left[h], safe)) {
      left[h][std::size_t(i)] = -1;
      ++budgets[h];
      --more;
    }
  }
  for (; more > 0; --more) {
    double most = -1;
    std::size_t head = 0, token = 0;
    for (std::size_t h = 0; h < left.size(); ++h) {
      for (std::size_t i = 0; i < left[h].size(); ++i) {
        if (left[h][i] > most || (left[h][i] == most && most >= 0 && i > token)) {
          most = left[h][i];
          head = h;
          token = i;
        }
      }
    }
    if (most < 0) break;
    left[head][token] = -1;
    ++budgets[head];
  }
  return budgets;
}

TEST(Adaptive, BudgetsAreThoseOfTheAlgorithm) {
  std::mt19937_64 rng(5);
  for (std::size_t heads : {1u, 2u, 3u, 8u}) {
    for (std::size_t n : {0u, 1u, 2u, 31u, 64u}) {
      for (std::size_t per_head : {0u, 1u, 7u, 30u, 64u, 99u}) {
        for (double floor : {0.0, 0.2, 0.5, 1.0}) {
          std::vector<std::vector<float>> scores(heads);
          for (std::vector<float>& head : scores) {
            const auto size = static_cast<float>(1 + rng() % 9);  // heads differ; many ties
            for (std::size_t i = 0; i < n; ++i) head.push_back(size * float(rng() % 13));
          }
          const std::vector<std::size_t> got = adaptive_budgets(scores, per_head, floor);
          ASSERT_EQ(got, direct(scores, per_head, floor))
              << heads << " heads, " << n << " tokens, " << per_head << ", floor " << floor;
          ASSERT_EQ(std::accumulate(got.begin(), got.end(), std::size_t{0}),
                    heads * std::min(n, per_head));
        }
      }
    }
  }
}

TEST(Adaptive, MethodsSayWhetherHeadsDivide) {
  EXPECT_TRUE(has_adaptive_heads(Policy::parse("snapkv:heads=adaptive")));
  EXPECT_FALSE(has_adaptive_heads(Policy::parse("snapkv")));
  EXPECT_TRUE(has_adaptive_heads(Policy::parse("expected-attention")));
  EXPECT_FALSE(has_adaptive_heads(Policy::parse("uniform")));
  EXPECT_THAT(error_of([] { Policy::parse("snapkv:heads=some"); }),
              testing::HasSubstr("uniform|adaptive"));
}

}  // namespace
}  // namespace ballast::test
