// Caches whose rows have few bits: about means that are found as the text comes.
#include <fmt/format.h>

#include <cmath>

#include "ballast/scoring.h"
#include "ballast/threads.h"
#include "cache/streams.h"

namespace ballast::test {
namespace {

/// Keys with a bias of norm 300 turned by rotary positions of base 10⁶, a signal of norm 3 beside.
Stream biased(std::size_t tokens, bool pairs, float magnitude) {
  Stream s = make_stream(tokens, 41);
  s.shape.rotary.pairs = pairs;
  s.shape.rotary.magnitude = magnitude;
  for (std::size_t f = 0; f < 8; ++f) {
    s.shape.rotary.frequencies.push_back(
        static_cast<float>(std::pow(1e6, -static_cast<double>(f) / 8)));
  }
  const Matrix bias = random_matrix(2, 16, 3, 75.0f);
  for (std::size_t l = 0; l < 2; ++l) {
    s.keys[l] = random_matrix(tokens, 32, 51 + l, 0.75f);
    for (std::size_t t = 0; t < tokens; ++t) {
      for (std::size_t h = 0; h < 2; ++h) {
        const std::span<float> key = s.keys[l][t].subspan(16 * h, 16);
        for (std::size_t c = 0; c < 16; ++c) key[c] += bias[h][c];
        for (std::size_t f = 0; f < 8; ++f) {
          float &a = key[pairs ? 2 * f : f], &b = key[pairs ? 2 * f + 1 : f + 8];
          const double angle = static_cast<double>(t) * double{s.shape.rotary.frequencies[f]};
          const double x = double{a} * magnitude, y = double{b} * magnitude;
          a = static_cast<float>(x * std::cos(angle) - y * std::sin(angle));
          b = static_cast<float>(y * std::cos(angle) + x * std::sin(angle));
        }
      }
    }
  }
  return s;
}

CacheOptions low_bits(const std::string& method, Protocol protocol, StorageType keys,
                      StorageType values) {
  CacheOptions options = options_of(method, protocol);
  options.key_type = keys;
  options.value_type = values;
  return options;
}

/// Mean squared error of a head's stored keys over the squared norm of their signal, from `first`.
double key_error(const Cache& cache, const Stream& s, std::size_t first) {
  double lost = 0;
  std::size_t count = 0;
  std::vector<float> key(16);
  for (const Segment& part : cache.segments(1, 1)) {
    for (std::size_t i = 0; i < part.keys.rows; ++i) {
      const auto t = static_cast<std::size_t>(part.keys.position(i));
      if (t < first) continue;
      part.keys.decode(i, key);
      for (std::size_t c = 0; c < 16; ++c) {
        lost += std::pow(double{key[c]} - double{s.keys[1][t][16 + c]}, 2);
      }
      ++count;
    }
  }
  return lost / static_cast<double>(count) / 9.0;
}

// A mean of keys as they stand would pass at 900 tokens and fail here.
TEST(LowBits, KeysOfALongTextErrByAPartOfTheirSignal) {
  constexpr std::size_t kTokens = 8192;
  for (bool pairs : {false, true}) {
    for (float magnitude : {1.0f, 1.25f}) {
      const Stream s = biased(kTokens, pairs, magnitude);
      for (StorageType type : {StorageType::q4, StorageType::q2, StorageType::int4}) {
        Cache cache(s.shape, low_bits("exact", Protocol::prefill, type, type));
        for (std::size_t l = 0; l < 2; ++l) {
          cache.forward(l, s.keys[l].view(), s.values[l].view(), ConstMatrix{nullptr, 0, 64, 64},
                        MutableMatrix{nullptr, 0, 96, 96});
        }
        EXPECT_LT(key_error(cache, s, 260), type == StorageType::q2 ? 0.4 : 0.05)
            << to_string(type) << pairs << magnitude;
      }
    }
  }
}

/// Reads the tokens from `first` on again.
void again(Cache& cache, const Stream& s, std::size_t first, std::size_t chunk) {
  const std::size_t n = cache.tokens();
  Matrix out(n, 4 * 24);
  for (std::size_t l = 0; l < 2; ++l) scoring_of(cache).start_replay(l, {});
  for (std::size_t t = first; t < n; t += chunk) {
    const std::size_t count = std::min(chunk, n - t);
    for (std::size_t l = 0; l < 2; ++l) {
      scoring_of(cache).replay(l, s.keys[l].view().slice(t, count),
                               s.values[l].view().slice(t, count),
                               s.queries[l].view().slice(t, count), {}, out.view().slice(t, count));
    }
  }
}

// Methods with one budget, in tiers: 8 bits as well.
TEST(LowBits, KeysInTiersErrByAPartOfTheirSignal) {
  constexpr std::size_t kTokens = 1200;
  const Stream s = biased(kTokens, false, 1.0f);
  for (const char* method : {"replay", "kvzip", "kvzip-plus"}) {
    for (const char* tiers : {"q4", "q2", "int4", "int8", "int8+q4+q3+q3/q2"}) {
      for (Protocol protocol : {Protocol::prefill, Protocol::stream}) {
        const std::string policy =
            fmt::format("{}:bytes=1/3,chunk=300,tiers={},sink=4,window=8", method, tiers);
        CacheOptions options = options_of(policy, protocol, kTokens);
        options.key_type = options.value_type = StorageType::bf16;
        Cache cache(s.shape, options);
        while (cache.tokens() < kTokens) {
          if (scoring_of(cache).chunk_room() == 0) {
            again(cache, s, cache.tokens() - scoring_of(cache).chunk_tokens(), 300);
            scoring_of(cache).end_chunk();
          }
          const std::size_t t = cache.tokens();
          feed(cache, s, t,
               t + std::min({scoring_of(cache).chunk_room(), kTokens - t, std::size_t{100}}), 100);
        }
        again(cache, s,
              protocol == Protocol::stream ? kTokens - scoring_of(cache).chunk_tokens() : 0, 300);
        if (protocol == Protocol::stream) scoring_of(cache).end_chunk();
        cache.finish_prompt();
        // Rows of bf16 themselves err by 0.03 of the signal beside such a bias.
        EXPECT_LT(key_error(cache, s, 0), std::string(tiers) == "q2" ? 0.4 : 0.15)
            << method << " " << tiers << " " << to_string(protocol);
      }
    }
  }
}

TEST(LowBits, GiveTheSameBitsForAnyCallsThreadsAndCopies) {
  const Stream s = biased(420, false, 1.0f);
  for (const char* method :
       {"exact", "h2o:budget=128", "snapkv:budget=128", "uniform:budget=300"}) {
    for (Protocol protocol : {Protocol::prefill, Protocol::stream}) {
      for (std::size_t prompt : {12, 150, 300}) {
        const CacheOptions options = low_bits(method, protocol, StorageType::q4, StorageType::q2);
        Cache one(s.shape, options), many(s.shape, options), whole(s.shape, options);
        const Matrix expected = feed(one, s, 0, 420, 1, prompt);
        EXPECT_TRUE(same_bits(feed(many, s, 0, 420, 37, prompt), expected)) << method << prompt;
        const int before = threads();
        set_threads(before == 1 ? 3 : 1);
        EXPECT_TRUE(same_bits(feed(whole, s, 0, 420, 420, prompt), expected)) << method << prompt;
        set_threads(before);
        for (std::size_t cut : {5, 100, 259, 260, 310}) {
          Cache begun(s.shape, options);
          feed(begun, s, 0, cut, 64, prompt);
          Cache clone = begun.clone(), loaded = Cache::parse(begun.to_bytes(), "memory");
          const Matrix rest = feed(begun, s, cut, 420, 64, prompt);
          EXPECT_TRUE(same_bits(feed(clone, s, cut, 420, 64, prompt), rest)) << method << cut;
          EXPECT_TRUE(same_bits(feed(loaded, s, cut, 420, 64, prompt), rest)) << method << cut;
          EXPECT_EQ(begun.to_bytes(), clone.to_bytes());
        }
      }
    }
  }
}

TEST(LowBits, FirstTokensAreNotRoundedAndCannotBeTakenFromTheMean) {
  const Stream s = biased(420, false, 1.0f);
  Cache cache(s.shape, low_bits("exact", Protocol::prefill, StorageType::q2, StorageType::q2));
  feed(cache, s, 0, 400, 64);
  const std::vector<Segment> segments = cache.segments(0, 0);
  ASSERT_EQ(segments.size(), 2u);
  EXPECT_EQ(segments[0].keys.type, StorageType::bf16);
  EXPECT_EQ(segments[0].keys.rows, 4u);
  EXPECT_EQ(segments[1].keys.type, StorageType::q2);
  EXPECT_EQ(cache.tokens(), 400u);
  cache.truncate(300);
  feed(cache, s, 300, 420, 64);
  Cache other(s.shape, cache.options());
  feed(other, s, 0, 420, 64);
  EXPECT_EQ(cache.to_bytes(), other.to_bytes());
  EXPECT_THAT(error_of([&] { cache.truncate(259); }), testing::HasSubstr("cannot be truncated"));
  // Before the mean is found, rows can be taken back as ever.
  Cache early(s.shape, cache.options());
  feed(early, s, 0, 200, 64);
  early.truncate(3);
  feed(early, s, 3, 420, 64);
  EXPECT_EQ(early.to_bytes(), other.to_bytes());
}

}  // namespace
}  // namespace ballast::test
