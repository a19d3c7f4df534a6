#include "experiments/attention/norms.h"

#include <gtest/gtest.h>

#include <random>

namespace ballast {
namespace {

Matrix random_rows(std::size_t rows, std::size_t dim, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.5f, 2.0f);
  Matrix out(rows, dim);
  for (std::size_t i = 0; i < rows * dim; ++i) out.data()[i] = normal(random);
  return out;
}

void expect_equal(const MomentSums& a, const MomentSums& b) {
  EXPECT_EQ(a.count, b.count);
  EXPECT_EQ(a.sum, b.sum);
  EXPECT_EQ(a.squares, b.squares);
  EXPECT_EQ(a.largest, b.largest);
}

// Row by row, over the borders of segments, as of all rows at once.
TEST(Norms, OfSegmentsAreThoseOfTheirRows) {
  for (const std::size_t rows : {1, 2, 100}) {
    const Matrix keys = random_rows(rows, 7, 1), values = random_rows(rows, 5, 2);
    for (const std::size_t first : {std::size_t{0}, rows / 2, rows}) {
      std::vector<Segment> segments(2);
      segments[0].keys = view_f32(keys.view()).slice(0, first);
      segments[0].values = view_f32(values.view()).slice(0, first);
      segments[1].keys = view_f32(keys.view()).slice(first, rows - first);
      segments[1].values = view_f32(values.view()).slice(first, rows - first);
      const KvNorms got = measure_norms(segments), all = measure_norms({}, keys, values);
      expect_equal(got.key, all.key);
      expect_equal(got.shifted, all.shifted);
      expect_equal(got.value, all.value);
      EXPECT_EQ(got.query.count, 0.0);
    }
  }
  EXPECT_EQ(measure_norms(std::span<const Segment>()).key.count, 0.0);
}

}  // namespace
}  // namespace ballast
