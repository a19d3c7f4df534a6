#include "ballast/testing/summary_contract.h"

namespace ballast::test {
namespace {

TEST(SnapKv, Contract) {
  check_contract({.method = "snapkv:budget=64", .any_chunking = false});
  check_contract({.method = "snapkv:budget=64,kernel=7,pooling=max", .any_chunking = false});
}

// The formula: pooled score of a token from the attention sums of all candidates by position.
std::vector<Position> direct(const std::vector<std::pair<Position, double>>& candidates,
                             std::size_t capacity, Position kernel, bool maximum) {
  std::vector<std::pair<double, Position>> scores;
  for (const auto& [p, own] : candidates) {
    double pooled = 0;
    for (const auto& [other, attention_sum] : candidates) {
      if (std::abs(other - p) > kernel / 2) continue;
      pooled = maximum ? std::max(pooled, attention_sum) : pooled + attention_sum;
    }
    scores.push_back({maximum ? pooled : pooled / kernel, p});
  }
  std::ranges::sort(scores, std::greater());  // of equals the newer first
  scores.resize(std::min(capacity, scores.size()));
  std::vector<Position> kept;
  for (const auto& s : scores) kept.push_back(s.second);
  std::ranges::sort(kept);
  return kept;
}

// Masses that float sums hold exactly, so that ties are ties in both computations.
void make_exact(std::vector<float>& attention_sum, bool distinct) {
  for (std::size_t i = 0; i < attention_sum.size(); ++i) {
    attention_sum[i] = distinct ? std::round(attention_sum[i] * 65536.0f) / 65536.0f
                                : std::round(attention_sum[i] * 4.0f) / 4;
  }
}

TEST(SnapKv, OneBlockFollowsTheFormula) {
  for (const char* options : {"", ",pooling=max", ",kernel=1", ",kernel=9,pooling=max"}) {
    const std::string method = std::string("snapkv:budget=99") + options;
    const Policy policy = Policy::parse(method);
    const bool maximum = policy.choice("pooling") == "max";
    const auto kernel = static_cast<Position>(policy.integer("kernel"));
    for (std::size_t n : {1u, 3u, 50u, 2000u}) {
      for (std::size_t capacity : {1u, 20u, 700u}) {
        HeadStream stream = random_stream(n, 4, n + capacity, 0);
        make_exact(stream.attention_sum, true);
        std::vector<std::pair<Position, double>> candidates;
        for (std::size_t i = 0; i < n; ++i) {
          candidates.push_back({static_cast<Position>(i), stream.attention_sum[i]});
        }
        auto summary = make_summary(setup_of(method, capacity, 4, Protocol::prefill, n));
        summary->absorb(stream.block(0, n));
        ASSERT_EQ(kept_positions(*summary), direct(candidates, capacity, kernel, maximum))
            << method << " n " << n << " capacity " << capacity;
      }
    }
  }
}

TEST(SnapKv, StreamChoosesAnewAmongEntriesAndBlock) {
  for (const char* method : {"snapkv:budget=99", "snapkv:budget=99,kernel=7,pooling=max"}) {
    const Policy policy = Policy::parse(method);
    const bool maximum = policy.choice("pooling") == "max";
    const auto kernel = static_cast<Position>(policy.integer("kernel"));
    const std::size_t capacity = 30;
    auto summary = make_summary(setup_of(method, capacity, 4));
    HeadStream stream = random_stream(600, 4, 8);
    std::mt19937_64 rng(9);
    for (std::size_t done = 0; done < 600;) {
      const std::size_t count = std::min<std::size_t>(600 - done, done == 0 ? 100 : 1 + rng() % 9);
      std::vector<std::pair<Position, double>> candidates;
      std::vector<float> attention_sum;
      for (const Segment& s : segments_of(*summary)) {
        for (std::size_t e = 0; e < s.keys.rows; ++e) {
          attention_sum.push_back(static_cast<float>(rng() % 16) / 16.0f);
          candidates.push_back({s.positions[e], attention_sum.back()});
        }
      }
      for (std::size_t i = done; i < done + count; ++i) {
        stream.attention_sum[i] = static_cast<float>(rng() % 16) / 16.0f;
        candidates.push_back({static_cast<Position>(i), stream.attention_sum[i]});
      }
      stream.held = attention_sum;
      summary->observe_recent(stream);
      summary->absorb(stream.block(done, count));
      done += count;
      ASSERT_EQ(kept_positions(*summary), direct(candidates, capacity, kernel, maximum));
    }
  }
}

TEST(SnapKv, ObservesTheLast32Queries) {
  const Policy policy = Policy::parse("snapkv:budget=1024");
  EXPECT_TRUE(policy.needs().recent_queries);
  EXPECT_EQ(policy.observed(), 32u);
  const Budget budget = policy.budget(5000, Protocol::prefill);
  EXPECT_EQ(budget.sink, 0u);
  EXPECT_EQ(budget.window, 32u);
  EXPECT_EQ(budget.summary, 992u);
  EXPECT_TRUE(policy.keeps_generated());
}

}  // namespace
}  // namespace ballast::test
