// What a stream holds, as the system sees it: no more after many chunks than the cache says.
#include <fstream>
#include <random>
#include <string>

#include "cache/streams.h"
#include "sanitized.h"

namespace ballast::test {
namespace {

/// Bytes of memory that the process has; 0: the system does not say.
std::size_t resident_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmRSS:")) return std::stoull(line.substr(6)) * 1024;
  }
  return 0;
}

TEST(StreamMemory, DoesNotGrowOnceTheBudgetIsFull) {
  if (kSanitized || resident_bytes() == 0) GTEST_SKIP() << "nobody knows";
  constexpr std::size_t kChunk = 128, kChunks = 60, kHeads = 8, kDim = 64;
  CacheShape shape;
  shape.layers = 2;
  shape.kv_heads = kHeads;
  shape.queries_per_kv_head = 1;
  shape.key_dim = shape.value_dim = kDim;
  shape.logits.scale = 0.125f;
  CacheOptions options =
      options_of("replay:chunk=128,bytes=6M", Protocol::stream, kChunk * kChunks);
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  const auto fill = [&](Matrix& rows) {
    for (std::size_t i = 0; i < rows.rows() * rows.cols(); ++i) rows.data()[i] = normal(random);
  };
  Matrix keys(kChunk, kHeads * kDim), values(kChunk, kHeads * kDim), query(1, kHeads * kDim),
      out(1, kHeads * kDim);
  Cache cache(shape, options);
  const std::size_t before = resident_bytes();
  std::size_t most = 0;
  for (std::size_t c = 0; c < kChunks; ++c) {
    for (std::size_t l = 0; l < shape.layers; ++l) {
      fill(keys);
      fill(values);
      cache.forward(l, keys.view(), values.view(),
                    ConstMatrix{nullptr, 0, kHeads * kDim, kHeads * kDim},
                    MutableMatrix{nullptr, 0, kHeads * kDim, kHeads * kDim});
    }
    if (cache.scoring().chunk_room() > 0) continue;
    for (std::size_t l = 0; l < shape.layers; ++l) {
      cache.scoring().start_replay(l, {});
      fill(query);
      const ConstMatrix own = keys.view().slice(0, 1);
      cache.scoring().replay(l, own, own, query.view(), {}, out.view());
    }
    cache.scoring().end_chunk();
    if (c > kChunks / 2) most = std::max(most, resident_bytes());
  }
  EXPECT_GT(cache.bytes().total(), 5u << 20);
  // Pages that are half empty, what a chunk leaves in the heap, and the allocation's histogram.
  EXPECT_LE(most, before + cache.bytes().total() + (std::size_t{3} << 20));
}

}  // namespace
}  // namespace ballast::test
