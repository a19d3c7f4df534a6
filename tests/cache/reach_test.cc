// Streams that go on beyond the model's positions: calibrated with reach=.
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

#include "attention/rotary.h"
#include "ballast/error.h"
#include "ballast/joined.h"
#include "ballast/scoring.h"
#include "ballast/threads.h"
#include "cache/attention_by_token.h"
#include "cache/streams.h"
#include "temp_dir.h"

namespace ballast::test {
namespace {

using testing::HasSubstr;

constexpr std::size_t kTokens = 500, kReach = 96, kChunk = 16, kSink = 5, kWindow = 3;

/// A text that comes turned to its positions, with a score for each token of each head.
struct Text {
  Stream text = make_stream(kTokens, 5, 0.3f);  ///< before rotation
  Stream turned;
  std::array<Matrix, 2> scores = {random_matrix(kTokens, 2, 91), random_matrix(kTokens, 2, 92)};

  explicit Text(bool pairs = false, bool by_layer = false) {
    Rotary rotary{
        .frequencies = {1.0f, 0.3f, 0.1f, 0.02f, 0.003f}, .magnitude = 1.1f, .pairs = pairs};
    text.shape.rotary = rotary;
    if (by_layer) {
      text.shape.rotations = {rotary, rotary};
      text.shape.rotations[1].frequencies = {0.5f, 0.2f, 0.01f};
    }
    turn();
    for (Matrix& layer : scores) {
      for (std::size_t t = 0; t < kTokens; ++t) {
        for (float& x : layer[t]) x = std::exp(2 * x);
      }
    }
  }
  void turn() {
    turned = make_stream(kTokens, 5, 0.3f);
    turned.shape = text.shape;
    for (std::size_t l = 0; l < 2; ++l) {
      const Rotary& rotary = text.shape.rotary_of(l);
      std::vector<float> table(2 * rotary.frequencies.size());
      for (std::size_t t = 0; t < kTokens; ++t) {
        rotation_at(rotary, static_cast<double>(t), table);
        rotate(rotary, table, 16, turned.keys[l][t]);
        rotate(rotary, table, 16, turned.queries[l][t]);
      }
    }
  }

