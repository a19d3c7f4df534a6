#include "methods/scored_support.h"

namespace ballast::test {
namespace {

TEST(RKv, Contract) {
  check_contract({.method = "rkv:budget=64", .any_chunking = false});
  check_contract({.method = "rkv:budget=64,lambda=0.7,kernel=1", .any_chunking = false});
}

std::vector<double> direct(const HeadStream& stream, double lambda, double similar,
                           std::ptrdiff_t reach) {
  const auto n = static_cast<std::ptrdiff_t>(stream.size());
  const auto dot = [&](std::ptrdiff_t i, std::ptrdiff_t j) {
    double sum = 0;
    for (std::size_t c = 0; c < stream.keys.cols(); ++c)
      sum += double{stream.keys[std::size_t(i)][c]} * stream.keys[std::size_t(j)][c];
    return sum;
  };
  std::vector<double> redundancy(stream.size()), out;
  double attention = 0, all = 0;
  for (std::ptrdiff_t i = 0; i < n; ++i) {
    attention += double{stream.attention_sum[std::size_t(i)]};
    std::vector<double> row(stream.size());
    std::ptrdiff_t last = -1;
    for (std::ptrdiff_t j = 0; j < n; ++j) {
      const double lengths = std::sqrt(dot(i, i) * dot(j, j));
      if (i == j || lengths == 0) continue;
      row[std::size_t(j)] = dot(i, j) / lengths;
      if (row[std::size_t(j)] > similar) last = j;
    }
    if (last >= 0) row[std::size_t(last)] = 0;
    for (std::size_t j = 0; j < stream.size(); ++j) redundancy[j] += row[j] / double(n);
  }
  for (double& x : redundancy) all += x = std::exp(x);
  for (std::ptrdiff_t i = 0; i < n; ++i) {
    double most = 0;
    for (std::ptrdiff_t j = 0; j < n; ++j) {
      if (std::abs(i - j) <= reach)
        most = std::max(most, double{stream.attention_sum[std::size_t(j)]});
    }
    out.push_back(lambda * (attention > 0 ? most / attention : 0) -
                  (1 - lambda) * redundancy[std::size_t(i)] / all);
  }
  return out;
}

TEST(RKv, FollowsTheFormula) {
  for (std::size_t n : {0u, 1u, 2u, 3u, 51u, 300u}) {
    for (std::size_t dim : {1u, 3u, 16u}) {
      for (std::size_t capacity : {1u, 20u, 333u}) {
        HeadStream stream = random_stream(n, dim, n + dim + capacity);
        if (n > 2) std::ranges::fill(stream.keys[1], 0.0f);
        expect_follows(setup_of("rkv:budget=9,lambda=0.3,kernel=5,similar=0.45", capacity, dim,
                                Protocol::prefill, n),
                       stream, 1e-5, [](const HeadStream& s) { return direct(s, 0.3, 0.45, 2); });
      }
    }
  }
}

TEST(RKv, OfTokensThatRepeatTheLastStays) {
  HeadStream stream = random_stream(40, 64, 3);
  std::ranges::fill(stream.attention_sum, 1.0f);
  for (const std::size_t i : {5u, 17u, 23u, 29u, 33u}) {
    std::ranges::copy(stream.keys[11], stream.keys[i].begin());
  }
  auto summary = make_summary(setup_of("rkv:budget=9", 35, 64));
  summary->absorb(stream.block(0, 40));
  const std::vector<Position> kept = kept_positions(*summary);
  EXPECT_EQ(std::ranges::count(kept, 33), 1);
  for (const Position gone : {5, 11, 17, 23, 29}) {
    EXPECT_EQ(std::ranges::count(kept, gone), 0) << gone;
  }
}

TEST(RKv, EvictsWhatItGenerates) {
  EXPECT_FALSE(Policy::parse("rkv").keeps_generated());
  EXPECT_EQ(Policy::parse("rkv").observed(), 8u);
}

}  // namespace
}  // namespace ballast::test
