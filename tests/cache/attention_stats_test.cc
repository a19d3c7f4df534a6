// What caches keep for methods that watch attention: sums over all queries, and the last queries.
#include "cache/streams.h"

namespace ballast::test {
namespace {

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

}  // namespace
}  // namespace ballast::test
