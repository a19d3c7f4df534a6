// What caches remember of queries and hand to methods: sums over all of them, the last ones,
// DropKV's scores, moments, budgets that heads divide; and that nobody needs them whose method does
// not ask.
#include <fmt/format.h>

#include <numeric>

#include "cache/streams.h"
#include "methods/adaptive.h"
#include "methods/query_moments.h"

namespace ballast::test {
namespace {

using testing::HasSubstr;

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

// Sums in float depend on their order, so a token at a time is added however long a call is. The
// step is larger than the calls: only then is there room for more than one token.
TEST(AttentionStats, SumsDoNotDependOnHowATextIsCut) {
  const Stream s = make_stream(400, 3);
  for (const char* method : {"h2o:budget=96,step=32", "topk:budget=96,step=32,heavy=0.5"}) {
    const auto options = options_of(method, Protocol::stream);
    Cache single(s.shape, options), chunks(s.shape, options);
    feed(single, s, 0, 400, 1);
    feed(chunks, s, 0, 400, 13);
    EXPECT_EQ(single.to_bytes(), chunks.to_bytes()) << method;
  }
}

TEST(AttentionStats, BytesAreThoseOfSumsAndQueries) {
  const Stream s = make_stream(300, 3);
  struct Case {
    const char* method;
    bool sums;
  };
  for (const auto& [method, sums] :
       {Case{"h2o:budget=96,step=32", true}, Case{"topk:budget=96,step=32,heavy=0.5", true},
        Case{"topk:budget=96,step=32", false}, Case{"uniform:budget=96", false}}) {
    const auto options = options_of(method, Protocol::stream);
    Cache cache(s.shape, options);
    feed(cache, s, 0, 300, 10);
    const Budget budget = options.policy.budget(0, Protocol::stream, 0, 2);
    const std::size_t queries = options.policy.observed() * 2 * 16;
    const std::size_t floats = (sums ? budget.window + budget.step : 0) + queries;
    EXPECT_EQ(cache.bytes().attention_stats, 2 * 2 * floats * sizeof(float)) << method;
  }
}

Cache small_cache(const std::string& method, Protocol protocol) {
  CacheShape shape;
  shape.kv_heads = 2;
  shape.queries_per_kv_head = 3;
  shape.key_dim = shape.value_dim = 4;
  shape.logits.scale = 1.0f;
  CacheOptions options;
  options.policy = Policy::parse(method);
  options.protocol = protocol;
  return Cache(shape, options);
}

std::vector<Position> kept_without(const Cache& cache, std::size_t head) {
  std::vector<Position> out;
  for (const KeptEntry& e : cache.kept(0, head)) out.push_back(e.position);
  return out;
}

TEST(CacheWithoutQueries, KeepsWhatItWouldKeepWithThem) {
  const Matrix keys = random_matrix(200, 8, 1), values = random_matrix(200, 8, 2),
               queries = random_matrix(200, 24, 3);
  Matrix out(200, 24), none(0, 24);
  for (Protocol protocol : {Protocol::prefill, Protocol::stream}) {
    Cache with = small_cache("balancekv:budget=64,sink=8,window=8,step=8,block=16", protocol);
    Cache without = small_cache("balancekv:budget=64,sink=8,window=8,step=8,block=16", protocol);
    with.forward(0, keys.view(), values.view(), queries.view(), out.view());
    without.forward(0, keys.view().slice(0, 150), values.view().slice(0, 150), none.view(),
                    none.view());
    Matrix last(50, 24);
    without.forward(0, keys.view().slice(150, 50), values.view().slice(150, 50),
                    queries.view().slice(150, 50), last.view());
    with.finish_prompt();
    without.finish_prompt();
    for (std::size_t h = 0; h < 2; ++h) {
      EXPECT_EQ(kept_without(with, h), kept_without(without, h));
      EXPECT_LT(kept_without(with, h).size(), 65u);
    }
    for (std::size_t t = 0; t < 50; ++t) {
      for (std::size_t c = 0; c < 24; ++c) ASSERT_FLOAT_EQ(last[t][c], out[150 + t][c]);
    }
  }
}

TEST(CacheWithoutQueries, AMethodThatWatchesNeedsThem) {
  const Matrix keys = random_matrix(20, 8, 1), values = random_matrix(20, 8, 2);
  Matrix none(0, 24);
  Cache cache = small_cache("h2o:budget=16", Protocol::prefill);
  EXPECT_THAT(
      error_of([&] { cache.forward(0, keys.view(), values.view(), none.view(), none.view()); }),
      HasSubstr("queries are 0 × 24, expected 20 × 24"));
  EXPECT_EQ(cache.tokens(), 0u);
}

}  // namespace
}  // namespace ballast::test
