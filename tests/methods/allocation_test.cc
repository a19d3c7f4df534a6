#include "methods/allocation.h"

#include <cmath>
#include <functional>

#include "ballast/error.h"
#include "support.h"

namespace ballast::test {
namespace {

std::vector<Tier> tiers_of(std::vector<std::pair<std::size_t, double>> bytes_and_distortion) {
  std::vector<Tier> out;
  for (auto [bytes, distortion] : bytes_and_distortion) {
    out.push_back({StorageType::int8, StorageType::int8, bytes, distortion});
  }
  return out;
}

/// All entries of a head, of which the first and last ones are kept in any case.
ScoredRun run_of(std::uint32_t head, std::span<const float> scores, int first, int last) {
  ScoredRun run;
  run.head = head;
  run.scores = scores;
  run.first = first;
  run.last = static_cast<Position>(scores.size()) - last;
  return run;
}

bool is_kept(const ScoredRun& run, std::size_t i) {
  const auto at = static_cast<Position>(i) + run.first_position;
  return at < run.first || at >= run.last || run.scores[i] > run.floor;
}

/// The sum of score times distortion; of entries that are protected with the largest score.
double loss(std::span<const ScoredRun> heads, std::span<const Tier> tiers,
            const std::vector<EntryTiers>& chosen) {
  double most = 0, sum = 0;
  for (const ScoredRun& head : heads) {
    for (float s : head.scores) most = std::max(most, double{s});
  }
  for (std::size_t h = 0; h < heads.size(); ++h) {
    const std::size_t n = heads[h].scores.size();
    for (std::size_t i = 0; i < n; ++i) {
      const ScoredRun& run = heads[h];
      const auto at = static_cast<Position>(i) + run.first_position;
      const bool ends = at < run.first || at >= run.last;
      const double score = ends ? most : double{run.scores[i]};
      const std::size_t t = chosen[h][i];
      sum += score * (t < tiers.size() ? tiers[t].distortion : 1.0);
    }
  }
  return sum;
}

std::size_t bytes_of(std::span<const Tier> tiers, const std::vector<EntryTiers>& chosen) {
  std::size_t bytes = 0;
  for (const EntryTiers& head : chosen) {
    for (std::uint8_t t : head) bytes += t < tiers.size() ? tiers[t].bytes : 0;
  }
  return bytes;
}

/// The least loss of all assignments.
double exhaustive(std::span<const ScoredRun> heads, std::span<const Tier> tiers,
                  std::size_t budget) {
  std::vector<EntryTiers> chosen;
  std::vector<std::pair<std::size_t, std::size_t>> places;
  for (std::size_t h = 0; h < heads.size(); ++h) {
    chosen.emplace_back(heads[h].scores.size());
    for (std::size_t i = 0; i < heads[h].scores.size(); ++i) places.emplace_back(h, i);
  }
  double best = HUGE_VAL;
  std::function<void(std::size_t)> go = [&](std::size_t p) {
    if (p == places.size()) {
      if (bytes_of(tiers, chosen) <= budget) best = std::min(best, loss(heads, tiers, chosen));
      return;
    }
    const auto [h, i] = places[p];
    const std::size_t kept = is_kept(heads[h], i) ? 0 : 1;
    for (std::size_t t = heads[h].best; t < tiers.size() + kept; ++t) {
      chosen[h][i] = static_cast<std::uint8_t>(t);
      go(p + 1);
    }
  };
  go(0);
  return best;
}

TEST(Allocation, IsWithinOneEntrysGainOfTheBest) {
  const std::vector<Tier> tiers = tiers_of({{140, 1e-4}, {72, 0.01}, {40, 0.1175}});
  std::mt19937 random(4);
  for (int turn = 0; turn < 60; ++turn) {
    std::vector<std::vector<float>> scores(2);
    for (auto& head : scores) {
      for (int i = 0; i < 4; ++i) {
        head.push_back(
            turn % 3 == 0 ? static_cast<float>(random() % 3)
                          : std::pow(10.0f, -4.0f * static_cast<float>(random() % 1000) / 1000.0f));
      }
    }
    const std::vector<ScoredRun> heads = {run_of(0, scores[0], 1, 0), run_of(1, scores[1], 0, 1)};
    const std::size_t budget = 80 + random() % 1100;
    const Allocation got = allocate(heads, tiers, budget);
    EXPECT_LE(got.bytes, budget);
    EXPECT_EQ(got.bytes, bytes_of(tiers, got.runs));
    float most = 0;
    for (const auto& head : scores) {
      for (float s : head) most = std::max(most, s);
    }
    const double best = exhaustive(heads, tiers, budget);
    EXPECT_LE(loss(heads, tiers, got.runs), best + double{most} + 1e-9) << turn;
    EXPECT_GE(loss(heads, tiers, got.runs), best - 1e-9) << turn;
  }
}

TEST(Allocation, NoEntryGetsABetterTierThanItMayOrLessThanItsFloor) {
  const std::vector<Tier> tiers = tiers_of({{140, 1e-4}, {72, 0.01}, {40, 0.1175}});
  std::mt19937 random(8);
  for (int turn = 0; turn < 60; ++turn) {
    // Two heads of two runs each, of two entries.
    std::vector<std::vector<float>> scores(4, std::vector<float>(2));
    std::vector<ScoredRun> heads;
    for (std::uint32_t r = 0; r < 4; ++r) {
      for (float& s : scores[r]) s = static_cast<float>(random() % 1000) / 1000.0f;
      heads.push_back(run_of(r / 2, scores[r], r == 0 ? 1 : 0, r == 3 ? 1 : 0));
      heads.back().first_position = 2 * static_cast<Position>(r % 2);
      heads.back().last += heads.back().first_position;
      heads.back().best = static_cast<std::uint8_t>(random() % 3);
      if (turn % 2 == 0) heads.back().floor = 0.8f;
    }
    const std::size_t budget = 320 + random() % 700;
    const Allocation got = allocate(heads, tiers, budget);
    EXPECT_LE(got.bytes, budget);
    EXPECT_EQ(got.bytes, bytes_of(tiers, got.runs));
    for (std::size_t r = 0; r < 4; ++r) {
      for (std::size_t i = 0; i < 2; ++i) {
        EXPECT_GE(got.runs[r][i], heads[r].best);
        EXPECT_TRUE(!is_kept(heads[r], i) || got.runs[r][i] < tiers.size());
      }
    }
    float most = 0;
    for (const auto& head : scores) most = std::max(most, std::ranges::max(head));
    const double least = exhaustive(heads, tiers, budget);
    EXPECT_LE(loss(heads, tiers, got.runs), least + double{most} + 1e-9) << turn;
    EXPECT_GE(loss(heads, tiers, got.runs), least - 1e-9) << turn;
  }
}

TEST(Allocation, SpendsABudgetAmongTies) {
  // Attention that is saturated gives many entries the same score.
  const std::vector<Tier> tiers = tiers_of({{140, 1e-4}, {72, 0.01}});
  const std::vector<float> scores(1000, 1.0f);
  const std::vector<ScoredRun> heads = {run_of(0, scores, 0, 0)};
  for (std::size_t budget : {0u, 71u, 72u, 500u, 40000u, 72000u, 100000u, 140000u, 200000u}) {
    const Allocation got = allocate(heads, tiers, budget);
    EXPECT_LE(got.bytes, budget);
    const std::size_t most = std::min<std::size_t>(budget, 140000);
    EXPECT_GE(got.bytes + 72, most) << budget;
    // The earlier of equals comes first.
    EXPECT_TRUE(std::ranges::is_sorted(got.runs[0]));
  }
}

TEST(Allocation, NeverPassesItsBudget) {
  std::mt19937 random(9);
  for (int turn = 0; turn < 300; ++turn) {
    std::vector<std::vector<float>> scores(1 + random() % 6);
    std::vector<ScoredRun> heads;
    std::size_t kept = 0;
    for (auto& head : scores) {
      head.resize(random() % 50);
      for (float& s : head) s = random() % 4 == 0 ? 0.0f : std::ldexp(1.0f, -int(random() % 40));
      heads.push_back(
          run_of(static_cast<std::uint32_t>(heads.size()), head, 2, std::min(1, int(head.size()))));
      kept += std::min<std::size_t>(head.size(), 3);
    }
    const std::vector<Tier> tiers =
        parse_tiers("int8+int4", 1 + random() % 256, 1 + random() % 256);
    const std::size_t least = kept * tiers[safe_tier(tiers)].bytes;
    const std::size_t budget = least + random() % 20000;
    const Allocation got = allocate(heads, tiers, budget);
    EXPECT_LE(got.bytes, budget);
    EXPECT_EQ(got.bytes, bytes_of(tiers, got.runs));
    for (std::size_t h = 0; h < heads.size(); ++h) {
      for (std::size_t i = 0; i < scores[h].size(); ++i) {
        const bool ends = i < 2 || i + 1 >= scores[h].size();
        EXPECT_LT(got.runs[h][i], ends ? safe_tier(tiers) + 1 : tiers.size() + 1);
      }
    }
    if (least > 0) {
      EXPECT_THAT(error_of([&] { allocate(heads, tiers, least - 1); }),
                  testing::HasSubstr(std::to_string(least)));
    }
  }
}

TEST(Allocation, TiesGoByPositionThenHead) {
  const std::vector<Tier> tiers = tiers_of({{10, 0.1}});
  const std::vector<float> scores = {1, 1, 1};
  const std::vector<Position> late = {5, 6, 7}, early = {0, 6, 9};
  const Allocation got =
      allocate(std::vector<ScoredRun>{{.head = 0, .scores = scores, .positions = late},
                                      {.head = 1, .scores = scores, .positions = early}},
               tiers, 40);
  EXPECT_THAT(got.runs[0], testing::ElementsAre(0, 0, 1));
  EXPECT_THAT(got.runs[1], testing::ElementsAre(0, 0, 1));
}

TEST(Tiers, AreOrderedAndOnTheHull) {
  const std::vector<Tier> tiers = parse_tiers("int4+bf16+int8", 64, 64);
  ASSERT_EQ(tiers.size(), 3u);
  EXPECT_EQ(tiers[0].bytes, 260u);
  EXPECT_EQ(tiers[1].bytes, 140u);
  EXPECT_EQ(tiers[2].bytes, 84u);
  // Of types of the same bytes the better one stays.
  EXPECT_EQ(parse_tiers("bf16+f16", 64, 64).size(), 1u);
  EXPECT_THAT(error_of([] { parse_tiers("int8+", 64, 64); }), testing::HasSubstr("storage type"));
  EXPECT_THAT(error_of([] { parse_tiers("q9", 64, 64); }), testing::HasSubstr("q9"));
  std::string many = "int8";
  for (int i = 1; i < 16; ++i) many += "+int4";
  EXPECT_EQ(parse_tiers(many, 64, 64).size(), 2u);
  EXPECT_THAT(error_of([&] { parse_tiers(many + "+int4", 64, 64); }),
              testing::HasSubstr("more than 16"));
}

}  // namespace
}  // namespace ballast::test
