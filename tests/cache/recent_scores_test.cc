// What caches hand to methods beside attention sums: DropKV's scores, moments of queries, budgets
// that heads divide.
#include <fmt/format.h>

#include <numeric>

#include "cache/streams.h"
#include "methods/adaptive.h"
#include "methods/query_moments.h"

namespace ballast::test {
namespace {

Cache after(const Stream& s, const std::string& method, std::size_t tokens) {
  Cache cache(s.shape, options_of(method, Protocol::prefill));
  feed(cache, s, 0, tokens, 37, tokens);
  return cache;
}

std::vector<Position> kept(const Cache& cache, std::size_t layer, std::size_t head) {
  std::vector<Position> out;
  for (const KeptEntry& entry : cache.kept(layer, head)) out.push_back(entry.position);
  return out;
}

/// By how much the answers of the last queries change without entry j: two attentions each.
std::vector<double> change_without(const Stream& s, std::size_t layer, std::size_t head,
                                   std::size_t tokens, std::size_t observe) {
  std::vector<double> out(tokens, 0.0);
  for (std::size_t i = tokens - std::min(tokens, observe); i < tokens; ++i) {
    for (std::size_t q = 2 * head; q < 2 * head + 2; ++q) {
      const auto query = s.queries[layer][i].subspan(q * 16, 16);
      std::vector<PlainEntry> all;
      for (std::size_t j = 0; j <= i; ++j) {
        const auto key = s.keys[layer][j].subspan(head * 16, 16);
        const auto value = s.values[layer][j].subspan(head * 24, 24);
        all.push_back({{key.begin(), key.end()}, {value.begin(), value.end()}});
      }
      const std::vector<double> answer = naive_attention(all, query, 0.25);
      for (std::size_t j = 0; j <= i; ++j) {
        if (all.size() == 1) continue;  // nothing is left without it
        std::vector<PlainEntry> rest = all;
        rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(j));
        const std::vector<double> without = naive_attention(rest, query, 0.25);
        for (std::size_t c = 0; c < 24; ++c)
          out[j] += (without[c] - answer[c]) * (without[c] - answer[c]);
      }
    }
  }
  return out;
}

TEST(DropKv, KeepsTheTokensWithoutWhichAnswersChangeMost) {
  const Stream s = make_stream(70, 21, 0.4f);
  for (std::size_t tokens : {41u, 70u}) {
    for (std::size_t observe : {1u, 3u, 8u}) {
      const std::string method =
          fmt::format("dropkv:budget=20,window=5,heads=uniform,observe={}", observe);
      const Cache cache = after(s, method, tokens);
      for (std::size_t head = 0; head < 2; ++head) {
        std::vector<double> scores = change_without(s, 1, head, tokens, observe);
        std::vector<std::pair<double, Position>> ranked;
        for (std::size_t j = 0; j + 5 < tokens; ++j)
          ranked.push_back({scores[j], static_cast<Position>(j)});
        std::ranges::sort(ranked, std::greater());
        std::vector<Position> want;
        for (std::size_t j = 0; j < 15; ++j) want.push_back(ranked[j].second);
        for (std::size_t j = tokens - 5; j < tokens; ++j) want.push_back(static_cast<Position>(j));
        std::ranges::sort(want);
        EXPECT_EQ(kept(cache, 1, head), want) << method << " of " << tokens;
      }
    }
  }
}

TEST(DropKv, EmptyAndTinyTexts) {
  const Stream s = make_stream(6, 2);
  for (std::size_t tokens : {1u, 2u, 3u, 6u}) {
    const Cache cache = after(s, "dropkv:budget=2,window=1", tokens);
    EXPECT_EQ(kept(cache, 1, 0).size() + kept(cache, 1, 1).size(),
              2 * std::min<std::size_t>(2, tokens));
  }
}

TEST(AdaptiveHeads, DivideTheBudgetOfALayer) {
  const Stream s = make_stream(200, 3);
  for (const std::string name :
       {"snapkv", "pyramidkv", "keydiff", "expected-attention", "criticalkv", "dropkv"}) {
    const auto budget = [&](const std::string& more) {
      return after(s, name + ":budget=90,sink=4,window=8,heads=adaptive,layers=uniform" + more,
                   200);
    };
    const Cache divided = budget(""), safe = budget(",floor=1"),
                equal =
                    after(s, name + ":budget=90,sink=4,window=8,heads=uniform,layers=uniform", 200);
    std::size_t apart = 0;
    for (std::size_t l = 0; l < 2; ++l) {
      const std::size_t a = kept(divided, l, 0).size(), b = kept(divided, l, 1).size();
      EXPECT_EQ(a + b, 180u) << name;
      EXPECT_GE(std::min(a, b), 12u + 15u) << name;  // a fifth of 78 in any case
      apart += a != b;
      for (std::size_t h = 0; h < 2; ++h) EXPECT_EQ(kept(safe, l, h), kept(equal, l, h)) << name;
    }
    EXPECT_GT(apart, 0u) << name;
    EXPECT_EQ(divided.bytes().sink, equal.bytes().sink);
    Cache loaded = Cache::parse(divided.to_bytes(), "");
    EXPECT_EQ(kept(loaded, 1, 0), kept(divided, 1, 0)) << name;
    EXPECT_EQ(loaded.bytes().total(), divided.clone().bytes().total());
  }
}

// The sizes are those that the division of the heads' own scores gives.
TEST(AdaptiveHeads, FollowTheScores) {
  const Stream s = make_stream(150, 8);
  const Cache cache = after(s, "keydiff:budget=40,heads=adaptive,floor=0.1", 150);
  for (std::size_t l = 0; l < 2; ++l) {
    std::vector<std::vector<float>> scores;
    for (std::size_t h = 0; h < 2; ++h) {
      Matrix keys(150, 16);
      for (std::size_t t = 0; t < 150; ++t)
        std::ranges::copy(s.keys[l][t].subspan(16 * h, 16), keys[t].begin());
      SummarySetup setup;
      setup.policy = Policy::parse("keydiff");
      setup.key_dim = 16;
      setup.value_dim = 24;
      Block block;
      block.keys = view_f32(keys.view());
      block.values = view_f32(s.values[l].view().slice(0, 150));
      block.values.dim = 24;
      scores.emplace_back(150);
      make_summary(setup)->scores(block, scores.back());
    }
    const std::vector<std::size_t> sizes = adaptive_budgets(scores, 40, 0.1);
    for (std::size_t h = 0; h < 2; ++h) EXPECT_EQ(kept(cache, l, h).size(), sizes[h]);
  }
}

TEST(QueryMoments, CachesNoteThemUntilTheyAreUsed) {
  Stream s = make_stream(60, 4);
  s.shape.rotary.frequencies = {1.0f, 0.3f, 0.1f};
  Cache cache(s.shape, options_of("expected-attention:budget=20", Protocol::prefill));
  feed(cache, s, 0, 60, 11);
  const QueryMoments moments(2, 16, {});
  EXPECT_EQ(cache.bytes().attention_stats, 4 * 8 * moments.saved_numbers());
  EXPECT_THAT(error_of([&] { cache.truncate(50); }), testing::HasSubstr("clone"));
  cache.finish_prompt();
  EXPECT_EQ(cache.bytes().attention_stats, 0u);
  // A stream goes on using them.
  Cache stream(s.shape, options_of("expected-attention:budget=20", Protocol::stream));
  feed(stream, s, 0, 60, 11);
  EXPECT_EQ(stream.bytes().attention_stats, 4 * 8 * moments.saved_numbers());
}

}  // namespace
}  // namespace ballast::test