  static CacheOptions options(const std::string& more) {
    return options_of("calibrated:chunk=16,sink=5,window=3,reach=96," + more, Protocol::stream);
  }
  /// Reads up to token `end` in calls of at most `piece` tokens; outputs of layer 1.
  Matrix read(Cache& cache, std::size_t end, std::size_t piece,
              const std::function<void()>& each = {}) const {
    Matrix out(kTokens, 4 * 24);
    while (cache.tokens() < end) {
      if (scoring_of(cache).chunk_room() == 0) {
        scoring_of(cache).end_chunk();
        if (each) each();
      }
      const std::size_t t = cache.tokens(),
                        n = std::min({piece, end - t, scoring_of(cache).chunk_room()});
      for (std::size_t l = 0; l < 2; ++l) {
        cache.forward(l, turned.keys[l].view().slice(t, n), turned.values[l].view().slice(t, n),
                      turned.queries[l].view().slice(t, n), out.view().slice(t, n));
        scoring_of(cache).note_scores(l, scores[l].view().slice(t, n));
      }
    }
    return out;
  }
};

/// Tokens behind the first ones that token t does not see, of a cache that is divided once it holds
/// kReach tokens and after each chunk from then on.
std::size_t skipped_at(std::size_t t) {
  if (t < kReach) return 0;
  return (t - kReach) / kChunk * kChunk + kChunk;
}

std::vector<double> turned_to(std::span<const float> head, const Rotary& rotary, double place) {
  std::vector<double> out(head.begin(), head.end());
  const std::size_t half = rotary.frequencies.size();
  for (std::size_t i = 0; i < half; ++i) {
    const std::size_t a = rotary.pairs ? 2 * i : i, b = rotary.pairs ? 2 * i + 1 : i + half;
    const double angle = place * double{rotary.frequencies[i]};
    out[a] = rotary.magnitude * (head[a] * std::cos(angle) - head[b] * std::sin(angle));
    out[b] = rotary.magnitude * (head[b] * std::cos(angle) + head[a] * std::sin(angle));
  }
  return out;
}

/// The answer of head q of layer 1 to token t. The first tokens move up to the oldest token within
/// reach; the others keep their places.
std::vector<double> expected_answer(const Stream& s, std::size_t t, std::size_t q) {
  const std::size_t skipped = skipped_at(t);
  const Rotary& rotary = s.shape.rotary_of(1);
  std::vector<PlainEntry> entries;
  std::vector<double> distances;
  for (std::size_t n = 0; n <= t; ++n) {
    if (n >= kSink && n < kSink + skipped) continue;
    const auto place = static_cast<double>(n < kSink ? n + skipped : n);
    const auto value = s.values[1][n].subspan(q / 2 * 24, 24);
    entries.push_back({turned_to(s.keys[1][n].subspan(q / 2 * 16, 16), rotary, place),
                       {value.begin(), value.end()}});
    distances.push_back(static_cast<double>(t) - place);
  }
  const std::vector<double> query =
      turned_to(s.queries[1][t].subspan(q * 16, 16), rotary, static_cast<double>(t));
  const std::vector<float> rounded(query.begin(), query.end());
  const auto logit = [&](std::size_t i, double x) {
    EXPECT_LT(distances[i], kReach);
    return s.shape.alibi_slopes.empty() ? x : x - s.shape.alibi_slopes[q] * distances[i];
  };
  return naive_attention(entries, rounded, 0.25, logit);
}

void expect_answers(const Text& text, const std::string& tiers, double most) {
  Cache cache(text.turned.shape, Text::options("bytes=1G,tiers=" + tiers));
  const Matrix out = text.read(cache, kTokens, 7);
  for (std::size_t t = 0; t < kTokens; ++t) {
    for (std::size_t q = 0; q < 4; ++q) {
      ASSERT_LT(relative_error(out[t].subspan(q * 24, 24), expected_answer(text.text, t, q)), most)
          << tiers << ", token " << t << ", head " << q;
    }
  }
}

TEST(Reach, FirstTokensStandBeforeThoseWithinReach) {
  for (bool pairs : {false, true}) expect_answers(Text(pairs), "f32", 5e-5);
  expect_answers(Text(false, true), "f32", 5e-5);
  Text slopes;
  slopes.text.shape.alibi_slopes = slopes.turned.shape.alibi_slopes = {0.05f, 0.02f, 0.01f, 0.005f};
  expect_answers(slopes, "f32", 5e-5);
}

TEST(Reach, RowsOfFewBitsAnswerWithinTheirRounding) {
  const Text text;
  expect_answers(text, "int8", 0.05);
  expect_answers(text, "q4", 0.5);
}

TEST(Reach, HoldsItsBytesHoweverLongTheTextIs) {
  for (const bool slopes : {false, true}) {  // positions in full
    Text text;
    if (slopes) text.turned.shape.alibi_slopes = {0.05f, 0.02f, 0.01f, 0.005f};
    constexpr std::size_t kBytes = 12000;
    Cache cache(text.turned.shape, Text::options("bytes=12000B"));
    std::size_t divided = 0;
    text.read(cache, kTokens, 32, [&] {
      ++divided;
      EXPECT_LE(cache.bytes().total(), kBytes) << "at " << cache.tokens();
      if (cache.tokens() >= kReach) {
        EXPECT_GT(cache.bytes().total(), kBytes * 3 / 4) << "at " << cache.tokens();
      }
      const auto now = static_cast<Position>(cache.tokens());
      for (std::size_t h = 0; h < 4; ++h) {
        Position first = 0, last = 0;
        for (const KeptEntry& entry : cache.kept(h / 2, h % 2)) {
          first += entry.position < static_cast<Position>(kSink);
          last += entry.position >= now - static_cast<Position>(kWindow);
          EXPECT_TRUE(entry.position < static_cast<Position>(kSink) ||
                      entry.position + static_cast<Position>(kReach) >
                          now + static_cast<Position>(kChunk));
        }
        EXPECT_EQ(first, static_cast<Position>(kSink));
        EXPECT_EQ(last, static_cast<Position>(kWindow));
      }
    });
    EXPECT_GT(divided, 10u);
  }
}

TEST(Reach, DoesNotDependOnThreadsOrCalls) {
  const Text text;
  std::vector<std::byte> expected;
  Matrix answers;
  for (std::size_t piece : {1u, 5u, 64u}) {
    CacheOptions options = Text::options("bytes=12000B");
    options.pool = std::make_shared<ThreadPool>(piece == 5 ? 3 : 1);
    Cache cache(text.turned.shape, options);
    Matrix out = text.read(cache, kTokens, piece);
    const std::vector<std::byte> bytes = cache.to_bytes();
    if (expected.empty()) {
      expected = bytes;
      answers = std::move(out);
      continue;
    }
    EXPECT_TRUE(bytes == expected) << "calls of " << piece;
    EXPECT_TRUE(same_bits(out, answers)) << "calls of " << piece;
  }
}

TEST(Reach, FilesClonesAndTokensTakenBackGoOnToTheBit) {
  const Text text;
  for (std::size_t at : {std::size_t{50}, std::size_t{300}, std::size_t{310}}) {
    Cache cache(text.turned.shape, Text::options("bytes=12000B"));
    text.read(cache, at, 7);
    Cache loaded = Cache::parse(cache.to_bytes(), "a file"), copy = cache.clone();
    Cache back = cache.clone();
    const std::size_t more = std::min<std::size_t>(3, scoring_of(back).chunk_room());
    text.read(back, at + more, 7);
    back.truncate(at);
    text.read(cache, kTokens, 7);
    for (Cache* c : {&loaded, &copy, &back}) {
      text.read(*c, kTokens, 7);
      EXPECT_EQ(c->to_bytes(), cache.to_bytes()) << "at " << at;
    }
  }
}

TEST(Reach, CompactedCachesGoOn) {
  const Text text;
  Cache cache(text.turned.shape, Text::options("bytes=1G"));
  text.read(cache, 245, 7);
  scoring_of(cache).compact(9000);
  EXPECT_LE(cache.bytes().total(), 9000u);
  text.read(cache, kTokens, 7);
  EXPECT_EQ(Cache::parse(cache.to_bytes(), "a file").to_bytes(), cache.to_bytes());
}

std::string error_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Reach, SaysWhatIsNotPossible) {
  const Text text;
  const CacheShape& shape = text.turned.shape;
  EXPECT_THAT(error_of([&] {
                Cache(shape, options_of("calibrated:bytes=1/8,reach=1000", Protocol::prefill));
              }),
              HasSubstr("reach=1000 needs --protocol stream"));
  EXPECT_THAT(error_of([&] {
                Cache(shape, options_of("calibrated:bytes=1M,reach=200", Protocol::stream));
              }),
              HasSubstr("give 268"));
  auto cache = std::make_shared<Cache>(shape, Text::options("bytes=12000B"));
  text.read(*cache, 90, 7);
  EXPECT_EQ(join_documents({{cache}}).tokens(), 90u);
  text.read(*cache, 150, 7);
  EXPECT_THAT(error_of([&] { join_documents({{cache}}); }), HasSubstr("cannot be joined"));
  std::vector<float> sums(150);
  EXPECT_THAT(error_of([&] {
                add_attention_by_token(*cache, 1, 0, text.turned.queries[1][149].first(16), 149,
                                       sums);
              }),
              HasSubstr("does not say what its attention looks at"));
}

}  // namespace
}  // namespace ballast::test
