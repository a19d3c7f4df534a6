// The bytes that a cache reports are those that it holds: compared with what the process's heap has
// grown by, which no class can forget to count; and in a stream with what the system sees.
#include <fstream>
#include <random>
#include <string>

#include "ballast/scoring.h"
#include "ballast/threads.h"
#include "cache/streams.h"
#include "heap_bytes.h"
#include "sanitized.h"

namespace ballast::test {
namespace {

class BytesOf : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (!kHeapCanBeAsked) GTEST_SKIP() << "a sanitizer keeps the heap";
    threads_ = threads();
  }
  void TearDown() override { set_threads(threads_); }
  int threads_ = 1;
};

TEST_P(BytesOf, AreWhatTheHeapHasGrownBy) {
  constexpr std::size_t kTokens = 1200, kPrompt = 1150, kDim = 64;
  CacheShape shape;
  shape.layers = 2;
  shape.kv_heads = 2;
  shape.key_dim = shape.value_dim = kDim;
  shape.logits.scale = 0.125f;
  const Matrix keys = random_matrix(kTokens, 2 * kDim, 1);
  const Matrix values = random_matrix(kTokens, 2 * kDim, 2);
  Matrix out(kTokens, 2 * kDim);
  // Two threads may balance heads of one layer at once; neither shall keep anything.
  set_threads(2);
  for (Protocol protocol : {Protocol::prefill, Protocol::stream}) {
    const auto run = [&] {
      Cache cache(shape, options_of(GetParam() + ":budget=400", protocol));
      for (std::size_t t = 0; t < kTokens;) {
        const std::size_t n = t < kPrompt ? std::min<std::size_t>(512, kPrompt - t) : 1;
        for (std::size_t l = 0; l < 2; ++l) {
          cache.forward(l, keys.view().slice(t, n), values.view().slice(t, n),
                        keys.view().slice(t, n), out.view().slice(t, n));
        }
        t += n;
        if (t == kPrompt) cache.finish_prompt();
      }
      return cache;
    };
    run();  // what a process makes once: threads, tables, the allocator's own lists
    const std::size_t before = heap_bytes();
    const Cache cache = run();
    const auto grown = static_cast<double>(heap_bytes() - before);
    const auto told = static_cast<double>(cache.bytes().total());
    // The objects themselves, their strings, and what the allocator rounds up: 8 KiB a head.
    const double objects = 4 * 8 * 1024;
    EXPECT_GE(told, grown - objects) << to_string(protocol);
    EXPECT_LE(told, grown + 0.01 * told) << to_string(protocol);
  }
}

std::vector<std::string> bounded_methods() {
  std::vector<std::string> names;
  for (const MethodInfo* info : methods()) {
    if (info->global_budget) continue;  // tests/cache/replay_test.cc
    if (info->window_policy != WindowPolicy::all) names.emplace_back(info->name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, BytesOf, testing::ValuesIn(bounded_methods()), [](const auto& info) {
  std::string name = info.param;
  std::ranges::replace(name, '-', '_');
  return name;
});

// As a vector's: a prompt of unknown length is moved a few times, and holds half as much more at
// most, or the room of 16 tokens.
TEST(BytesOfAGrowingPrompt, RoomIsHalfOfWhatIsUsedAtMost) {
  CacheShape shape;
  shape.kv_heads = 1;
  shape.key_dim = shape.value_dim = 64;
  shape.logits.scale = 0.125f;
  const Matrix rows = random_matrix(1, 64, 1);
  Matrix out(1, 64);
  for (Protocol protocol : {Protocol::prefill, Protocol::stream}) {
    Cache cache(shape, options_of("replay:bytes=256K", protocol));
    for (std::size_t t = 1; t <= 400; ++t) {
      ASSERT_GT(scoring_of(cache).chunk_room(), 0u);
      cache.forward(0, rows.view(), rows.view(), rows.view(), out.view());
      const CacheBytes bytes = cache.bytes();
      EXPECT_LE(bytes.room, std::max(bytes.used() / 2, bytes.used() / t * 16)) << t << " tokens";
    }
  }
}

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
    if (scoring_of(cache).chunk_room() > 0) continue;
    for (std::size_t l = 0; l < shape.layers; ++l) {
      scoring_of(cache).start_replay(l, {});
      fill(query);
      const ConstMatrix own = keys.view().slice(0, 1);
      scoring_of(cache).replay(l, own, own, query.view(), {}, out.view());
    }
    scoring_of(cache).end_chunk();
    if (c > kChunks / 2) most = std::max(most, resident_bytes());
  }
  EXPECT_GT(cache.bytes().total(), 5u << 20);
  // Pages that are half empty, what a chunk leaves in the heap, and the allocation's histogram.
  EXPECT_LE(most, before + cache.bytes().total() + (std::size_t{3} << 20));
}

}  // namespace
}  // namespace ballast::test
