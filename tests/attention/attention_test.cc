#include "ballast/attention.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <tuple>
#include <vector>

#include "attention/reference.h"
#include "ballast/error.h"
#include "simd/forced_target.h"

namespace ballast {
namespace {

using test::ForcedTarget;
using test::Numbers;
using test::random_rows;
using test::ReferenceEntry;
using test::ReferenceQuery;
using test::store;
using test::to_matrix;

// A cache of several segments with its unrounded numbers beside it.
struct Cache {
  struct Part {
    Numbers keys, values;
    Rows key_rows, value_rows;
    std::vector<float> log_weights;
    std::vector<Position> positions;
    Role role = Role::both;
    Position first_position = -1;
  };
  std::vector<Part> parts;

  std::vector<Segment> segments() const {
    std::vector<Segment> result;
    for (const Part& part : parts) {
      Segment segment;
      segment.keys = part.key_rows.view(0, part.keys.size());
      if (part.role != Role::normaliser) {
        segment.values = part.value_rows.view(0, part.values.size());
      }
      if (!part.log_weights.empty()) segment.log_weights = part.log_weights.data();
      if (!part.positions.empty()) segment.positions = part.positions.data();
      segment.role = part.role;
      segment.first_position = part.first_position;
      result.push_back(segment);
    }
    return result;
  }

  std::vector<ReferenceEntry> entries() const {
    std::vector<ReferenceEntry> result;
    for (const Part& part : parts) {
      for (std::size_t i = 0; i < part.keys.size(); ++i) {
        ReferenceEntry entry;
        entry.key = &part.keys[i];
        entry.value = &part.values[i];
        if (!part.log_weights.empty()) entry.log_weight = part.log_weights[i];
        entry.role = part.role;
        if (!part.positions.empty()) {
          entry.position = part.positions[i];
        } else if (part.first_position >= 0) {
          entry.position = part.first_position + static_cast<Position>(i);
        }
        result.push_back(entry);
      }
    }
    return result;
  }
};

Cache::Part make_part(std::mt19937& random, std::size_t n, std::size_t d, std::size_t dv,
                      StorageType keys, StorageType values) {
  Cache::Part part;
  part.keys = random_rows(random, n, d);
  part.values = random_rows(random, n, dv);
  part.key_rows = store(keys, part.keys, d);
  part.value_rows = store(values, part.values, dv);
  return part;
}

struct Asked {
  Numbers numbers;
  Matrix rows;
  std::vector<Position> positions;
  std::vector<float> slopes;

  Queries queries() const { return {rows.view(), positions, slopes}; }
  ReferenceQuery reference(std::size_t q) const {
    ReferenceQuery query{&numbers[q], std::nullopt, 0.0};
    if (!positions.empty()) query.position = positions[q];
    if (!slopes.empty()) query.slope = slopes[q];
    return query;
  }
};

Asked make_queries(std::mt19937& random, std::size_t m, std::size_t d) {
  Asked asked;
  asked.numbers = random_rows(random, m, d);
  asked.rows = to_matrix(asked.numbers, d);
  return asked;
}

Matrix answer(const Cache& cache, const Asked& asked, const Logits& logits, std::size_t dv) {
  Matrix out(asked.rows.rows(), dv);
  attend(asked.queries(), cache.segments(), logits, out.view());
  return out;
}

double error_of(const Matrix& got, const Cache& cache, const Asked& asked, const Logits& logits) {
  std::vector<std::vector<double>> expected;
  for (std::size_t q = 0; q < asked.numbers.size(); ++q) {
    expected.push_back(
        test::reference_attention(cache.entries(), asked.reference(q), logits, got.cols()));
  }
  return test::relative_error(got, expected);
}

double error_of(const Cache& cache, const Asked& asked, const Logits& logits, std::size_t dv) {
  return error_of(answer(cache, asked, logits, dv), cache, asked, logits);
}

Logits usual(std::size_t d) {
  Logits logits;
  logits.scale = 1.0f / std::sqrt(static_cast<float>(d));
  return logits;
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin());
}

std::string type_name(StorageType type) { return std::string(to_string(type)); }

constexpr StorageType kTypes[] = {StorageType::f32,  StorageType::bf16, StorageType::f16,
                                  StorageType::int8, StorageType::int4, StorageType::q4,
                                  StorageType::q3,   StorageType::q2};

// ---- every type on every target

class Attention : public testing::TestWithParam<std::tuple<std::int64_t, StorageType>> {
 protected:
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

