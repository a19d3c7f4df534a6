#include <set>

#include "ballast/testing/summary_contract.h"

namespace ballast::test {
namespace {

TEST(TopK, Contract) {
  check_contract({.method = "topk:budget=64"});
  check_contract({.method = "topk:budget=64,heavy=0.5"});
  check_contract({.method = "topk:budget=64,heavy=1"});
}

struct Token {
  Position position;
  float latest = 0;
  float attention_sum = 0;
};

std::set<Position> best(std::vector<Token> tokens, std::size_t count, float Token::*score) {
  std::ranges::sort(tokens, [&](const Token& a, const Token& b) {
    return std::pair(a.*score, a.position) > std::pair(b.*score, b.position);
  });
  std::set<Position> out;
  for (std::size_t i = 0; i < std::min(count, tokens.size()); ++i) out.insert(tokens[i].position);
  return out;
}

// With and without heavy hitters against the definition, the attention sums changing at every step.
TEST(TopK, FollowsTheNaiveSimulation) {
  for (std::size_t heavy : {0u, 4u, 12u}) {
    const std::size_t capacity = 12;
    const std::string method = "topk:budget=20,heavy=" + std::to_string(double(heavy) / 12.0);
    auto summary = make_summary(setup_of(method, capacity, 4));
    std::vector<Token> cache;
    HeadStream stream = random_stream(400, 4, 1);
    std::mt19937_64 rng(2);
    auto draw = [&] { return static_cast<float>(rng() % 32) / 32.0f; };
    HeadStream recent = random_stream(400, 4, 1);
    for (std::size_t done = 0; done < 400;) {
      const std::size_t count = std::min<std::size_t>(400 - done, done == 0 ? 40 : 1 + rng() % 3);
      std::vector<float> attention_sum;
      recent.held.clear();
      for (const Segment& s : segments_of(*summary)) {
        for (std::size_t e = 0; e < s.keys.rows; ++e) {
          Token& token = *std::ranges::find(cache, s.positions[e], &Token::position);
          attention_sum.push_back(draw());
          recent.held.push_back(draw());
          token.attention_sum += attention_sum.back();
          token.latest = recent.held.back();
        }
      }
      for (std::size_t i = done; i < done + count; ++i) {
        stream.attention_sum[i] = draw();
        recent.attention_sum[i] = draw();
        cache.push_back(
            {static_cast<Position>(i), recent.attention_sum[i], stream.attention_sum[i]});
      }
      Block block = stream.block(done, count);
      block.observed = &recent;
      if (heavy > 0) summary->observe(attention_sum);
      summary->observe_recent(recent);
      summary->absorb(block);
      done += count;
      auto kept = best(cache, capacity - heavy, &Token::latest);
      std::vector<Token> rest = cache;
      std::erase_if(rest, [&](const Token& t) { return kept.contains(t.position); });
      kept.merge(best(rest, heavy, &Token::attention_sum));
      std::erase_if(cache, [&](const Token& t) { return !kept.contains(t.position); });
      ASSERT_EQ(kept_positions(*summary), std::vector<Position>(kept.begin(), kept.end()));
    }
  }
}

TEST(TopK, WatchesWhatItsParametersNeed) {
  EXPECT_FALSE(Policy::parse("topk:budget=9").needs().attention_sums);
  EXPECT_EQ(Policy::parse("topk:budget=9").observed(), 1u);
  EXPECT_TRUE(Policy::parse("topk:budget=9,heavy=0.5").needs().attention_sums);
  EXPECT_TRUE(Policy::parse("topk:budget=9,heavy=0.5").needs().recent_queries);
  EXPECT_EQ(Policy::parse("topk:budget=9,heavy=0.5").observed(), 1u);
}

}  // namespace
}  // namespace ballast::test
