// Tokens may come without their queries when nobody watches.
#include <gtest/gtest.h>

#include "ballast/cache.h"
#include "support.h"

namespace ballast {
namespace {

using test::random_matrix;
using ::testing::HasSubstr;

Cache make_cache(const std::string& method, Protocol protocol) {
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

std::vector<Position> kept_positions(const Cache& cache, std::size_t head) {
  std::vector<Position> out;
  for (const KeptEntry& e : cache.kept(0, head)) out.push_back(e.position);
  return out;
}

TEST(CacheWithoutQueries, KeepsWhatItWouldKeepWithThem) {
  const Matrix keys = random_matrix(200, 8, 1), values = random_matrix(200, 8, 2),
               queries = random_matrix(200, 24, 3);
  Matrix out(200, 24), none(0, 24);
  for (Protocol protocol : {Protocol::prefill, Protocol::stream}) {
    Cache with = make_cache("balancekv:budget=64,sink=8,window=8,step=8,block=16", protocol);
    Cache without = make_cache("balancekv:budget=64,sink=8,window=8,step=8,block=16", protocol);
    with.forward(0, keys.view(), values.view(), queries.view(), out.view());
    without.forward(0, keys.view().slice(0, 150), values.view().slice(0, 150), none.view(),
                    none.view());
    Matrix last(50, 24);
    without.forward(0, keys.view().slice(150, 50), values.view().slice(150, 50),
                    queries.view().slice(150, 50), last.view());
    with.finish_prompt();
    without.finish_prompt();
    for (std::size_t h = 0; h < 2; ++h) {
      EXPECT_EQ(kept_positions(with, h), kept_positions(without, h));
      EXPECT_LT(kept_positions(with, h).size(), 65u);
    }
    for (std::size_t t = 0; t < 50; ++t) {
      for (std::size_t c = 0; c < 24; ++c) ASSERT_FLOAT_EQ(last[t][c], out[150 + t][c]);
    }
  }
}

TEST(CacheWithoutQueries, AMethodThatWatchesNeedsThem) {
  const Matrix keys = random_matrix(20, 8, 1), values = random_matrix(20, 8, 2);
  Matrix none(0, 24);
  Cache cache = make_cache("h2o:budget=16", Protocol::prefill);
  EXPECT_THAT(test::error_of(
                  [&] { cache.forward(0, keys.view(), values.view(), none.view(), none.view()); }),
              HasSubstr("queries are 0 × 24, expected 20 × 24"));
  EXPECT_EQ(cache.tokens(), 0u);
}

}  // namespace
}  // namespace ballast
