// Method replay in stream: chunks that are read, read again and divide the budget anew.
#include <fmt/format.h>

#include <array>
#include <functional>
#include <map>

#include "ballast/error.h"
#include "ballast/scoring.h"
#include "ballast/threads.h"
#include "cache/streams.h"
#include "temp_dir.h"

namespace ballast::test {
namespace {

constexpr std::size_t kTokens = 200, kChunk = 16;

/// A text that is read and, chunk by chunk, read again with the same keys and queries.
struct Chunks {
  Stream text = make_stream(kTokens, 5);
  std::array<Matrix, 2> grams;
  std::vector<float> weights;

  Chunks() {
    for (std::size_t l = 0; l < 2; ++l) {
      grams[l] = Matrix(4 * 24, 24);
      for (std::size_t r = 0; r < 4 * 24; ++r) {
        grams[l][r][r % 24] = 0.2f + 0.1f * static_cast<float>((r / 24 + l) % 4);
      }
    }
    for (std::size_t t = 0; t < kTokens; ++t) {
      weights.push_back(0.3f + 0.1f * static_cast<float>(t % 7));
    }
  }
  static CacheOptions options(const std::string& more = "", std::size_t expected = kTokens) {
    return options_of("replay:chunk=16,sink=1,window=2," + more, Protocol::stream, expected);
  }
  Cache cache(const std::string& more = "") const { return {text.shape, options(more)}; }

