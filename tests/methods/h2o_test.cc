#include <cstring>
#include <map>
#include <set>

#include "ballast/testing/summary_contract.h"

namespace ballast::test {
namespace {

TEST(H2o, Contract) {
  check_contract({.method = "h2o:budget=64"});
  check_contract({.method = "h2o:budget=64,score=mean", .any_chunking = false});
  check_contract({.method = "h2o:budget=64,keep=light"});
}

// The cache as the paper has it: a set of positions and their scores, one token at a time.
struct NaiveH2o {
  std::size_t capacity;
  bool mean = false;
  std::map<Position, double> scores;
  bool light = false;

  void take(Position position, double score, Position now) {
    scores[position] = score;
    if (scores.size() <= capacity) return;
    auto of = [&](const auto& e) {
      const double score = mean ? e.second / std::max<Position>(1, now - e.first) : e.second;
      return light ? -score : score;
    };
    auto worst = scores.begin();
    for (auto it = scores.begin(); it != scores.end(); ++it) {
      if (of(*it) < of(*worst)) worst = it;  // of equals the older goes
    }
    scores.erase(worst);
  }
};

TEST(H2o, FollowsTheNaiveSimulationStepByStep) {
  for (const char* method :
       {"h2o:budget=9", "h2o:budget=9,score=mean", "h2o:budget=9,keep=light"}) {
    for (std::size_t capacity : {1u, 2u, 9u, 40u}) {
      auto setup = setup_of(method, capacity, 4);
      auto summary = make_summary(setup);
      NaiveH2o naive{capacity,
                     std::strstr(method, "mean") != nullptr,
                     {},
                     std::strstr(method, "light") != nullptr};
      HeadStream stream = random_stream(300, 4, capacity);
      // Coarse attention sums make ties frequent.
      for (float& m : stream.attention_sum) m = std::round(m * 4.0f) / 4.0f;
      std::mt19937_64 rng(capacity);
      for (std::size_t i = 0; i < stream.size(); ++i) {
        Block block = stream.block(i, 1);
        std::vector<float> attention_sum;
        std::vector<Segment> segments = segments_of(*summary);
        for (const Segment& s : segments) {
          for (std::size_t e = 0; e < s.keys.rows; ++e) {
            attention_sum.push_back(static_cast<float>(rng() % 8) / 8.0f);
            naive.scores[s.positions[e]] += attention_sum.back();
          }
        }
        summary->observe(attention_sum);
        summary->absorb(block);
        naive.take(block.first, block.attention_sum[0], block.now);
        std::vector<Position> expected;
        for (const auto& [position, score] : naive.scores) expected.push_back(position);
        ASSERT_EQ(kept_positions(*summary), expected) << "capacity " << capacity << ", token " << i;
      }
    }
  }
}

TEST(H2o, OneLargeBlockKeepsTheHeaviest) {
  const HeadStream stream = random_stream(3000, 4, 5);
  for (std::size_t capacity : {1u, 10u, 700u, 2999u}) {
    auto summary = make_summary(setup_of("h2o:budget=9", capacity, 4, Protocol::prefill, 3000));
    summary->absorb(stream.block(0, 3000));
    std::vector<Position> order(3000);
    for (std::size_t i = 0; i < 3000; ++i) order[i] = static_cast<Position>(i);
    std::ranges::stable_sort(order, [&](Position a, Position b) {
      return stream.attention_sum[static_cast<std::size_t>(a)] >
             stream.attention_sum[static_cast<std::size_t>(b)];
    });
    order.resize(capacity);
    std::ranges::sort(order);
    EXPECT_EQ(kept_positions(*summary), order);
  }
}

TEST(H2o, TheNewcomerTakesTheSlotOfTheEvicted) {
  auto summary = make_summary(setup_of("h2o:budget=9", 8, 4));
  HeadStream stream = random_stream(200, 4, 6);
  summary->absorb(stream.block(0, 8));
  for (std::size_t i = 8; i < 200; ++i) {
    const auto before_segments = segments_of(*summary);
    const std::vector<Position> before(before_segments[0].positions,
                                       before_segments[0].positions + 8);
    summary->absorb(stream.block(i, 1));
    const auto after = segments_of(*summary);
    ASSERT_EQ(after[0].keys.data, before_segments[0].keys.data);
    int moved = 0;
    for (std::size_t e = 0; e < 8; ++e) moved += after[0].positions[e] != before[e];
    ASSERT_LE(moved, 1);
    for (std::size_t e = 0; e < 8; ++e) {
      std::vector<float> row(4);
      after[0].values.decode(e, row);
      ASSERT_TRUE(
          std::ranges::equal(row, stream.values[static_cast<std::size_t>(after[0].positions[e])]));
    }
  }
}

TEST(H2o, SaysWhenMassesAreMissing) {
  auto summary = make_summary(setup_of("h2o:budget=9", 8, 4));
  HeadStream stream = random_stream(10, 4, 6);
  Block block = stream.block(0, 4);
  block.attention_sum = {};
  EXPECT_THAT(error_of([&] { summary->absorb(block); }), testing::HasSubstr("4 tokens"));
  std::vector<float> attention_sum(2);
  EXPECT_THAT(error_of([&] { summary->observe(attention_sum); }),
              testing::HasSubstr("2 attention sums"));
}

TEST(H2o, HalfOfTheBudgetIsRecent) {
  const Budget budget = Policy::parse("h2o:budget=101").budget(0, Protocol::stream);
  EXPECT_EQ(budget.sink, 0u);
  EXPECT_EQ(budget.window, 50u);
  EXPECT_EQ(budget.summary, 50u);
  EXPECT_EQ(budget.step, 1u);
}

}  // namespace
}  // namespace ballast::test