  ForcedTarget forced_{std::get<0>(GetParam())};
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
    for (const std::size_t m : {1, 4, 5}) {
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
    const Asked asked = make_queries(random_, 5, d);
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
    for (std::size_t width : {1, 2, 3, 4, 5, 11, 12, 100}) {
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
  Asked asked = make_queries(random_, 6, 64);
  for (std::size_t q = 0; q < 6; ++q) {
    for (float& x : asked.rows[q]) x *= 1e4f / 8;
  }
  const Matrix out = answer(cache, asked, usual(64), 64);
  for (std::size_t q = 0; q < 6; ++q) {
    for (float x : out[q]) ASSERT_TRUE(std::isfinite(x));
  }
}

INSTANTIATE_TEST_SUITE_P(All, Attention,
                         testing::Combine(testing::ValuesIn(test::kernel_targets()),
                                          testing::ValuesIn(kTypes)),
                         [](const auto& info) {
                           return std::string(hwy::TargetName(std::get<0>(info.param))) + "_" +
                                  type_name(std::get<1>(info.param));
                         });

// ---- every feature on every target, at f32

class AttentionOf : public testing::TestWithParam<std::int64_t> {
 protected:
  ForcedTarget forced_{GetParam()};
  std::mt19937 random_{99};

  Cache::Part part(std::size_t n, std::size_t d = 64, std::size_t dv = 48) {
    return make_part(random_, n, d, dv, StorageType::f32, StorageType::f32);
  }
};

TEST_P(AttentionOf, NothingIsZero) {
  Cache cache;
  const Asked asked = make_queries(random_, 3, 64);
  EXPECT_THAT(answer(cache, asked, usual(64), 48)[2], testing::Each(0.0f));
  cache.parts.push_back(part(0));
  EXPECT_THAT(answer(cache, asked, usual(64), 48)[2], testing::Each(0.0f));
  EXPECT_EQ(answer(cache, make_queries(random_, 0, 64), usual(64), 48).rows(), 0u);
}

TEST_P(AttentionOf, WeightsRolesPositionsAndSlopes) {
  for (std::size_t trial = 0; trial < 30; ++trial) {
    Cache cache;
    for (Role role : {Role::both, Role::numerator, Role::normaliser, Role::both}) {
      cache.parts.push_back(part(1 + random_() % 200));
      auto& now = cache.parts.back();
      now.role = role;
      const std::size_t n = now.keys.size();
      if (random_() % 2 == 0) {
        std::normal_distribution<float> normal;
        for (std::size_t i = 0; i < n; ++i) {
          now.log_weights.push_back(i % 7 == 3 ? -INFINITY : normal(random_));
        }
      }
      if (random_() % 3 == 0) {
        for (std::size_t i = 0; i < n; ++i) now.positions.push_back(random_() % 300);
      } else if (random_() % 2 == 0) {
        now.first_position = random_() % 100;
      }
    }
    cache.parts.push_back(part(3));  // seen by all: no query is left without a normaliser
    Asked asked = make_queries(random_, 1 + random_() % 30, 64);
    for (std::size_t q = 0; q < asked.numbers.size(); ++q) {
      asked.positions.push_back(random_() % 300);
      asked.slopes.push_back(0.01f * static_cast<float>(random_() % 5));
    }
    Logits logits = usual(64);
    if (trial % 3 == 1) logits.softcap = 1.5f;
    if (trial % 4 == 1) logits.sliding_window = 1 + random_() % 120;
    EXPECT_LE(error_of(cache, asked, logits, 48), 1e-5) << "trial " << trial;
  }
}

TEST_P(AttentionOf, UnknownPositionsAreSeenByAll) {
  Cache cache;
  cache.parts.push_back(part(40));
  Asked asked = make_queries(random_, 2, 64);
  asked.positions = {0, 7};
  asked.slopes = {1.0f, 1.0f};
  Logits logits = usual(64);
  logits.sliding_window = 2;
  EXPECT_LE(error_of(cache, asked, logits, 48), 1e-5);
}

TEST_P(AttentionOf, ZeroWeightIsAbsence) {
  Cache cache;
  cache.parts.push_back(part(150));
  cache.parts.back().log_weights.assign(150, -INFINITY);
  const Asked asked = make_queries(random_, 3, 64);
  EXPECT_THAT(answer(cache, asked, usual(64), 48)[1], testing::Each(0.0f));
}

TEST_P(AttentionOf, AnEmptyNormaliserIsAnError) {
  Cache cache;
  cache.parts.push_back(part(20));
  cache.parts.back().role = Role::numerator;
  const Asked asked = make_queries(random_, 3, 64);
  EXPECT_THROW(answer(cache, asked, usual(64), 48), Error);
  cache.parts.push_back(part(20));
  cache.parts.back().log_weights.assign(20, -INFINITY);
  EXPECT_THROW(answer(cache, asked, usual(64), 48), Error);
}

// A normaliser that lacks the entries that count: however far it is below them, none of them gets
// more than all of the attention.
TEST_P(AttentionOf, NoEntryGetsMoreThanAllOfTheAttention) {
  Cache cache;
  for (std::size_t n : {20, 150}) {
    cache.parts.push_back(part(n));
    cache.parts.back().role = Role::numerator;
  }
  for (std::size_t i = 0; i < 20; ++i) {
    cache.parts[0].log_weights.push_back(static_cast<float>(i));
  }
  cache.parts.push_back(part(200));
  cache.parts.back().role = Role::normaliser;
  const Asked asked = make_queries(random_, 30, 64);
  for (float log_weight : {0.0f, -3.0f, -50.0f, -300.0f, -1e9f}) {
    for ([[maybe_unused]] bool normaliser_first : {false, true}) {
      for (auto& one : cache.parts) {
        if (one.role == Role::normaliser) one.log_weights.assign(200, log_weight);
      }
      EXPECT_LE(error_of(cache, asked, usual(64), 48), 1e-5) << log_weight;
      PartialAttention whole(30, 48);
      for (const Segment& segment : cache.segments()) {
        PartialAttention part(30, 48);
        attend_partial(asked.queries(), {&segment, 1}, usual(64), part);
        whole.merge(part);
      }
      Matrix merged(30, 48);
      whole.finish(merged.view());
      EXPECT_LE(error_of(merged, cache, asked, usual(64)), 1e-5) << log_weight;
      std::ranges::reverse(cache.parts);
    }
  }
}

TEST_P(AttentionOf, NanNeverPassesInSilence) {
  for (std::size_t n : {1, 130}) {
    Cache cache;
    cache.parts.push_back(part(n));
    Asked asked = make_queries(random_, 2, 64);
    asked.rows[1][5] = NAN;
    EXPECT_THROW(answer(cache, asked, usual(64), 48), Error);
  }
}

// Where it meets values only, which may be multiplied as integers.
TEST_P(AttentionOf, NanOfOneKeyNeverPassesInSilence) {
  for (StorageType values : kTypes) {
    for (std::size_t nan : {0, 77, 127, 129}) {
      Cache cache;
      cache.parts.push_back(make_part(random_, 130, 64, 48, StorageType::f32, values));
      cache.parts.back().role = Role::numerator;
      std::vector<float> key(64, 0.5f);
      key[nan % 64] = NAN;
      cache.parts.back().key_rows.set(nan, key);
      cache.parts.push_back(part(20));
      cache.parts.back().role = Role::normaliser;
      for (std::size_t m : {1, 4, 20}) {
        EXPECT_THROW(answer(cache, make_queries(random_, m, 64), usual(64), 48), Error)
            << to_string(values) << ", key " << nan << ", " << m << " queries";
      }
    }
  }
}

TEST_P(AttentionOf, PartsMergeToTheWhole) {
  Cache cache;
  for (std::size_t n : {5, 130, 1, 260, 64}) cache.parts.push_back(part(n));
  cache.parts[1].role = Role::numerator;
  cache.parts[3].role = Role::normaliser;
  const Asked asked = make_queries(random_, 7, 64);
  const auto segments = cache.segments();
  const Matrix whole = answer(cache, asked, usual(64), 48);
  for (int trial = 0; trial < 10; ++trial) {
    PartialAttention left(7, 48), right(7, 48), nothing(7, 48);
    for (const Segment& segment : segments) {
      const std::size_t cut = random_() % (segment.keys.rows + 1);
      for (auto [begin, end] :
           {std::pair(std::size_t{0}, cut), std::pair(cut, segment.keys.rows)}) {
        Segment piece = segment;
        piece.keys = segment.keys.slice(begin, end - begin);
        if (segment.role != Role::normaliser) {
          piece.values = segment.values.slice(begin, end - begin);
        }
        attend_partial(asked.queries(), {&piece, 1}, usual(64), random_() % 2 ? left : right);
      }
    }
    left.merge(nothing);
    left.merge(right);
    nothing.merge(left);
    Matrix out(7, 48);
    nothing.finish(out.view());
    for (std::size_t q = 0; q < 7; ++q) {
      for (std::size_t i = 0; i < 48; ++i) ASSERT_NEAR(out[q][i], whole[q][i], 2e-6);
    }
  }
}

TEST(PartialAttention, AnEmptyNormaliserStaysEmpty) {
  PartialAttention a(1, 2), b(1, 2);
  for (PartialAttention* part : {&a, &b}) {  // entries of the numerator only
    part->max_logit[0] = 1;
    part->numerator[0][0] = 1;
  }
  a.merge(b);
  EXPECT_EQ(a.normaliser[0], 0.0f);
  Matrix out(1, 2);
  EXPECT_THROW(a.finish(out.view()), Error);
}

TEST_P(AttentionOf, MassIsTheShareOfEachEntry) {
  Cache cache;
  for (std::size_t n : {33, 140, 70}) cache.parts.push_back(part(n));
  cache.parts[1].role = Role::numerator;
  cache.parts[2].first_position = 10;
  cache.parts[0].log_weights.assign(33, 0.5f);
  Asked asked = make_queries(random_, 150, 64);
  for (std::size_t q = 0; q < 150; ++q) asked.positions.push_back(static_cast<Position>(q));
  std::vector<float> attention_sum(243, 0.0f);
  Matrix out(150, 48);
  attend_with_attention_sum(asked.queries(), cache.segments(), usual(64), out.view(),
                            attention_sum);
  std::vector<double> expected(243, 0.0);
  for (std::size_t q = 0; q < 150; ++q) {
    test::reference_attention(cache.entries(), asked.reference(q), usual(64), 48, &expected);
  }
  for (std::size_t e = 0; e < 243; ++e) {
    ASSERT_NEAR(attention_sum[e], expected[e], 1e-5 * (1 + expected[e])) << e;
  }
  EXPECT_NEAR(std::accumulate(attention_sum.begin(), attention_sum.end(), 0.0), 150.0, 1e-3);
  const Matrix plain = answer(cache, asked, usual(64), 48);
  for (std::size_t q = 0; q < 150; ++q) EXPECT_TRUE(same_bits(out[q], plain[q]));
}

TEST_P(AttentionOf, KeysAndValuesMayDifferInType) {
  for (StorageType keys : kTypes) {
    for (StorageType values : {StorageType::f32, StorageType::bf16, StorageType::int4}) {
      Cache cache;
      cache.parts.push_back(make_part(random_, 90, 96, 40, keys, values));
      cache.parts.push_back(make_part(random_, 90, 96, 40, values, keys));
      const Asked asked = make_queries(random_, 3, 96);
      const bool two_bits = keys == StorageType::q2 || keys == StorageType::q3;
      EXPECT_LE(error_of(cache, asked, usual(96), 40), two_bits ? 0.6 : 0.3);
    }
  }
}

// Keys and values of rotated types about a mean, beside segments without one: against the rows that
// are stored, in float64.
TEST_P(AttentionOf, MeansEnterLogitsAndValues) {
  const StorageType kPairs[][2] = {{StorageType::q4, StorageType::q2},
                                   {StorageType::q3, StorageType::q4},
                                   {StorageType::q2, StorageType::q2},
                                   {StorageType::q4, StorageType::int8},
                                   {StorageType::bf16, StorageType::q3}};
  for (const auto& [keys, values] : kPairs) {
    for (const std::size_t d : {64, 80, 128}) {
      for (const std::size_t m : {1, 3, 20}) {
        Cache cache;
        for (const std::size_t n : {5, 300, 140, 60}) {
          cache.parts.push_back(make_part(random_, n, d, d, keys, values));
        }
        cache.parts[0].role = Role::numerator;
        cache.parts[3].role = Role::normaliser;
        cache.parts[1].first_position = 0;
        cache.parts[2].log_weights.assign(140, 0.5f);
        for (std::size_t p : {0, 1, 3}) {
          auto& part = cache.parts[p];
          const auto store_about = [&](Rows& rows, Numbers& numbers) {
            if (!is_rotated(rows.type())) return;
            const Numbers mean = random_rows(random_, 1, d, 2.0f);
            rows.set_mean(mean[0]);
            for (std::size_t i = 0; i < numbers.size(); ++i) {
              for (std::size_t c = 0; c < d; ++c) numbers[i][c] += mean[0][c];
              rows.set(i, numbers[i]);
            }
          };
          store_about(part.key_rows, part.keys);
          store_about(part.value_rows, part.values);
        }
        for (auto& part : cache.parts) {
          for (std::size_t i = 0; i < part.keys.size(); ++i) {
            part.key_rows.view(i, 1).decode(0, part.keys[i]);
            part.value_rows.view(i, 1).decode(0, part.values[i]);
          }
        }
        Asked asked = make_queries(random_, m, d);
        for (std::size_t q = 0; q < m; ++q)
          asked.positions.push_back(static_cast<Position>(40 * q));
        Logits logits = usual(d);
        logits.softcap = m == 3 ? 8.0f : 0.0f;
        const double error = error_of(cache, asked, logits, d);
        EXPECT_LE(error, 2e-2) << to_string(keys) << " " << to_string(values) << " " << d << " "
                               << m;
      }
    }
  }
}

TEST_P(AttentionOf, MismatchedShapesAreRefused) {
  Cache cache;
  cache.parts.push_back(part(9));
  const Asked asked = make_queries(random_, 2, 64);
  const auto segments = cache.segments();
  Matrix out(2, 48), narrow(2, 47), tall(3, 48);
  EXPECT_THROW(attend(asked.queries(), segments, usual(64), narrow.view()), Error);
  EXPECT_THROW(attend(asked.queries(), segments, usual(64), tall.view()), Error);
  EXPECT_THROW(attend(make_queries(random_, 2, 63).queries(), segments, usual(64), out.view()),
               Error);
  Asked placed = make_queries(random_, 2, 64);
  placed.positions = {1};
  EXPECT_THROW(attend(placed.queries(), segments, usual(64), out.view()), Error);
  std::vector<float> attention_sum(8);
  EXPECT_THROW(
      attend_with_attention_sum(asked.queries(), segments, usual(64), out.view(), attention_sum),
      Error);
  Logits wrong = usual(64);
  wrong.softcap = -1.0f;
  EXPECT_THROW(attend(asked.queries(), segments, wrong, out.view()), Error);
}

INSTANTIATE_TEST_SUITE_P(Targets, AttentionOf, testing::ValuesIn(test::kernel_targets()),
                         [](const auto& info) { return hwy::TargetName(info.param); });

}  // namespace
}  // namespace ballast
