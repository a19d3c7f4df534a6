// Attention over keys that are stored relative to a turned mean, against float64.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "attention/cases.h"
#include "ballast/error.h"
#include "ballast/row_mean.h"
#include "simd/forced_target.h"
#include "storage/gap_code.h"

namespace ballast::test {
namespace {

enum class Place { run, listed, shuffled, coded, close };  // close: coded, with few gaps

Rotary rotary_of(std::size_t count, double base, bool pairs, float magnitude) {
  Rotary rotary{{}, magnitude, pairs};
  for (std::size_t f = 0; f < count; ++f) {
    rotary.frequencies.push_back(
        static_cast<float>(std::pow(base, -static_cast<double>(f) / static_cast<double>(count))));
  }
  return rotary;
}

/// R_n μ in float64.
std::vector<double> place_of(const Rotary& rotary, Position n, const std::vector<float>& mean) {
  std::vector<double> out(mean.begin(), mean.end());
  const std::size_t count = rotary.frequencies.size();
  for (std::size_t f = 0; f < count; ++f) {
    const std::size_t a = rotary.pairs ? 2 * f : f, b = rotary.pairs ? 2 * f + 1 : f + count;
    const double angle = static_cast<double>(n) * double{rotary.frequencies[f]};
    const double cosine = double{rotary.magnitude} * std::cos(angle);
    const double sine = double{rotary.magnitude} * std::sin(angle);
    out[a] = double{mean[a]} * cosine - double{mean[b]} * sine;
    out[b] = double{mean[b]} * cosine + double{mean[a]} * sine;
  }
  return out;
}

class TurnedMean : public testing::TestWithParam<std::int64_t> {
 protected:
  ForcedTarget forced_{GetParam()};
};

// A mean of norm 300 on slow rotations beside rows of norm about 8: the attention of float64, to a
// few hundredths, for one query and for many, bit for bit the same.
TEST_P(TurnedMean, EntersLogitsAtEveryPosition) {
  std::mt19937 random(9);
  struct Shape {
    std::size_t dim, pairs;
    double base;
    bool adjacent;
    float magnitude;
  };
  for (const Shape& s : {Shape{64, 32, 1e6, false, 1.0f}, Shape{128, 64, 5e5, false, 1.0f},
                         Shape{64, 32, 1e4, true, 1.0f}, Shape{80, 10, 1e4, false, 1.0f},
                         Shape{64, 32, 1e6, false, 1.2f}, Shape{64, 0, 1, false, 1.0f}}) {
    const Rotary rotary = rotary_of(s.pairs, s.base, s.adjacent, s.magnitude);
    for (Place place : {Place::run, Place::listed, Place::shuffled, Place::coded, Place::close}) {
      for (StorageType type : {StorageType::q4, StorageType::q2, StorageType::int4}) {
        constexpr std::size_t kEntries = 333;
        std::vector<float> mean(s.dim);
        std::normal_distribution<float> normal;
        double norm = 0;
        for (float& x : mean) {
          x = normal(random);
          norm += double{x} * double{x};
        }
        for (float& x : mean) x *= static_cast<float>(300 / std::sqrt(norm));
        std::vector<Position> positions(kEntries);
        Position next = 3000;
        for (Position& p : positions) {
          p = next;
          next += place == Place::run ? 1
                  : place == Place::close
                      ? 1 + static_cast<Position>(random() % 8 == 0)
                      : 1 + static_cast<Position>(random() % 5 * (random() % 9));
        }
        if (place == Place::shuffled) std::ranges::shuffle(positions, random);
        Rows rows(type, s.dim, kEntries);
        rows.set_mean(std::make_shared<const RowMean>(mean, rotary));
        const Rows values = store(StorageType::f32, random_rows(random, kEntries, 16), 16);
        std::vector<std::vector<double>> keys;
        for (std::size_t i = 0; i < kEntries; ++i) {
          std::vector<double> key = place_of(rotary, positions[i], mean);
          std::vector<float> row(s.dim), difference(s.dim);
          for (std::size_t c = 0; c < s.dim; ++c)
            row[c] = static_cast<float>(key[c]) + normal(random);
          rows.set(i, row, positions[i]);
          rows.view(i, 1).decode_difference(0, difference);
          for (std::size_t c = 0; c < s.dim; ++c) key[c] += double{difference[c]};
          keys.push_back(key);
        }
        const bool coded = place == Place::coded || place == Place::close;
        std::vector<std::uint8_t> code;
        Segment segment;
        segment.keys = place == Place::run ? rows.view(0, kEntries, positions[0])
                       : coded             ? rows.view(0, kEntries)
                                           : rows.view(0, kEntries, positions.data());
        if (coded) {
          code.resize(gap_bytes(positions));
          encode_gaps(positions, code.data());
          segment.keys.gaps = code.data();
        }
        segment.values = values.view(0, kEntries);
        Matrix queries(30, s.dim), out(30, 16);
        for (std::size_t i = 0; i < 30 * s.dim; ++i) queries.data()[i] = normal(random);
        Logits logits;
        logits.scale = 1.0f / std::sqrt(static_cast<float>(s.dim));
        std::vector<float> sums(kEntries);
        attend_with_attention_sum({queries.view(), {}, {}}, {&segment, 1}, logits, out.view(),
                                  sums);
        std::vector<double> expected(kEntries, 0.0);
        for (std::size_t q = 0; q < 30; ++q) {
          std::vector<double> weights(kEntries);
          double most = -1e300, sum = 0;
          for (std::size_t i = 0; i < kEntries; ++i) {
            for (std::size_t c = 0; c < s.dim; ++c)
              weights[i] += double{queries[q][c]} * keys[i][c];
            most = std::max(most, weights[i] *= double{logits.scale});
          }
          for (double& w : weights) sum += w = std::exp(w - most);
          for (std::size_t i = 0; i < kEntries; ++i) expected[i] += weights[i] / sum;
        }

        constexpr double kAllowed = 0.05;  // queries are rounded to integers, too
        for (std::size_t i = 0; i < kEntries; ++i) {
          ASSERT_NEAR(sums[i], expected[i], kAllowed * (expected[i] + 1e-3))
              << to_string(type) << " " << s.dim << " " << s.pairs << " entry " << i << " place "
              << static_cast<int>(place);
        }
        for (std::size_t q : {0, 11, 29}) {
          Matrix alone(1, 16);
          attend({queries.view().slice(q, 1), {}, {}}, {&segment, 1}, logits, alone.view());
          for (std::size_t c = 0; c < 16; ++c) ASSERT_EQ(alone[0][c], out[q][c]);
        }
      }
    }
  }
}

TEST_P(TurnedMean, WithoutPositionsIsRefused) {
  Rows rows(StorageType::q4, 64, 1);
  rows.set_mean(std::make_shared<const RowMean>(std::vector<float>(64, 1.0f),
                                                rotary_of(32, 1e4, false, 1.0f)));
  EXPECT_THROW(rows.set(0, std::vector<float>(64, 0.0f)), Error);
  Segment segment;
  segment.keys = rows.view(0, 1);
  segment.values = rows.view(0, 1);
  Matrix query(1, 64), out(1, 64);
  Logits logits;
  logits.scale = 1;
  EXPECT_THROW(attend({query.view(), {}, {}}, {&segment, 1}, logits, out.view()), Error);
}

INSTANTIATE_TEST_SUITE_P(Targets, TurnedMean, testing::ValuesIn(kernel_targets()),
                         [](const auto& info) { return hwy::TargetName(info.param); });

}  // namespace
}  // namespace ballast::test
