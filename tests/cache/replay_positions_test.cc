// Where the entries of replay stand: a code of about a byte each, or i32 for models whose attention
// asks; both are counted, and the budget holds.
#include <fmt/format.h>

#include <random>

#include "ballast/recording.h"
#include "ballast/scoring.h"
#include "cache/streams.h"
#include "storage/gap_code.h"

namespace ballast::test {
namespace {

struct Shape {
  std::size_t layers = 2, heads = 2, key_dim = 16, value_dim = 24, tokens = 200;
  bool alibi = false;
  Position window = 0;

  CacheShape shape() const {
    CacheShape out;
    out.layers = layers;
    out.kv_heads = heads;
    out.key_dim = key_dim;
    out.value_dim = value_dim;
    out.logits.scale = 0.25f;
    if (alibi) out.alibi_slopes.assign(heads, 0.01f);
    if (window > 0) {
      out.sliding_windows.assign(layers, 0);
      out.sliding_windows.back() = window;
    }
    return out;
  }
  std::size_t exact_bytes() const { return tokens * layers * heads * (key_dim + value_dim) * 2; }
};

/// A cache that has read a text of random rows, compressed by random scores; `best`: of how many
/// tokens one scores much.
Cache compressed(const Shape& s, const std::string& method, std::mt19937& random,
                 unsigned best = 1) {
  CacheOptions options;
  options.policy = Policy::parse(method);
  Cache cache(s.shape(), options);
  std::normal_distribution<float> normal;
  for (std::size_t l = 0; l < s.layers; ++l) {
    Matrix keys(s.tokens, s.heads * s.key_dim), values(s.tokens, s.heads * s.value_dim);
    for (Matrix* rows : {&keys, &values}) {
      for (std::size_t i = 0; i < rows->rows() * rows->cols(); ++i)
        rows->data()[i] = normal(random);
    }
    cache.forward(l, keys.view(), values.view(), ConstMatrix{nullptr, 0, keys.cols(), keys.cols()},
                  MutableMatrix{nullptr, 0, values.cols(), values.cols()});
  }
  for (std::size_t l = 0; l < s.layers; ++l) {
    for (std::size_t h = 0; h < s.heads; ++h) {
      std::vector<float> scores(s.tokens);
      // Few values: ties are the rule.
      for (float& x : scores) x = static_cast<float>(random() % best == 0 ? 1 + random() % 7 : 0);
      scoring_of(cache).set_scores(l, h, scores);
    }
  }
  cache.finish_prompt();
  return cache;
}

/// What the rows of a head take.
std::size_t row_bytes_of(const Cache& cache, std::size_t l, std::size_t h) {
  std::size_t bytes = 0;
  for (const Segment& s : cache.segments(l, h)) {
    bytes += s.keys.rows * (stored_row_bytes(s.keys.type, s.keys.dim) +
                            stored_row_bytes(s.values.type, s.values.dim));
  }
  return bytes;
}

TEST(ReplayPositions, EveryByteIsCounted) {
  for (bool alibi : {false, true}) {
    for (Position window : {0, 50}) {
      std::mt19937 random(5);
      Shape s;
      s.alibi = alibi;
      s.window = window;
      const Cache cache = compressed(s, "replay:bytes=1/4,tiers=q2,sink=1,window=2", random, 3);
      std::size_t expected = 0, entries = 0;
      for (std::size_t l = 0; l < s.layers; ++l) {
        for (std::size_t h = 0; h < s.heads; ++h) {
          std::vector<Position> positions;
          for (const KeptEntry& entry : cache.kept(l, h)) positions.push_back(entry.position);
          const auto segments = cache.segments(l, h);
          // The first token and the last two take 8 bits.
          ASSERT_GE(segments.size(), 1u);
          ASSERT_EQ(segments[0].keys.type, StorageType::int8);
          std::vector<Position> all;
          for (const Segment& segment : segments) {
            std::vector<Position> at;
            for (std::size_t i = 0; i < segment.keys.rows; ++i)
              at.push_back(segment.keys.position(i));
            if (&segment == &segments[0]) {
              for (Position end : {0, 198, 199}) EXPECT_THAT(at, testing::Contains(end));
            }
            all.insert(all.end(), at.begin(), at.end());
            if (alibi || window > 0) {
              EXPECT_TRUE(std::ranges::equal(at, std::span(segment.positions, at.size())));
            } else {
              EXPECT_EQ(segment.positions, nullptr);
              EXPECT_LT(segment.first_position, 0);
            }
            expected += alibi || window > 0 ? 4 * at.size() : gap_bytes(at);
          }
          EXPECT_THAT(all, testing::UnorderedElementsAreArray(positions));
          expected += row_bytes_of(cache, l, h);
          entries += positions.size();
        }
      }
      EXPECT_GT(entries, 100u);
      EXPECT_EQ(cache.bytes().summary, expected);
      EXPECT_EQ(cache.bytes().sink, s.layers * s.heads * 4 * (s.key_dim + s.value_dim));  // means
    }
  }
}

// Shapes, tiers and budgets at random; the last shapes keep an entry of hundreds.
TEST(ReplayPositions, TheBudgetHolds) {
  std::mt19937 random(11);
  constexpr const char* kTiers[] = {"int8+q4+q4/q2+q2", "q2", "int4+q3", "f32+q2", "bf16"};
  for (int i = 0; i < 60; ++i) {
    const bool sparse = i >= 50;
    Shape s;
    s.layers = 1 + random() % 3;
    s.heads = 1 + random() % 3;
    s.key_dim = 1 + random() % 70;
    s.value_dim = 1 + random() % 70;
    s.tokens = sparse ? 20'000 : 50 + random() % 500;
    if (sparse) s.layers = 1;
    s.alibi = random() % 4 == 0;
    s.window = random() % 4 == 0 ? 30 : 0;
    const std::string tiers = kTiers[random() % 5];
    const std::string means = i % 5 == 0 && !sparse ? ",means=0.3" : "";
    // What must be kept, means included, takes less.
    const std::size_t least =
        s.layers * s.heads * (3 * 4 * (s.key_dim + s.value_dim + 20) + 5 * s.tokens / 127);
    const std::size_t most = sparse ? least + 200 * s.heads * 60 : s.exact_bytes() / 2;
    const std::size_t budget = least * 2 + random() % (std::max(most, least * 3) - least * 2 + 1);
    if (budget >= s.exact_bytes()) continue;
    const std::string method =
        fmt::format("replay:bytes={}B,tiers={},sink=1,window=1{}", budget, tiers, means);
    const Cache cache = compressed(s, method, random, sparse ? 400 : 4);
    EXPECT_LE(cache.bytes().total(), budget) << method << " of " << s.tokens;
  }
}

// Rows that are stored as they are tell where they stand.
TEST(ReplayPositions, AreThoseOfTheRows) {
  const Stream text = make_stream(300, 4);
  CacheOptions options =
      options_of("replay:bytes=1/3,tiers=f32,sink=1,window=2", Protocol::prefill);
  Cache cache(text.shape, options);
  feed(cache, text, 0, 300, 50);
  std::mt19937 random(2);
  for (std::size_t i = 0; i < 4; ++i) {
    std::vector<float> scores(300);
    for (float& x : scores) x = static_cast<float>(random() % 1000);
    scoring_of(cache).set_scores(i / 2, i % 2, scores);
  }
  cache.finish_prompt();
  const Cache loaded = Cache::parse(cache.to_bytes(), "a cache");
  for (const Cache* one : {static_cast<const Cache*>(&cache), &loaded}) {
    for (std::size_t l = 0; l < 2; ++l) {
      for (std::size_t h = 0; h < 2; ++h) {
        const auto kept = one->kept(l, h);
        const auto segments = one->segments(l, h);
        ASSERT_EQ(segments.size(), 1u);
        ASSERT_GT(kept.size(), 20u);
        std::vector<float> key(16);
        for (std::size_t i = 0; i < kept.size(); ++i) {
          segments[0].keys.decode(i, key);
          const auto t = static_cast<std::size_t>(kept[i].position);
          EXPECT_TRUE(std::ranges::equal(key, text.keys[l][t].subspan(h * 16, 16))) << t;
        }
      }
    }
  }
}

}  // namespace
}  // namespace ballast::test
