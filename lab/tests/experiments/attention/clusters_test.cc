#include "experiments/attention/clusters.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "support.h"

namespace ballast {
namespace {

using test::random_matrix;

double distance(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (std::size_t c = 0; c < a.size(); ++c) sum += std::pow(double{a[c]} - double{b[c]}, 2);
  return std::sqrt(sum);
}

/// The largest distance of a row to the nearest of the first k centres.
double radius(const Matrix& rows, const std::vector<std::size_t>& centres, std::size_t k) {
  double out = 0;
  for (std::size_t i = 0; i < rows.rows(); ++i) {
    double nearest = HUGE_VAL;
    for (std::size_t c = 0; c < k; ++c) {
      nearest = std::min(nearest, distance(rows[i], rows[centres[c]]));
    }
    out = std::max(out, nearest);
  }
  return out;
}

TEST(GreedyCentres, EachIsTheFarthestFromThoseBefore) {
  for (std::size_t n : {1u, 2u, 7u, 60u}) {
    const Matrix rows = random_matrix(n, 5, n);
    const GreedyCentres found = greedy_centres(rows, 100);
    ASSERT_EQ(found.centres.size(), n);
    EXPECT_EQ(found.centres[0], n - 1);
    for (std::size_t k = 1; k <= n; ++k) {
      EXPECT_NEAR(found.radii[k - 1], radius(rows, found.centres, k), 1e-9);
      if (k == n) break;
      double nearest = HUGE_VAL;
      for (std::size_t c = 0; c < k; ++c) {
        nearest = std::min(nearest, distance(rows[found.centres[k]], rows[found.centres[c]]));
      }
      EXPECT_NEAR(nearest, found.radii[k - 1], 1e-9);
    }
    EXPECT_EQ(found.radii.back(), 0);
  }
}

TEST(GreedyCentres, FindsClustersAndStopsAtTheNumberAsked) {
  Matrix rows = random_matrix(90, 3, 1, 0.01f);
  for (std::size_t i = 0; i < rows.rows(); ++i) rows[i][i % 3] += 10;
  const GreedyCentres found = greedy_centres(rows, 4);
  ASSERT_EQ(found.radii.size(), 4u);
  EXPECT_GT(found.radii[1], 10);
  EXPECT_LT(found.radii[2], 0.2);  // one in each cluster
}

TEST(GreedyCentres, EqualRowsAndNone) {
  const Matrix same(5, 2);
  EXPECT_EQ(greedy_centres(same, 2).radii, (std::vector<double>{0, 0}));
  EXPECT_EQ(test::error_of([] { greedy_centres(Matrix(0, 2), 2); }),
            "there are no rows to find centres of");
}

TEST(PrincipalPlane, FindsThePlaneThatRowsLieIn) {
  // Rows a·u + b·w + shift with orthonormal u, w: distances on the plane are those in space.
  const std::vector<double> u = {0.6, 0, 0.8, 0}, w = {0, 1, 0, 0};
  const Matrix numbers = random_matrix(200, 2, 3);
  Matrix rows(200, 4);
  double along_u = 0, along_w = 0, mean_u = 0, mean_w = 0;
  for (std::size_t i = 0; i < 200; ++i) {
    const double a = 3 * numbers[i][0], b = numbers[i][1];
    for (std::size_t c = 0; c < 4; ++c) rows[i][c] = static_cast<float>(a * u[c] + b * w[c] + 100);
    along_u += a * a / 200;
    along_w += b * b / 200;
    mean_u += a / 200;
    mean_w += b / 200;
  }
  along_u -= mean_u * mean_u;
  along_w -= mean_w * mean_w;
  const PlaneMap map = principal_plane(rows);
  EXPECT_NEAR(map.variance[0] + map.variance[1], 1, 1e-6);
  EXPECT_NEAR(map.variance[0], along_u / (along_u + along_w), 0.01);
  for (std::size_t i = 1; i < 200; ++i) {
    const double on_map =
        std::hypot(map.points[i][0] - map.points[0][0], map.points[i][1] - map.points[0][1]);
    EXPECT_NEAR(on_map, distance(rows[i], rows[0]), 1e-3);
  }
}

TEST(PrincipalPlane, WithoutVariance) {
  for (std::size_t n : {0u, 1u, 4u}) {
    const PlaneMap map = principal_plane(Matrix(n, 3));
    EXPECT_EQ(map.points.size(), n);
    EXPECT_EQ(map.variance[0], 0);
  }
  Matrix line(3, 2);
  for (std::size_t i = 0; i < 3; ++i) line[i][0] = static_cast<float>(i);
  const PlaneMap map = principal_plane(line);
  EXPECT_NEAR(map.variance[0], 1, 1e-12);
  EXPECT_EQ(map.variance[1], 0);
  EXPECT_NEAR(map.points[2][0], 1, 1e-9);
}

TEST(EvenlySpaced, TakesRowsOfTheWhole) {
  Matrix rows(10, 1);
  for (std::size_t i = 0; i < 10; ++i) rows[i][0] = static_cast<float>(i);
  const Matrix some = evenly_spaced(rows, 4);
  ASSERT_EQ(some.rows(), 4u);
  EXPECT_EQ(some[0][0], 0);
  EXPECT_EQ(some[1][0], 2);
  EXPECT_EQ(some[3][0], 7);
  EXPECT_EQ(evenly_spaced(rows, 99).rows(), 10u);
}

}  // namespace
}  // namespace ballast
