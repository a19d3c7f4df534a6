// The bytes that a cache reports are those that it holds: compared with what the process's heap has
// grown by, which no class can forget to count; and in a stream with what the system sees.
#include <fstream>
#include <map>
#include <random>
#include <string>

#include "ballast/scoring.h"
#include "ballast/threads.h"
#include "cache/held_memory.h"
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

// Copies of a cache hold what they have in common once.
constexpr std::size_t kPrompt = 600, kRead = 700, kEnd = 900;

/// Bytes of all rows and summaries; shared ones count once.
std::size_t held(std::initializer_list<const Cache*> caches) {
  std::map<const void*, std::size_t> all;
  for (const Cache* cache : caches) {
    for (const auto& [address, bytes] : held_memory(*cache)) all[address] = bytes;
  }
  std::size_t sum = 0;
  for (const auto& [address, bytes] : all) sum += bytes;
  return sum;
}

/// A copy that shares nothing.
Cache apart(const Cache& cache) { return Cache::parse(cache.to_bytes(), "a copy"); }

class SharedRows : public testing::TestWithParam<std::tuple<const char*, StorageType>> {
 protected:
  static std::string method() { return std::get<0>(GetParam()); }
  Cache read(std::size_t tokens) {
    CacheOptions options = options_of(method(), Protocol::prefill);
    options.key_type = options.value_type = std::get<1>(GetParam());
    Cache cache(s_.shape, options);
    feed(cache, s_, 0, tokens, 64, kPrompt);
    return cache;
  }
  Stream s_ = make_stream(kEnd, 3);
};

TEST_P(SharedRows, CopiesGoOnToTheBit) {
  Cache cache = read(kRead), copy = cache.clone(), second = copy.clone(), alone = apart(cache);
  const Matrix expected = feed(alone, s_, kRead, kEnd, 50);
  for (Cache* one : {&cache, &copy, &second}) {
    EXPECT_TRUE(same_bits(feed(*one, s_, kRead, kEnd, 7), expected));
    EXPECT_EQ(one->to_bytes(), alone.to_bytes());
    EXPECT_EQ(one->bytes().used(), alone.bytes().used());
  }
}

TEST_P(SharedRows, CopiesOfCopiesGoOnToTheBit) {
  Cache cache = read(kRead), alone = apart(cache);
  for (std::size_t at = kRead; at < kEnd; at += 40) {
    cache = cache.clone();
    EXPECT_TRUE(same_bits(feed(cache, s_, at, at + 40, 40), feed(alone, s_, at, at + 40, 40)));
  }
  EXPECT_EQ(cache.to_bytes(), alone.to_bytes());
}

TEST_P(SharedRows, WhatIsTakenBackInOneStaysInTheOther) {
  for (std::size_t end : {kPrompt, kPrompt + 20, kPrompt + 77}) {
    Cache cache = read(kRead), copy = cache.clone(), alone = apart(cache);
    const std::vector<std::byte> before = cache.to_bytes();
    copy.truncate(end);
    alone.truncate(end);
    const Matrix expected = feed(alone, s_, 0, 90, 30);
    EXPECT_TRUE(same_bits(feed(copy, s_, 0, 90, 30), expected));
    EXPECT_EQ(cache.to_bytes(), before);
    // And the other way round.
    Cache late = cache.clone();
    cache.truncate(end);
    EXPECT_TRUE(same_bits(feed(cache, s_, 0, 90, 30), expected));
    EXPECT_EQ(late.to_bytes(), before);
  }
}

TEST_P(SharedRows, CopiesTakeLittleMemory) {
  const Cache cache = read(kRead), a = cache.clone(), b = a.clone();
  const std::size_t one = cache.bytes().total();
  EXPECT_GE(held({&cache}) + one / 20, one);
  EXPECT_LT(held({&cache, &a, &b}), one + one / 2);
  EXPECT_GE(a.bytes().total() + one / 20, cache.bytes().used());
}

INSTANTIATE_TEST_SUITE_P(
    Methods, SharedRows,
    testing::Combine(testing::Values("exact", "local:budget=300,generated=keep",
                                     "keydiff:budget=300"),
                     testing::Values(StorageType::f32, StorageType::bf16, StorageType::int8,
                                     StorageType::int4, StorageType::q3)));

TEST(SharedRowsOfPrompts, ACopyOfTheBeginningSharesItAndALongTextIsNotHeldForAShortOne) {
  Stream s = make_stream(kEnd, 3);
  Cache cache(s.shape, options_of("exact", Protocol::prefill));
  feed(cache, s, 0, kEnd, 64, kEnd);
  const std::size_t one = held({&cache});
  Cache half = cache.clone(), tenth = cache.clone();
  half.truncate(kEnd / 2);
  EXPECT_LT(held({&cache, &half}), one + one / 5);
  tenth.truncate(kEnd / 6);
  EXPECT_LT(held({&tenth}), one / 5);
}

// Accumulated attention belongs to each copy.
TEST(SharedRowsOfPrompts, MethodsThatWatchAttentionGoOnAlike) {
  Stream s = make_stream(kEnd, 3);
  for (const char* method : {"h2o:budget=300,generated=keep", "h2o:budget=300"}) {
    Cache cache(s.shape, options_of(method, Protocol::prefill));
    feed(cache, s, 0, kRead, 64, kPrompt);
    Cache copy = cache.clone(), alone = apart(cache);
    const Matrix expected = feed(alone, s, kRead, kEnd, 50);
    EXPECT_TRUE(same_bits(feed(copy, s, kRead, kEnd, 50), expected)) << method;
    EXPECT_TRUE(same_bits(feed(cache, s, kRead, kEnd, 50), expected)) << method;
  }
}

}  // namespace
}  // namespace ballast::test
