// Methods that score all candidates: their scores against a formula, their choice against these.
#pragma once

#include <functional>
#include <numeric>

#include "ballast/testing/summary_contract.h"

namespace ballast::test {

inline std::vector<float> scores_of(SummarySetup setup, const Block& block) {
  setup.capacity = 0;
  std::vector<float> out(block.size());
  make_summary(setup)->scores(block, out);
  return out;
}

/// The `count` best of the scores, of equals the later; ascending.
inline std::vector<Position> best(const std::vector<double>& scores, std::size_t count) {
  std::vector<std::pair<double, Position>> ranked;
  for (std::size_t i = 0; i < scores.size(); ++i)
    ranked.push_back({scores[i], static_cast<Position>(i)});
  std::ranges::sort(ranked, std::greater());
  std::vector<Position> out;
  for (std::size_t i = 0; i < std::min(count, ranked.size()); ++i) out.push_back(ranked[i].second);
  std::ranges::sort(out);
  return out;
}

/// `formula` in float64 gives what the method scores by, and the best of that stay.
inline void expect_follows(const SummarySetup& setup, const HeadStream& stream, double tolerance,
                           const std::function<std::vector<double>(const HeadStream&)>& formula) {
  const Block block = stream.block(0, stream.size());
  const std::vector<float> scores = scores_of(setup, block);
  const std::vector<double> want = formula(stream);
  ASSERT_EQ(want.size(), scores.size());
  for (std::size_t i = 0; i < scores.size(); ++i)
    ASSERT_NEAR(scores[i], want[i], tolerance * (1 + std::abs(want[i]))) << "token " << i;
  auto summary = make_summary(setup);
  summary->absorb(block);
  ASSERT_EQ(kept_positions(*summary), best({scores.begin(), scores.end()}, setup.capacity));
}

}  // namespace ballast::test
