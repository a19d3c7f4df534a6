// Attention over every type on every target: the targets of Highway, and tiles.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cfenv>
#include <cmath>
#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "attention/cases.h"
#include "attention/kernels/amx.h"
#include "ballast/threads.h"
#include "simd/forced_target.h"
#include "simd/trapped_tiles.h"

namespace ballast {
namespace {

using namespace test;

/// A target, and whether tiles are beside it: emulated, where the processor has none.
struct Kernels {
  std::int64_t target;
  bool tiles;
};

std::vector<Kernels> all_kernels() {
  std::vector<Kernels> all;
  for (const std::int64_t target : kernel_targets()) all.push_back({target, false});
#if defined(__x86_64__) && defined(__linux__)
  all.push_back({HWY_AVX3_DL, true});
#endif
  return all;
}

class Tiles {
 public:
#if defined(__x86_64__) && defined(__linux__)
  explicit Tiles(bool used) {
    if (used) trapped_.emplace();
    if (!used) force_amx(false);
  }
  ~Tiles() {
    if (!trapped_) force_amx({});
  }

 private:
  std::optional<TrappedTiles> trapped_;
#else
  explicit Tiles(bool) {}
#endif
};

class Attention : public testing::TestWithParam<std::tuple<Kernels, StorageType>> {
 protected:
  void SetUp() override {
    if (std::get<0>(GetParam()).tiles && !(has_avx512_bf16() && has_avx512_vnni())) {
      GTEST_SKIP() << "needs AVX512_BF16 beside the emulated tiles";
    }
  }
  StorageType type() const { return std::get<1>(GetParam()); }
  double allowed() const {
    switch (type()) {
      case StorageType::f32:
        return 1e-5;
      case StorageType::bf16:
      case StorageType::f16:
        return 1e-2;
      case StorageType::int8:
        return 2e-2;
      case StorageType::q3:
        return 0.5;
      case StorageType::q2:
        return 0.9;
      case StorageType::int4:
      case StorageType::q4:
        break;
    }
    return 0.35;  // far from a promise: that the numbers are the right ones
  }

