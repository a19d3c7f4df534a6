#include "experiments/attention/kv_stats.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "cache/streams.h"
#include "experiments/attention/clusters.h"
#include "experiments/attention/norms.h"

namespace ballast::test {
namespace {

// More keys than the 2,048 that are looked at, over several segments, against all of them at once.
TEST(KvStats, OfACacheAreThoseOfItsRows) {
  const Stream s = make_stream(3000, 3);
  Cache cache(s.shape, options_of("streaming-llm:budget=2500,sink=4", Protocol::stream));
  feed(cache, s, 0, 3000, 500);
  const std::size_t heads = cache.shape().kv_heads;
  KvNorms norms;
  std::vector<double> radius(KvLayerStats::kCentres.size(), 0.0);
  for (std::size_t h = 0; h < heads; ++h) {
    const std::vector<Segment> segments = cache.segments(1, h);
    std::size_t count = 0;
    for (const Segment& segment : segments) count += segment.keys.rows;
    ASSERT_GT(count, 2048u);
    Matrix keys(count, cache.shape().key_dim), values(count, cache.shape().value_dim);
    std::size_t row = 0;
    for (const Segment& segment : segments) {
      for (std::size_t i = 0; i < segment.keys.rows; ++i, ++row) {
        segment.keys.decode(i, keys[row]);
        segment.values.decode(i, values[row]);
      }
    }
    norms.add(measure_norms({}, keys, values));
    const GreedyCentres found =
        greedy_centres(evenly_spaced(keys, 2048), KvLayerStats::kCentres.back());
    for (std::size_t k = 0; k < radius.size(); ++k) {
      const std::size_t n = std::min(KvLayerStats::kCentres[k], found.radii.size());
      radius[k] += found.radii[n - 1] / static_cast<double>(heads);
    }
  }
  const KvLayerStats got = measure_layer(cache, 1);
  EXPECT_EQ(got.key_norm.mean, norms.key.moments().mean);
  EXPECT_EQ(got.value_norm.largest, norms.value.moments().largest);
  for (std::size_t k = 0; k < radius.size(); ++k) {
    EXPECT_DOUBLE_EQ(got.radius[k], radius[k] / norms.shifted.moments().mean) << k;
  }
}

}  // namespace
}  // namespace ballast::test
