#include "ballast/attention.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "attention/attention_scratch.h"
#include "attention/cases.h"
#include "ballast/error.h"
#include "ballast/row_mean.h"
#include "simd/forced_target.h"

namespace ballast {
namespace {

using namespace test;

// What is kept until the normalisers are known: a weight for each entry of whole blocks, one block
// more, and a maximum for each block.
TEST(AttentionScratch, SumsNeedTheWeightsOfEveryBlockAndOneMore) {
  constexpr std::size_t kBlock = 128;
  for (std::size_t queries : {1, 4}) {
    for (std::size_t entries : {0, 1, 128, 129, 1000}) {
      const std::size_t blocks = (entries + kBlock - 1) / kBlock;
      EXPECT_EQ(attention_scratch(queries, entries, 64, 64, true) -
                    attention_scratch(queries, entries, 64, 64, false),
                (blocks + 1) * queries * (kBlock + 1) * sizeof(float))
          << queries << " queries, " << entries << " entries";
    }
  }
}

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
            rows.set_mean(std::make_shared<const RowMean>(
                std::vector<float>(mean[0].begin(), mean[0].end())));
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
