// Rolling positions against a float64 attention that places the kept entries by itself.
#include <algorithm>
#include <cmath>

#include "attention/rotary.h"
#include "ballast/cache.h"
#include "cache/rolling.h"
#include "cache/streams.h"
#include "temp_dir.h"

namespace ballast::test {
namespace {

Rotary some_rotary(bool pairs) {
  return {.frequencies = {1.0f, 0.3f, 0.1f, 0.02f, 0.003f}, .magnitude = 1.1f, .pairs = pairs};
}

/// One head turned to a place, in float64.
std::vector<double> turned(std::span<const float> head, const Rotary& rotary, double place) {
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

/// What the last of `tokens` tokens must get from head q of layer 1, given what its cache kept.
std::vector<double> expected_answer(const Stream& s, const Cache& cache, std::size_t tokens,
                                    std::size_t q) {
  auto kept = cache.kept(1, q / 2);
  std::ranges::sort(kept, {}, &KeptEntry::position);
  std::vector<PlainEntry> entries;
  for (std::size_t place = 0; place < kept.size(); ++place) {
    const auto t = static_cast<std::size_t>(kept[place].position);
    const auto value = s.values[1][t].subspan(q / 2 * 24, 24);
    entries.push_back(
        {turned(s.keys[1][t].subspan(q / 2 * 16, 16), s.shape.rotary, static_cast<double>(place)),
         {value.begin(), value.end()},
         kept[place].weight,
         kept[place].normaliser_weight});
  }
  const std::vector<double> query = turned(s.queries[1][tokens - 1].subspan(q * 16, 16),
                                           s.shape.rotary, static_cast<double>(kept.size()) - 1);
  const std::vector<float> rounded(query.begin(), query.end());
  std::function<double(std::size_t, double)> slope;
  if (!s.shape.alibi_slopes.empty()) {
    slope = [&, n = kept.size()](std::size_t i, double logit) {
      return logit - s.shape.alibi_slopes[q] * static_cast<double>(n - 1 - i);
    };
  }
  return naive_attention(entries, rounded, 0.25, slope);
}

void expect_places(const Stream& s, const char* method, Protocol protocol) {
  CacheOptions options = options_of(method, protocol, 120);
  options.positions = Positions::rolling;
  Cache cache(s.shape, options);
  feed(cache, s, 0, 40, 7, 40);
  for (std::size_t t = 40; t < 120; ++t) {
    const Matrix out = feed(cache, s, t, t + 1, 1);
    for (std::size_t q = 0; q < 4; ++q) {
      ASSERT_LT(relative_error(out[0].subspan(q * 24, 24), expected_answer(s, cache, t + 1, q)),
                2e-5)
          << method << ", token " << t << ", head " << q;
    }
  }
}

TEST(Rolling, EntriesStandWhereTheyAreInTheCache) {
  Stream s = make_stream(120, 5, 0.3f);
  for (bool pairs : {false, true}) {
    s.shape.rotary = some_rotary(pairs);
    expect_places(s, "streaming-llm:budget=20,sink=3", Protocol::stream);
  }
  expect_places(s, "exact", Protocol::prefill);
  expect_places(s, "h2o:budget=16", Protocol::stream);
  expect_places(s, "uniform:budget=24,sink=2,window=8", Protocol::prefill);
}

TEST(Rolling, DistancesOfSlopesAreThoseInTheCache) {
  Stream s = make_stream(120, 6, 0.3f);
  s.shape.alibi_slopes = {0.5f, 0.25f, 0.125f, 0.0625f};
  expect_places(s, "streaming-llm:budget=20,sink=3", Protocol::stream);
}

TEST(Rolling, EveryMethodRunsOnAndIsExactUntilItForgets) {
  Stream s = make_stream(300, 8, 0.3f), turned_stream = make_stream(300, 8, 0.3f);
  s.shape.rotary = some_rotary(false);
  for (std::size_t l = 0; l < 2; ++l) {
    std::vector<float> table(10);
    for (std::size_t t = 0; t < s.tokens(); ++t) {
      rotation_at(s.shape.rotary, static_cast<double>(t), table);
      rotate(s.shape.rotary, table, 16, turned_stream.keys[l][t]);
      rotate(s.shape.rotary, table, 16, turned_stream.queries[l][t]);
    }
  }
  for (const MethodInfo* method : methods()) {
    if (method->global_budget) continue;  // tests/cache/replay_test.cc
    for (Protocol protocol : {Protocol::prefill, Protocol::stream}) {
      CacheOptions options = options_of(std::string(method->name), protocol, 300);
      if (method->window_policy != WindowPolicy::all) {
        options.policy = options.policy.with("budget", "600");
      }
      Cache absolute(turned_stream.shape, options);
      options.positions = Positions::rolling;
      Cache rolling(s.shape, options);
      const Matrix a = feed(absolute, turned_stream, 0, 100, 16, 60);
      const Matrix b = feed(rolling, s, 0, 100, 16, 60);
      for (std::size_t t = 0; t < 100; ++t) {
        const std::vector<double> expected(a[t].begin(), a[t].end());
        ASSERT_LT(relative_error(b[t], expected), 1e-4) << method->name << " token " << t;
      }
    }
  }
}

TEST(Rolling, ChunksDoNotMatterAndSavedCachesGoOn) {
  Stream s = make_stream(200, 9, 0.3f);
  s.shape.rotary = some_rotary(false);
  CacheOptions options = options_of("h2o:budget=32", Protocol::stream);
  options.positions = Positions::rolling;
  Cache whole(s.shape, options), cut(s.shape, options);
  EXPECT_TRUE(same_bits(feed(whole, s, 0, 150, 150), feed(cut, s, 0, 150, 11)));
  TempDir dir;
  whole.save(dir / "cache");
  Cache restored = Cache::load(dir / "cache");
  EXPECT_EQ(restored.options().positions, Positions::rolling);
  EXPECT_EQ(restored.shape().rotary, s.shape.rotary);
  EXPECT_TRUE(same_bits(feed(restored, s, 150, 200, 1), feed(whole, s, 150, 200, 1)));
  EXPECT_GT(whole.bytes().rotary, 0u);
}

TEST(Rolling, TablesHoldEveryPosition) {
  const Rotary rotary = some_rotary(true);
  RotaryTable table(rotary);
  EXPECT_EQ(table.bytes(), 0u);
  std::vector<float> expected(10);
  for (std::size_t count : {1, 256, 257, 5000}) {
    table.reach(count);
    for (std::size_t p = 0; p < count; p += 1 + p / 8) {
      rotation_at(rotary, static_cast<double>(p), expected);
      ASSERT_TRUE(std::ranges::equal(table.at(p), expected)) << p;
    }
  }
}

/// Segments of so many entries with positions below `most` each, not below 0; or, where `runs`, one
/// after the other.
void expect_sorted_places(std::span<const std::size_t> counts, Position most, bool runs,
                          StorageType type) {
  constexpr std::size_t kDim = 12;
  const Rotary rotary = some_rotary(most % 2 == 0);
  std::mt19937 random(static_cast<unsigned>(most));
  std::vector<Rows> keys;
  std::vector<std::vector<Position>> positions;
  std::vector<Segment> segments;
  Position next = 3;
  for (std::size_t count : counts) {
    keys.emplace_back(type, kDim, count);
    const Matrix rows = random_matrix(count, kDim, 5 + count);
    auto& places = positions.emplace_back();
    for (std::size_t i = 0; i < count; ++i) {
      keys.back().set(i, rows[i]);
      places.push_back(runs ? next++
                            : std::uniform_int_distribution<Position>(0, most - 1)(random));
    }
    Segment& segment = segments.emplace_back();
    segment.keys = keys.back().view(0, count);
    segment.first_position = places.empty() ? 0 : places[0];
    if (!runs) segment.positions = places.data();
  }
  std::vector<Position> all;
  for (const auto& part : positions) all.insert(all.end(), part.begin(), part.end());
  std::ranges::sort(all);
  all.erase(std::ranges::unique(all).begin(), all.end());
  const auto place_of = [&](Position p) { return std::ranges::lower_bound(all, p) - all.begin(); };

  RotaryTable table(rotary);
  RolledEntries rolled(table, segments);
  for (std::size_t s = 0; s < segments.size(); ++s) {
    ASSERT_EQ(segments[s].keys.rows, counts[s]);
    for (std::size_t i = 0; i < counts[s]; ++i) {
      const auto place = place_of(positions[s][i]);
      const Position told = segments[s].positions != nullptr
                                ? segments[s].positions[i]
                                : segments[s].first_position + static_cast<Position>(i);
      ASSERT_EQ(told, place) << "entry " << i << " of segment " << s << ", below " << most;
      std::vector<float> stored(kDim), got(kDim);
      keys[s].view(0, counts[s]).decode(i, stored);
      segments[s].keys.decode(i, got);
      const auto expected = turned(stored, rotary, static_cast<double>(place));
      for (std::size_t c = 0; c < kDim; ++c) ASSERT_NEAR(got[c], expected[c], 2e-6 * kDim);
    }
  }
  std::vector<Position> asked;
  for (std::size_t i = 0; i < all.size(); i += 7) asked.push_back(all[i]);
  if (!all.empty()) asked.push_back(all.back() + 1);  // not kept: behind all that are
  Matrix queries = random_matrix(asked.size(), kDim, 3);
  const std::vector<Position> before = asked;
  rolled.place(asked, queries.view());
  for (std::size_t i = 0; i < asked.size(); ++i) ASSERT_EQ(asked[i], place_of(before[i]));
}

TEST(Rolling, PlacesAreThoseOfTheSortedPositions) {
  const std::vector<std::vector<std::size_t>> sizes = {{},         {0},         {1},      {0, 1, 0},
                                                       {4, 0, 33}, {32, 64, 1}, {700, 31}};
  for (StorageType type : {StorageType::f32, StorageType::bf16, StorageType::int4}) {
    for (const auto& counts : sizes) {
      // Up to one, two, three and four bytes, with entries that share a position, and many that do.
      for (Position most : {1, 9, 256, 257, 70'000, 20'000'001, 2'147'483'646}) {
        expect_sorted_places(counts, most, false, type);
      }
      expect_sorted_places(counts, 2, true, type);
    }
  }
}

TEST(Rolling, NamesAreChecked) {
  EXPECT_EQ(parse_positions("rolling"), Positions::rolling);
  EXPECT_EQ(to_string(Positions::absolute), "absolute");
  EXPECT_EQ(error_of([] { parse_positions("x"); }),
            "unknown positions 'x'; known: absolute, rolling");
  Stream s = make_stream(3, 1);
  s.shape.rotary.frequencies.resize(9);
  EXPECT_EQ(error_of([&] { Cache(s.shape, CacheOptions{}); }),
            "9 rotations of two numbers in a head of 16");
}

}  // namespace
}  // namespace ballast::test
