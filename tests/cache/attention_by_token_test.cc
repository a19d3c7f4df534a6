// Which tokens a query looks at, through what is kept of them.
#include "cache/attention_by_token.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <set>

#include "cache/replay_reading.h"
#include "cache/streams.h"

namespace ballast::test {
namespace {

constexpr std::size_t kLayer = 1, kQueryHead = 3;  // of KV head 1

std::vector<float> look(const Cache& cache, const Stream& s, std::size_t token,
                        std::size_t tokens) {
  std::vector<float> sums(tokens);
  add_attention_by_token(cache, kLayer, kQueryHead,
                         s.queries[kLayer][token].subspan(kQueryHead * 16, 16),
                         static_cast<Position>(token), sums);
  return sums;
}

TEST(AttentionByToken, IsTheSoftmaxOfTheExactCache) {
  const Stream s = make_stream(40, 3);
  Cache cache(s.shape, options_of("exact", Protocol::prefill));
  feed(cache, s, 0, 40, 40, 40);
  const std::vector<float> got = look(cache, s, 30, 40);
  std::vector<double> expected(40);
  for (std::size_t t = 0; t <= 30; ++t) {
    double dot = 0;
    for (std::size_t c = 0; c < 16; ++c) {
      dot += double{s.keys[kLayer][t][16 + c]} * double{s.queries[kLayer][30][48 + c]};
    }
    expected[t] = std::exp(0.25 * dot);
  }
  const double sum = std::accumulate(expected.begin(), expected.end(), 0.0);
  for (std::size_t t = 0; t < 40; ++t) EXPECT_NEAR(got[t], expected[t] / sum, 1e-5) << t;
}

TEST(AttentionByToken, GoesToTheTokensThatAreKept) {
  for (const char* method : {"h2o:budget=70", "streaming-llm:budget=70", "uniform:budget=70",
                             "balancekv:budget=70", "snapkv:budget=70"}) {
    for (const Protocol protocol : {Protocol::prefill, Protocol::stream}) {
      const Stream s = make_stream(160, 3);
      Cache cache(s.shape, options_of(method, protocol));
      feed(cache, s, 0, 160, 16, protocol == Protocol::prefill ? 160 : 0);
      const std::vector<float> got = look(cache, s, 159, 160);
      std::set<Position> kept;
      for (const KeptEntry& entry : cache.kept(kLayer, kQueryHead / 2)) {
        kept.insert(entry.position);
      }
      double sum = 0;
      for (std::size_t t = 0; t < got.size(); ++t) {
        sum += double{got[t]};
        EXPECT_EQ(got[t] > 0, kept.contains(static_cast<Position>(t))) << method << ", token " << t;
      }
      EXPECT_NEAR(sum, 1, 1e-4) << method;
    }
  }
}

// Its runs have positions in a code, not in the segments.
TEST(AttentionByToken, KnowsTheTokensOfOneBudgetInBytes) {
  const Reading reading;
  Cache cache = reading.read("replay:bytes=1/4");
  reading.replay(cache);
  cache.finish_prompt();
  ASSERT_LT(cache.kept(kLayer, 1).size(), kText);
  const std::vector<float> got = look(cache, reading.text, kText - 1, kText);
  std::set<Position> kept;
  for (const KeptEntry& entry : cache.kept(kLayer, 1)) kept.insert(entry.position);
  for (std::size_t t = 0; t < got.size(); ++t) {
    EXPECT_TRUE(got[t] == 0 || kept.contains(static_cast<Position>(t))) << t;
  }
  EXPECT_NEAR(std::accumulate(got.begin(), got.end(), 0.0), 1, 1e-4);
}

TEST(AttentionByToken, RefusesHeadsThatAreNotThere) {
  const Stream s = make_stream(4, 3);
  const Cache cache(s.shape, options_of("exact", Protocol::prefill));
  std::vector<float> sums(4);
  EXPECT_THROW(add_attention_by_token(cache, 2, 0, s.queries[0][0].first(16), 0, sums), Error);
  EXPECT_THROW(add_attention_by_token(cache, 0, 4, s.queries[0][0].first(16), 0, sums), Error);
}

}  // namespace
}  // namespace ballast::test