  /// Reads again what end_chunk() waits for.
  void again(Cache& cache) const {
    const std::size_t n = cache.tokens(), first = n - scoring_of(cache).chunk_tokens();
    Matrix out(n, 4 * 24);
    for (std::size_t l = 0; l < 2; ++l) scoring_of(cache).start_replay(l, grams[l].view());
    for (std::size_t t = first; t < n; t += kChunk) {
      const std::size_t count = std::min(kChunk, n - t);
      for (std::size_t l = 0; l < 2; ++l) {
        scoring_of(cache).replay(l, text.keys[l].view().slice(t, count),
                                 text.values[l].view().slice(t, count),
                                 text.queries[l].view().slice(t, count),
                                 std::span(weights).subspan(t, count), out.view().slice(t, count));
      }
    }
  }
  /// Reads up to token `end`, in calls of at most `piece` tokens. `each`: after every chunk.
  void read(Cache& cache, std::size_t end, std::size_t piece,
            const std::function<void()>& each = {}) const {
    while (cache.tokens() < end) {
      if (scoring_of(cache).chunk_room() == 0) {
        again(cache);
        scoring_of(cache).end_chunk();
        if (each) each();
      }
      const std::size_t t = cache.tokens(),
                        n = std::min({piece, end - t, scoring_of(cache).chunk_room()});
      feed(cache, text, t, t + n, n);
    }
  }
  std::size_t exact() const { return kTokens * 2 * 2 * (16 + 24) * 2; }
};

class ReplayStreamBudget : public testing::TestWithParam<bool> {};

TEST_P(ReplayStreamBudget, HoldsAfterEveryChunk) {
  Chunks c;
  if (GetParam()) c.text.shape.logits.sliding_window = 150;  // positions in full
  for (const char* tiers : {"int8+q4+q4/q2+q2", "int4", "bf16+int8", "q3", "f32+q2"}) {
    for (const char* score : {"max", "plain"}) {
      for (double share : {0.5, 0.25, 0.125}) {
        Cache cache = c.cache(fmt::format("bytes={},tiers={},score={}", share, tiers, score));
        const auto most = static_cast<std::size_t>(share * static_cast<double>(c.exact()));
        std::size_t chunks = 0, tightest = most;
        c.read(cache, kTokens, 7, [&] {
          ++chunks;
          EXPECT_LE(cache.bytes().total(), most) << tiers << " at " << cache.tokens();
          tightest = std::min(tightest, most - std::min(most, cache.bytes().total()));
          EXPECT_EQ(scoring_of(cache).chunk_tokens(), 0u);
        });
        EXPECT_GE(chunks, kTokens / kChunk / 2) << tiers;
        if (std::string_view(tiers) != "q3") {  // all entries take less than the budget
          EXPECT_LT(tightest, 1000u) << tiers << ": the budget is used";
        }
        for (std::size_t l = 0; l < 2; ++l) {
          for (std::size_t h = 0; h < 2; ++h) EXPECT_EQ(cache.kept(l, h)[0].position, 0);
        }
      }
    }
  }
}

TEST(ReplayStream, EveryMethodThatReadsTwiceHoldsItsBudget) {
  const Chunks c;
  const auto most = static_cast<std::size_t>(0.25 * static_cast<double>(c.exact()));
  for (const char* method : {"kvzip", "kvzip-plus", "replay"}) {
    Cache cache(c.text.shape, options_of(fmt::format("{}:bytes=1/4,chunk=16,sink=1", method),
                                         Protocol::stream, kTokens));
    std::size_t chunks = 0;
    c.read(cache, kTokens, 7, [&] {
      ++chunks;
      EXPECT_LE(cache.bytes().total(), most) << method << " at " << cache.tokens();
    });
    EXPECT_GT(chunks, 5u) << method;
  }
}

INSTANTIATE_TEST_SUITE_P(Positions, ReplayStreamBudget, testing::Bool());

/// The entries of one head as they lie, decoded.
struct Entries {
  std::vector<std::vector<double>> keys, values;
};

Entries entries_of(const Cache& cache, std::size_t l, std::size_t h) {
  Entries out;
  for (const Segment& segment : cache.segments(l, h)) {
    std::vector<float> key(16), value(24);
    for (std::size_t i = 0; i < segment.keys.rows; ++i) {
      segment.keys.decode(i, key);
      segment.values.decode(i, value);
      out.keys.emplace_back(key.begin(), key.end());
      out.values.emplace_back(value.begin(), value.end());
    }
  }
  return out;
}

/// `own`: reading=own.
void check_scores(bool own) {
  const Chunks c;
  // Attention over other types than f32 rounds queries.
  Cache cache = c.cache(own ? "bytes=1/2,tiers=f32,reading=own" : "bytes=1/2,tiers=f32");
  std::size_t compared = 0;
  for (std::size_t end = 64; end <= 128; end += kChunk) {
    c.read(cache, end, 100);
    while (scoring_of(cache).chunk_room() > 0) {  // up to the end of a chunk
      const std::size_t t = cache.tokens(), n = scoring_of(cache).chunk_room();
      feed(cache, c.text, t, t + n, n);
    }
    const std::size_t n = cache.tokens(), chunk = scoring_of(cache).chunk_tokens();
    std::vector<std::vector<float>> before;
    for (std::size_t i = 0; i < 4; ++i) {
      const auto scores = scoring_of(cache).scores(i / 2, i % 2);
      before.emplace_back(scores.begin(), scores.end());
    }
    c.again(cache);
    for (std::size_t i = 0; i < 4; ++i) {
      const std::size_t l = i / 2, h = i % 2;
      const Entries held = entries_of(cache, l, h);
      const std::size_t count = held.keys.size();
      std::vector<Position> positions;
      for (const KeptEntry& entry : cache.kept(l, h)) positions.push_back(entry.position);
      std::vector<double> most(count, 0.0), norms(count, 0.0);
      for (std::size_t g = 0; g < 2; ++g) {
        const std::size_t q = 2 * h + g;
        for (std::size_t t = n - chunk; t < n; ++t) {
          const std::size_t part = n - chunk + (t - (n - chunk)) / kChunk * kChunk;
          // Which entries are in the softmax, and which of these are scored.
          const auto in_chunk = [&](std::size_t j) {
            const auto at = static_cast<std::size_t>(positions[j]);
            return at >= part && at < part + kChunk;
          };
          const auto is_seen = [&](std::size_t j) {
            return !own || in_chunk(j) ||
                   (positions[j] < 4 && positions[j] < static_cast<Position>(part));
          };
          std::vector<double> e;
          double sum = 0;
          const auto add = [&](const auto& key, bool seen) {
            double dot = 0;
            for (std::size_t d = 0; d < 16; ++d) {
              dot += double{c.text.queries[l][t][q * 16 + d]} * static_cast<double>(key[d]);
            }
            e.push_back(seen ? std::exp(0.25 * dot) : 0.0);
            sum += e.back();
          };
          for (std::size_t j = 0; j < count; ++j) add(held.keys[j], is_seen(j));
          for (std::size_t again = part; again <= t; ++again) {
            add(c.text.keys[l][again].subspan(h * 16, 16), true);
          }
          for (std::size_t j = 0; j < count; ++j) {
            if (own && !in_chunk(j)) continue;
            most[j] = std::max(most[j], e[j] / sum * double{c.weights[t]});
          }
        }
        for (std::size_t j = 0; j < count; ++j) {
          double square = 0;
          for (double v : held.values[j]) square += v * v;
          norms[j] = std::max(norms[j], std::sqrt(square * double{c.grams[l][q * 24][0]}));
        }
      }
      const auto got = scoring_of(cache).scores(l, h);
      ASSERT_EQ(got.size(), count);
      for (std::size_t j = 0; j < count; ++j) {
        const double old = j < before[i].size() ? double{before[i][j]} : 0.0;
        EXPECT_NEAR(got[j], std::max(old, most[j] * norms[j]), 1e-4 * double{got[j]} + 1e-6) << j;
        ++compared;
      }
    }
    scoring_of(cache).end_chunk();
  }
  EXPECT_GT(compared, 4 * 4 * kChunk);
}

TEST(ReplayStream, ScoresAreThoseOfTheFormula) { check_scores(false); }

TEST(ReplayStream, AChunkMayScoreItsOwnEntriesAlone) { check_scores(true); }

TEST(ReplayStream, EntriesOnlyMoveToFewerBits) {
  Chunks c;
  c.text.shape.alibi_slopes.assign(4, 0.0f);  // so that segments say where entries stand
  Cache cache = c.cache("bytes=1/4");
  std::map<std::pair<std::size_t, Position>, std::size_t> bytes;
  std::size_t fewer = 0;
  c.read(cache, kTokens, 50, [&] {
    std::map<std::pair<std::size_t, Position>, std::size_t> now;
    for (std::size_t i = 0; i < 4; ++i) {
      Position last = -1;
      std::size_t run = 0;
      for (const Segment& segment : cache.segments(i / 2, i % 2)) {
        const std::size_t row =
            stored_row_bytes(segment.keys.type, 16) + stored_row_bytes(segment.values.type, 24);
        EXPECT_TRUE(run == 0 || row < run);
        run = row;
        last = -1;
        for (std::size_t e = 0; e < segment.keys.rows; ++e) {
          EXPECT_GT(segment.positions[e], last);
          last = segment.positions[e];
          now[{i, last}] = row;
        }
      }
    }
    for (const auto& [entry, row] : now) {
      const auto old = bytes.find(entry);
      if (old == bytes.end()) {
        EXPECT_TRUE(bytes.empty() || entry.second >= static_cast<Position>(cache.tokens() - kChunk))
            << "an entry came back";
        continue;
      }
      EXPECT_LE(row, old->second);
      fewer += row < old->second;
    }
    bytes = std::move(now);
  });
  EXPECT_GT(fewer, 50u);
}

TEST(ReplayStream, DoesNotDependOnThreadsOrCalls) {
  const Chunks c;
  const int before = threads();
  std::vector<std::byte> first;
  for (int count : {1, 2, 8}) {
    set_threads(count);
    for (std::size_t piece : {1, 5, 100}) {
      Cache cache = c.cache("bytes=0.3");
      c.read(cache, kTokens, piece);
      c.again(cache);
      scoring_of(cache).end_chunk();
      cache.finish_prompt();
      const std::vector<std::byte> bytes = cache.to_bytes();
      if (first.empty()) first = bytes;
      EXPECT_EQ(bytes, first) << count << " threads, " << piece;
    }
  }
  set_threads(before);
}

TEST(ReplayStream, GoesOnFromAFile) {
  const TempDir dir;
  const Chunks c;
  for (std::size_t at : {20, 150, 155}) {  // exact so far; in the middle of a chunk
    Cache cache = c.cache("bytes=0.3");
    c.read(cache, at, 9);
    cache.save(dir / "kept.cache", "note");
    Cache loaded = Cache::load(dir / "kept.cache");
    EXPECT_EQ(loaded.bytes().used(), cache.bytes().used());
    Cache copy = cache.clone();
    for (Cache* one : {&cache, &loaded, &copy}) c.read(*one, kTokens, 11);
    EXPECT_EQ(loaded.to_bytes(), cache.to_bytes()) << at;
    EXPECT_EQ(copy.to_bytes(), cache.to_bytes()) << at;
  }
}

// The last version kept the ids of a chunk's tokens with the cache.
TEST(ReplayStream, AFileWithIdsOfTokensLoads) {
  const Chunks c;
  Cache cache = c.cache("bytes=0.3");
  c.read(cache, 9, 9);  // before the first division: there are no scores
  const std::vector<std::byte> saved = cache.to_bytes();
  // The count of ids is all that stands between the layers and the checksum.
  std::string old(reinterpret_cast<const char*>(saved.data()), saved.size() - 12);
  const std::uint64_t count = 3;
  const std::int32_t ids[count] = {4, 5, 6};
  old.append(reinterpret_cast<const char*>(&count), sizeof(count));
  old.append(reinterpret_cast<const char*>(ids), sizeof(ids)).append(4, '\0');
  seal_saved_cache(old);
  EXPECT_EQ(Cache::parse(std::as_bytes(std::span(old)), "old").to_bytes(), saved);
}

TEST(ReplayStream, IsExactUntilTheBudgetIsPassed) {
  const Chunks c;
  CacheOptions options = Chunks::options("bytes=1/2");
  options.key_type = options.value_type = StorageType::bf16;
  Cache cache(c.text.shape, options);
  CacheOptions plain = options;
  plain.policy = Policy();
  Cache exact(c.text.shape, plain);
  EXPECT_EQ(scoring_of(cache).chunk_room(), kTokens / 2 / kChunk * kChunk);
  const std::size_t room = scoring_of(cache).chunk_room();
  EXPECT_TRUE(same_bits(feed(cache, c.text, 0, room, 9), feed(exact, c.text, 0, room, 30)));
  EXPECT_EQ(scoring_of(cache).chunk_room(), 0u);
  EXPECT_EQ(scoring_of(cache).chunk_tokens(), room);
  Cache whole(c.text.shape, [&] {
    CacheOptions all = options;
    all.policy = Policy::parse("replay:bytes=1.0,chunk=16");
    return all;
  }());
  feed(whole, c.text, 0, kTokens, 50);
  EXPECT_FALSE(scoring_of(whole).needs_replay());
  whole.finish_prompt();
}

TEST(ReplayStream, AStreamOfUnknownLengthTakesBytes) {
  const Chunks c;
  for (const char* bytes : {"9000B", "88B/token"}) {
    Cache cache(c.text.shape, Chunks::options(fmt::format("bytes={}", bytes), 0));
    c.read(cache, kTokens, 30);
    c.again(cache);
    scoring_of(cache).end_chunk();
    const std::size_t most = bytes[0] == '9' ? 9000 : 88 * kTokens;
    EXPECT_LE(cache.bytes().total(), most);
    EXPECT_GE(cache.bytes().total() + 1000, most);
  }
  EXPECT_THAT(error_of([&] { Cache(c.text.shape, Chunks::options("bytes=1/8", 0)); }),
              testing::HasSubstr("unknown length has no share"));
}

TEST(ReplayStream, BytesForEachTokensExactRowsLeaveItWhole) {
  const Chunks c;
  const std::size_t each = 4 * (16 + 24) * sizeof(float);  // layers × heads, keys and values in f32
  for (std::size_t bytes : {each - 1, each}) {
    const Cache cache(c.text.shape, Chunks::options(fmt::format("bytes={}B/token", bytes), 0));
    EXPECT_EQ(scoring_of(cache).chunk_room() > 1'000'000, bytes == each) << bytes;
  }
}

TEST(ReplayStream, SaysWhatIsWrong) {
  const Chunks c;
  Cache cache = c.cache("bytes=1/8");
  EXPECT_THAT(error_of([&] { feed(cache, c.text, 0, kTokens, kTokens); }),
              testing::HasSubstr("end_chunk()"));
  c.read(cache, scoring_of(cache).chunk_room(), 100);
  EXPECT_THAT(error_of([&] { scoring_of(cache).end_chunk(); }),
              testing::HasSubstr("come before end_chunk()"));
  EXPECT_THAT(error_of([&] { cache.finish_prompt(); }), testing::HasSubstr("replay pass"));
  EXPECT_THAT(error_of([&] { c.cache("bytes=1/8,score=rms"); }), testing::HasSubstr("score=max"));
  Cache small = c.cache("bytes=900B");
  feed(small, c.text, 0, kChunk, kChunk);
  c.again(small);
  EXPECT_THAT(error_of([&] { scoring_of(small).end_chunk(); }),
              testing::HasSubstr("give at least"));
}

TEST(ReplayStream, TokensOfAChunkCanBeTakenBack) {
  const Chunks c;
  Cache cache = c.cache("bytes=0.3"), other = c.cache("bytes=0.3");
  c.read(cache, 150, 9);
  c.read(other, 153, 9);
  other.truncate(150);
  for (Cache* one : {&cache, &other}) c.read(*one, kTokens, 11);
  EXPECT_EQ(other.to_bytes(), cache.to_bytes());
  EXPECT_THAT(error_of([&] { cache.truncate(100); }), testing::HasSubstr("cannot be truncated"));
}

}  // namespace
}  // namespace ballast::test
