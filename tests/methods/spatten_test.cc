#include <map>

#include "ballast/testing/summary_contract.h"

namespace ballast::test {
namespace {

TEST(SpAtten, Contract) { check_contract({.method = "spatten:budget=64"}); }

/// Layers × heads of one sequence.
struct Layers {
  std::unique_ptr<SharedState> shared;
  std::vector<std::vector<std::unique_ptr<Summary>>> heads;

  Layers(const std::vector<std::size_t>& capacities, std::uint32_t heads_per_layer) {
    const Policy policy = Policy::parse("spatten:budget=64");
    shared = policy.info().make_shared(policy);
    for (std::uint32_t l = 0; l < capacities.size(); ++l) {
      heads.emplace_back();
      for (std::uint32_t h = 0; h < heads_per_layer; ++h) {
        auto setup = setup_of("spatten:budget=64", capacities[l], 4);
        setup.random = {1, l, h};
        setup.layers = static_cast<int>(capacities.size());
        setup.shared = shared.get();
        heads.back().push_back(make_summary(setup));
      }
    }
  }
};

struct Token {
  Position position;
  double attention_sum;  ///< in this layer
  double importance;     ///< with the layers before
};

// The cascade as it is told, one list of tokens a layer.
TEST(SpAtten, FollowsTheNaiveCascade) {
  const std::vector<std::size_t> capacities = {40, 25, 25, 10};
  Layers cache(capacities, 3);
  std::vector<std::vector<Token>> naive(capacities.size());
  HeadStream stream = random_stream(500, 4, 1);
  std::mt19937_64 rng(2);
  auto draw = [&] { return static_cast<float>(rng() % 64) / 64.0f; };
  for (std::size_t done = 0; done < 500;) {
    const std::size_t count = std::min<std::size_t>(500 - done, done == 0 ? 90 : 1 + rng() % 20);
    for (std::size_t l = 0; l < capacities.size(); ++l) {
      std::vector<Token>& tokens = naive[l];
      // All heads are told the same attention sums.
      std::map<Position, float> seen;
      for (Token& t : tokens) {
        seen[t.position] = draw();
        t.attention_sum += seen[t.position];
      }
      for (std::size_t i = done; i < done + count; ++i) {
        stream.attention_sum[i] = draw();
        tokens.push_back({static_cast<Position>(i), stream.attention_sum[i], 0});
      }
      for (auto& head : cache.heads[l]) {
        std::vector<float> attention_sum;
        for (const Segment& s : segments_of(*head)) {
          for (std::size_t e = 0; e < s.keys.rows; ++e)
            attention_sum.push_back(seen.at(s.positions[e]));
        }
        head->observe(attention_sum);
        head->absorb(stream.block(done, count));
      }
      std::vector<Token> alive;
      for (Token t : tokens) {
        t.importance = t.attention_sum;
        if (l > 0) {
          auto it = std::ranges::find(naive[l - 1], t.position, &Token::position);
          if (it == naive[l - 1].end()) continue;
          t.importance += it->importance;
        }
        alive.push_back(t);
      }
      std::ranges::sort(alive, [](const Token& a, const Token& b) {
        return std::pair(a.importance, a.position) > std::pair(b.importance, b.position);
      });
      alive.resize(std::min(alive.size(), capacities[l]));
      tokens = alive;
      std::vector<Position> expected;
      for (const Token& t : tokens) expected.push_back(t.position);
      std::ranges::sort(expected);
      for (auto& head : cache.heads[l]) {
        ASSERT_EQ(kept_positions(*head), expected) << "layer " << l << " at " << done;
      }
    }
    done += count;
  }
}

TEST(SpAtten, SharedStateIsSavedAndDamageRefused) {
  Layers cache({20, 10}, 1);
  const HeadStream stream = random_stream(50, 4, 1);
  for (auto& layer : cache.heads) layer[0]->absorb(stream.block(0, 50));
  MemoryWriter out;
  cache.shared->save(out);
  EXPECT_GT(cache.shared->bytes(), 30 * 8u);
  Layers copy({20, 10}, 1);
  ByteReader in(out.bytes);
  copy.shared->load(in);
  EXPECT_EQ(in.left(), 0u);
  MemoryWriter again;
  copy.shared->save(again);
  EXPECT_EQ(again.bytes, out.bytes);
  for (std::size_t cut = 0; cut < out.bytes.size(); ++cut) {
    ByteReader damaged(std::span<const std::byte>(out.bytes).first(cut));
    EXPECT_THROW(copy.shared->load(damaged), Error) << cut;
  }
  auto unsorted = out.bytes;
  std::swap_ranges(unsorted.begin() + 24, unsorted.begin() + 32, unsorted.begin() + 32);
  ByteReader damaged(unsorted);
  EXPECT_THAT(error_of([&] { copy.shared->load(damaged); }), testing::HasSubstr("after token"));
}

TEST(SpAtten, LayersKeepLessAndLess) {
  const Policy policy = Policy::parse("spatten:budget=256");
  EXPECT_TRUE(policy.needs().whole_layer);
  EXPECT_GT(policy.budget(4000, Protocol::prefill, 0, 8).summary,
            policy.budget(4000, Protocol::prefill, 7, 8).summary);
}

}  // namespace
}  // namespace ballast::test