  ForcedTarget forced_{std::get<0>(GetParam()).target};
  Tiles tiles_{std::get<0>(GetParam()).tiles};
  std::mt19937 random_{2024};
};

TEST_P(Attention, MatchesFloat64ForAnyShape) {
  double worst = 0.0;
  const std::size_t counts[] = {1, 2, 3, 5, 31, 127, 128, 129, 300};
  const std::size_t dims[] = {1, 3, 16, 31, 32, 33, 64, 80, 100, 128, 255, 256};
  for (std::size_t trial = 0; trial < 24; ++trial) {
    const std::size_t n = counts[random_() % std::size(counts)];
    const std::size_t d = dims[trial % std::size(dims)];
    const std::size_t dv = dims[random_() % std::size(dims)];
    const std::size_t m = 1 + random_() % (trial % 2 == 0 ? 4 : 20);
    Cache cache;
    cache.parts.push_back(make_part(random_, n, d, dv, type(), type()));
    const Asked asked = make_queries(random_, m, d);
    // Of one or two numbers the relative error means nothing at 4 bits and fewer.
    const double error = error_of(cache, asked, usual(d), dv);
    const bool rough = type() == StorageType::int4 || is_rotated(type());
    if (!rough || (d > 30 && dv > 30)) worst = std::max(worst, error);
  }
  RecordProperty("worst_relative_error", fmt::format("{:.2e}", worst));
  EXPECT_LE(worst, allowed());
}

TEST_P(Attention, MatchesFloat64OnALongContext) {
  Cache cache;
  cache.parts.push_back(make_part(random_, 2051, 128, 128, type(), type()));
  const Asked asked = make_queries(random_, 3, 128);
  const double error = error_of(cache, asked, usual(128), 128);
  RecordProperty("relative_error", fmt::format("{:.2e}", error));
  EXPECT_LE(error, allowed());
}

// Integer products add up in 32 bits, and on the way in 16: here all of them are the largest there
// are, of one sign.
TEST_P(Attention, LargestCodesAddUp) {
  for (const std::size_t d : {32, 64, 96, 128, 256}) {
    Cache cache;
    cache.parts.push_back(make_part(random_, 200, d, d, type(), type()));
    auto& part = cache.parts.back();
    std::uniform_real_distribution<double> size(0.1, 1.0);
    for (auto& key : part.keys) {
      const double x = size(random_);
      for (std::size_t c = 0; c < d; ++c) key[c] = c % kQuantGroup == 0 ? -x : x;
    }
    part.key_rows = store(type(), part.keys, d);
    std::vector<float> row(d);
    for (std::size_t i = 0; i < part.keys.size(); ++i) {
      part.key_rows.view(i, 1).decode(0, row);
      std::copy(row.begin(), row.end(), part.keys[i].begin());
      part.value_rows.view(i, 1).decode(0, row);
      std::copy(row.begin(), row.end(), part.values[i].begin());
    }
    for (const std::size_t m : {1, 4, 5, 35}) {
      Asked asked = make_queries(random_, m, d);
      for (auto& query : asked.numbers) std::fill(query.begin(), query.end(), 0.75);
      asked.rows = to_matrix(asked.numbers, d);
      EXPECT_LE(error_of(cache, asked, usual(d), d), 0.02) << d << ", " << m << " queries";
    }
  }
}

// What kernels round beyond the stored numbers: queries and weights, to at most what a stored
// number has lost itself.
TEST_P(Attention, AddsLittleToWhatStorageLost) {
  // Of int4: scales in 4, 6, 8 and 16 words, and rows of an odd number of chunks.
  for (const auto& [n, d] : std::vector<std::pair<std::size_t, std::size_t>>{
           {40, 128}, {1000, 128}, {300, 64}, {300, 96}, {300, 256}}) {
    Cache cache;
    cache.parts.push_back(make_part(random_, n, d, d, type(), type()));
    auto& part = cache.parts.back();
    // Values whose size has nothing to do with their weight, and one entry that has almost all.
    for (std::size_t i = 0; i < n; ++i) {
      for (float& x : part.values[i]) x *= std::exp2(static_cast<float>(i % 16) - 8.0f);
    }
    const Asked asked = make_queries(random_, n == 1000 ? 18 : 5, d);
    for (std::size_t c = 0; c < d; ++c) part.keys[3][c] = 0.6f * asked.numbers[0][c];
    part.key_rows = store(type(), part.keys, d);
    part.value_rows = store(type(), part.values, d);
    for (std::size_t i = 0; i < n; ++i) {
      part.key_rows.view(i, 1).decode(0, part.keys[i]);
      part.value_rows.view(i, 1).decode(0, part.values[i]);
    }
    const double error = error_of(cache, asked, usual(d), d);
    RecordProperty(fmt::format("relative_error_{}_{}", n, d), fmt::format("{:.2e}", error));
    EXPECT_LE(error, type() == StorageType::bf16   ? 5e-3
                     : type() == StorageType::int8 ? 5e-4
                     : type() == StorageType::int4 ? 2e-2
                     : is_rotated(type())          ? 2e-2
                                                   : 2e-6);
  }
}

TEST_P(Attention, OneQueryIsTheSameToTheLastBitInAnyCompany) {
  const std::size_t dv = 72, m = 150;
  for (const std::size_t d : {64, 80}) {  // 64: whole steps only, for which there are kernels
    Cache cache;
    cache.parts.push_back(make_part(random_, 333, d, dv, type(), type()));
    cache.parts.back().first_position = 0;
    cache.parts.push_back(make_part(random_, 50, d, dv, type(), type()));
    Asked all = make_queries(random_, m, d);
    for (std::size_t q = 0; q < m; ++q) all.positions.push_back(static_cast<Position>(q + 20));
    const Matrix together = answer(cache, all, usual(d), dv);
    for (std::size_t width : {1, 2, 3, 4, 5, 11, 12, 17, 100}) {
      const auto segments = cache.segments();
      for (std::size_t first = 0; first < m; first += width) {
        const std::size_t count = std::min(width, m - first);
        const Queries some{all.rows.view().slice(first, count),
                           std::span(all.positions).subspan(first, count),
                           {}};
        Matrix out(count, dv);
        attend(some, segments, usual(d), out.view());
        for (std::size_t q = 0; q < count; ++q) {
          ASSERT_TRUE(same_bits(out[q], together[first + q])) << d << " numbers, width " << width;
        }
      }
    }
  }
}

// The same rows, `apart` more bytes from each other, with all bits set in the bytes that pad them:
// NaNs, where a kernel takes them for numbers.
std::vector<std::byte> poisoned(RowsView& rows, std::size_t apart = 0) {
  std::size_t used = 2 * rows.dim;
  if (rows.type == StorageType::f32) used *= 2;
  if (rows.type == StorageType::int8) used /= 2;
  if (rows.type == StorageType::int4 || is_rotated(rows.type))
    used = row_bytes(rows.type, rows.dim);
  const std::size_t stride = row_bytes(rows.type, rows.dim) + apart;
  std::vector<std::byte> bytes(rows.rows * stride, std::byte{0xFF});
  for (std::size_t r = 0; r < rows.rows; ++r) {
    std::copy_n(rows.data + r * rows.stride, used, bytes.data() + r * stride);
  }
  rows.data = bytes.data();
  rows.stride = stride;
  return bytes;
}

TEST_P(Attention, WhatPadsRowsIsNoMatter) {
  for (std::size_t d : {1, 20, 33, 71, 100}) {
    for (std::size_t n : {5, 128, 200, 256}) {
      Cache cache;
      cache.parts.push_back(make_part(random_, n, d, d, type(), type()));
      auto segments = cache.segments();
      // Rows that follow each other, that nearly do, and that lie lines apart.
      const std::size_t apart = n == 128 ? 16 : n == 200 ? 144 : 0;
      const auto keys = poisoned(segments[0].keys, apart);
      const auto values = poisoned(segments[0].values, apart);
      for (std::size_t m : {1, 2, 3, 4, 5, 40}) {
        const Asked asked = make_queries(random_, m, d);
        const Matrix plain = answer(cache, asked, usual(d), d);
        Matrix out(m, d);
        attend(asked.queries(), segments, usual(d), out.view());
        for (std::size_t q = 0; q < m; ++q) {
          ASSERT_TRUE(same_bits(out[q], plain[q])) << d << " numbers, " << n << " rows, " << m;
        }
      }
    }
  }
}

// There are kernels for each; this machine's own are those of all other tests.
TEST_P(Attention, WhichCacheRowsAreAskedIntoIsNoMatter) {
  for (std::size_t d : {20, 64, 100, 128}) {
    Cache cache;
    cache.parts.push_back(make_part(random_, 300, d, d, type(), type()));
    for (std::size_t m : {1, 2, 3, 4, 5, 40}) {
      const Asked asked = make_queries(random_, m, d);
      const auto with = [&](bool first) {
        const test::ForcedCache forced(first);
        return answer(cache, asked, usual(d), d);
      };
      const Matrix first = with(true), second = with(false);
      for (std::size_t q = 0; q < m; ++q) {
        ASSERT_TRUE(same_bits(first[q], second[q])) << d << " numbers, " << m << " queries";
      }
    }
  }
}

TEST_P(Attention, PromptInChunksIsTheSameToTheLastBit) {
  const std::size_t d = 64, n = 300;
  Cache cache;
  cache.parts.push_back(make_part(random_, n, d, d, type(), type()));
  cache.parts.back().first_position = 0;
  Asked all = make_queries(random_, n, d);
  for (std::size_t q = 0; q < n; ++q) all.positions.push_back(static_cast<Position>(q));
  for (Position window : {0, 37, 128}) {
    Logits logits = usual(d);
    logits.sliding_window = window;
    const Matrix together = answer(cache, all, logits, d);
    for (std::size_t chunk : {3, 64, 129}) {
      for (std::size_t first = 0; first < n; first += chunk) {
        const std::size_t count = std::min(chunk, n - first);
        // Only what has been read so far is in the cache.
        std::vector<Segment> segments = cache.segments();
        segments[0].keys = segments[0].keys.slice(0, first + count);
        segments[0].values = segments[0].values.slice(0, first + count);
        Matrix out(count, d);
        attend({all.rows.view().slice(first, count),
                std::span(all.positions).subspan(first, count),
                {}},
               segments, logits, out.view());
        for (std::size_t q = 0; q < count; ++q) {
          ASSERT_TRUE(same_bits(out[q], together[first + q])) << "chunk " << chunk;
        }
      }
    }
  }
}

TEST_P(Attention, HugeLogitsStayFinite) {
  Cache cache;
  cache.parts.push_back(make_part(random_, 200, 64, 64, type(), type()));
  auto& part = cache.parts.back();
  for (auto& row : part.keys) {
    for (float& x : row) x *= 1e4f / 8;  // norms of about 1e4
  }
  part.key_rows = store(type(), part.keys, 64);
  for (std::size_t m : {6, 20}) {
    Asked asked = make_queries(random_, m, 64);
    for (std::size_t q = 0; q < m; ++q) {
      for (float& x : asked.rows[q]) x *= 1e4f / 8;
    }
    const Matrix out = answer(cache, asked, usual(64), 64);
    for (std::size_t q = 0; q < m; ++q) {
      for (float x : out[q]) ASSERT_TRUE(std::isfinite(x));
    }
  }
}

// Prompts of groups of query heads over several segments, causal, with the attention of each entry:
// shapes that fill tiles, miss them by one, and leave rests.
TEST_P(Attention, PromptsOfAnyShapeMatchFloat64) {
  const std::size_t counts[] = {0, 1, 15, 16, 17, 63, 64, 65, 127, 128, 129, 200};
  const std::size_t queries[] = {0, 15, 16, 17, 31, 32, 33, 47, 48, 49, 128, 129, 145};
  const std::size_t dims[] = {64, 80, 96, 128, 256, 48, 33, 200};
  const double most = type() == StorageType::bf16   ? 5e-3
                      : type() == StorageType::int8 ? 5e-4
                      : type() == StorageType::int4 ? 2e-2
                      : is_rotated(type())          ? 2e-2
                                                    : 1e-5;
  for (std::size_t trial = 0; trial < 26; ++trial) {
    const std::size_t d = dims[trial % std::size(dims)], dv = dims[random_() % std::size(dims)];
    const std::size_t m = queries[trial % std::size(queries)], group = 1 + random_() % 4;
    Cache cache;
    Position next = 0;
    for (std::size_t s = 0; s < 1 + trial % 3; ++s) {
      const std::size_t n = counts[random_() % std::size(counts)];
      cache.parts.push_back(make_part(random_, n, d, dv, type(), type()));
      auto& part = cache.parts.back();
      for (std::size_t i = 0; i < n; ++i) {
        part.key_rows.view(i, 1).decode(0, part.keys[i]);
        part.value_rows.view(i, 1).decode(0, part.values[i]);
      }
      part.first_position = next;
      next += static_cast<Position>(n);
    }
    Asked asked = make_queries(random_, m, d);
    for (std::size_t q = 0; q < m; ++q) {
      asked.positions.push_back(next / 2 + static_cast<Position>(q / group));
    }
    const auto entries = cache.entries();
    Matrix out(m, dv);
    std::vector<float> sums(entries.size());
    attend_with_attention_sum(asked.queries(), cache.segments(), usual(d), out.view(), sums);
    std::vector<std::vector<double>> expected;
    std::vector<double> expected_sums(entries.size());
    for (std::size_t q = 0; q < m; ++q) {
      expected.push_back(
          reference_attention(entries, asked.reference(q), usual(d), dv, &expected_sums));
    }
    const auto where = fmt::format("{} queries in groups of {}, {} entries, {} and {} elements", m,
                                   group, entries.size(), d, dv);
    EXPECT_LE(relative_error(out, expected), most) << where;
    for (std::size_t e = 0; e < entries.size(); ++e) {
      EXPECT_NEAR(sums[e], expected_sums[e], 10 * most * expected_sums[e] + 1e-6) << where;
    }
    Matrix alone(m, dv);
    attend(asked.queries(), cache.segments(), usual(d), alone.view());
    for (std::size_t q = 0; q < m; ++q) {
      ASSERT_TRUE(same_bits(alone[q], out[q])) << where << ", without sums";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Attention,
                         testing::Combine(testing::ValuesIn(all_kernels()),
                                          testing::ValuesIn(kTypes)),
                         [](const auto& info) {
                           const Kernels kernels = std::get<0>(info.param);
                           return (kernels.tiles ? "AMX" : hwy::TargetName(kernels.target)) +
                                  ("_" + type_name(std::get<1>(info.param)));
                         });

#if defined(__x86_64__) && defined(__linux__)
// Sums of integers are exact. Those of bf16 are another order's, for all queries of a processor.
TEST(AttentionByTiles, ChangesNoBitOfIntegers) {
  if (!has_avx512_bf16()) GTEST_SKIP() << "needs AVX512_BF16 beside the emulated tiles";
  const TrappedTiles tiles;
  std::mt19937 random(7);
  for (const StorageType type : kTypes) {
    const bool integers =
        type == StorageType::int8 || type == StorageType::int4 || is_rotated(type);
    for (std::size_t d : {64, 80, 128}) {
      Cache cache;
      cache.parts.push_back(make_part(random, 300, d, d, type, type));
      for (const std::size_t m : {4, 5, 15, 16, 50, 130}) {
        const auto where = fmt::format("{}, {} elements, {} queries", type_name(type), d, m);
        const Asked asked = make_queries(random, m, d);
        (void)has_amx_bf16();  // tries tiles
        const std::size_t before = tiles.products();
        const Matrix by_tiles = answer(cache, asked, usual(d), d);
        if (!tiles.real()) {
          EXPECT_EQ(tiles.products() > before, kernels::amx::multiplies(type, m)) << where;
          EXPECT_FALSE(tile_file().configured()) << "released at the end: " << where;
        }
        if (!integers) continue;
        force_amx(false);
        const Matrix by_vectors = answer(cache, asked, usual(d), d);
        force_amx(true);
        for (std::size_t q = 0; q < m; ++q) {
          ASSERT_TRUE(same_bits(by_tiles[q], by_vectors[q])) << where;
        }
      }
    }
  }
}

// Tiles round to the nearest, whatever the thread is set to.
TEST(AttentionByTiles, ATokenIsTheSameInAnyCompanyWhereTheThreadRoundsUpwards) {
  if (!has_avx512_bf16()) GTEST_SKIP() << "needs AVX512_BF16 beside the emulated tiles";
  const TrappedTiles tiles;
  if (!has_amx_bf16()) GTEST_SKIP() << "this processor has no tiles of bfloat16";
  std::mt19937 random(7);
  const std::size_t d = 64, m = 5;
  Cache cache;
  cache.parts.push_back(make_part(random, 200, d, d, StorageType::bf16, StorageType::bf16));
  const Asked asked = make_queries(random, m, d);
  const int threads_before = threads();
  set_threads(1);  // others round as they did before
  std::fesetround(FE_UPWARD);
  const Matrix together = answer(cache, asked, usual(d), d);
  Matrix alone(m, d);
  const auto segments = cache.segments();
  for (std::size_t q = 0; q < m; ++q) {
    attend({asked.rows.view().slice(q, 1), {}, {}}, segments, usual(d), alone.view().slice(q, 1));
  }
  std::fesetround(FE_TONEAREST);
  set_threads(threads_before);
  for (std::size_t q = 0; q < m; ++q) ASSERT_TRUE(same_bits(alone[q], together[q])) << q;
}
#endif

}  // namespace
}  // namespace ballast
