#include "methods/scored_support.h"

namespace ballast::test {
namespace {

TEST(KeyDiff, Contract) { check_contract({.method = "keydiff:budget=64", .any_chunking = false}); }

std::vector<double> direct(const HeadStream& stream) {
  const std::size_t n = stream.size(), dim = stream.keys.cols();
  std::vector<double> anchor(dim), out;
  const auto length = [&](std::size_t i) {
    double square = 0;
    for (float x : stream.keys[i]) square += double{x} * x;
    return std::sqrt(square);
  };
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t c = 0; c < dim; ++c) {
      if (length(i) > 0) anchor[c] += double{stream.keys[i][c]} / length(i) / double(n);
    }
  }
  double most = 0;
  for (double x : anchor) most += x * x;
  for (std::size_t i = 0; i < n; ++i) {
    double dot = 0;
    for (std::size_t c = 0; c < dim; ++c) dot += anchor[c] * stream.keys[i][c];
    const double divisor = std::sqrt(most) * length(i);
    out.push_back(divisor > 0 ? -dot / divisor : 0);
  }
  return out;
}

TEST(KeyDiff, FollowsTheFormula) {
  for (std::size_t n : {0u, 1u, 2u, 3u, 51u, 700u}) {
    for (std::size_t dim : {1u, 3u, 8u, 65u}) {
      for (std::size_t capacity : {0u, 1u, 20u, 333u}) {
        HeadStream stream = random_stream(n, dim, n + dim + capacity);
        if (n > 2) std::ranges::fill(stream.keys[1], 0.0f);
        expect_follows(setup_of("keydiff:budget=9", capacity, dim, Protocol::prefill, n), stream,
                       1e-6, direct);
      }
    }
  }
}

TEST(KeyDiff, AStreamChoosesAnewAmongEntriesAndBlock) {
  const std::size_t dim = 5, capacity = 40;
  const HeadStream stream = random_stream(300, dim, 4);
  auto summary = make_summary(setup_of("keydiff:budget=9", capacity, dim));
  std::vector<Position> held;
  for (std::size_t done = 0; done < 300; done += 20) {
    for (std::size_t i = done; i < done + 20; ++i) held.push_back(static_cast<Position>(i));
    HeadStream candidates = random_stream(held.size(), dim, 1);
    for (std::size_t i = 0; i < held.size(); ++i)
      std::ranges::copy(stream.keys[std::size_t(held[i])], candidates.keys[i].begin());
    std::vector<Position> stays;
    for (Position i : best(direct(candidates), capacity)) stays.push_back(held[std::size_t(i)]);
    held = stays;
    summary->absorb(stream.block(done, 20));
    ASSERT_EQ(kept_positions(*summary), held);
  }
}

TEST(KeyDiff, ReadsAPromptWhole) {
  const Budget budget = Policy::parse("keydiff:budget=100").budget(5000, Protocol::prefill);
  EXPECT_EQ(budget.summary, 100u);
  EXPECT_EQ(budget.sink + budget.window, 0u);
  EXPECT_FALSE(Policy::parse("keydiff").needs().all_queries());
}

}  // namespace
}  // namespace ballast::test
