#include "experiments/attention/tsne.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "support.h"

namespace ballast {
namespace {

using test::random_matrix;

/// Section 2 and 3 once more: conditional probabilities of the given precisions, in the order in
/// which the paper writes them.
double entropy_of(const Matrix& rows, std::size_t i, double precision, std::vector<double>& p) {
  double sum = 0, entropy = 0;
  p.assign(rows.rows(), 0.0);
  for (std::size_t j = 0; j < rows.rows(); ++j) {
    double square = 0;
    for (std::size_t c = 0; c < rows.cols(); ++c)
      square += std::pow(double{rows[i][c]} - rows[j][c], 2);
    if (j != i) sum += p[j] = std::exp(-precision * square);
  }
  for (double& x : p) {
    x /= sum;
    if (x > 0) entropy -= x * std::log(x);
  }
  return entropy;
}

TEST(Tsne, AffinitiesHaveThePerplexityOfEachRow) {
  for (std::size_t n : {5, 17, 40}) {
    const Matrix rows = random_matrix(n, 7, 3);
    const double perplexity = std::min(6.0, static_cast<double>(n - 1) / 3);
    std::vector<std::vector<double>> conditional(n);
    for (std::size_t i = 0; i < n; ++i) {
      double low = 1e-6, high = 1e6;
      for (int step = 0; step < 300; ++step) {
        const double middle = std::sqrt(low * high);
        (entropy_of(rows, i, middle, conditional[i]) > std::log(perplexity) ? low : high) = middle;
      }
    }
    const std::vector<double> p = tsne_affinities(rows, 6.0);
    double sum = 0;
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < n; ++j) {
        const double expected =
            (conditional[i][j] + conditional[j][i]) / (2.0 * static_cast<double>(n));
        EXPECT_NEAR(p[i * n + j], expected, 1e-6);
        sum += p[i * n + j];
      }
    }
    EXPECT_NEAR(sum, 1.0, 1e-12);
  }
}

TEST(Tsne, TheGradientIsThatOfTheCost) {
  const std::size_t n = 9;
  const std::vector<double> p = tsne_affinities(random_matrix(n, 4, 5), 2.0);
  std::mt19937 rng(1);
  std::normal_distribution<double> normal;
  std::vector<MapPoint> points(n), gradient(n), unused(n);
  for (MapPoint& point : points) point = {normal(rng), normal(rng)};
  tsne_cost(p, points, gradient);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t a = 0; a < 2; ++a) {
      const double h = 1e-5, at = points[i][a];
      points[i][a] = at + h;
      const double above = tsne_cost(p, points, unused);
      points[i][a] = at - h;
      const double below = tsne_cost(p, points, unused);
      points[i][a] = at;
      EXPECT_NEAR(gradient[i][a], (above - below) / (2 * h), 1e-7);
    }
  }
}

/// Three clusters in 10 dimensions: on the map each row's nearest neighbour is of its own.
TEST(Tsne, ClustersStayApart) {
  Matrix rows = random_matrix(60, 10, 9);
  for (std::size_t i = 0; i < rows.rows(); ++i) rows[i][i % 3] += 12.0f;
  const std::vector<MapPoint> map = tsne_map(rows, {.perplexity = 8, .iterations = 300});
  ASSERT_EQ(map.size(), 60u);
  for (std::size_t i = 0; i < map.size(); ++i) {
    std::size_t nearest = i == 0 ? 1 : 0;
    const auto square = [&](std::size_t j) {
      return std::pow(map[i][0] - map[j][0], 2) + std::pow(map[i][1] - map[j][1], 2);
    };
    for (std::size_t j = 0; j < map.size(); ++j) {
      if (j != i && square(j) < square(nearest)) nearest = j;
    }
    EXPECT_EQ(nearest % 3, i % 3) << i;
  }
  EXPECT_EQ(map, tsne_map(rows, {.perplexity = 8, .iterations = 300}));
}

TEST(Tsne, FewOrEqualRows) {
  for (std::size_t n : {0, 1, 2, 3}) {
    EXPECT_EQ(tsne_map(random_matrix(n, 3, 1)).size(), n);
    EXPECT_EQ(tsne_affinities(random_matrix(n, 3, 1), 30).size(), n * n);
  }
  const Matrix equal(6, 3);
  for (const MapPoint& p : tsne_map(equal)) EXPECT_EQ(p, (MapPoint{0, 0}));
  for (double p : tsne_affinities(equal, 30)) EXPECT_TRUE(std::isfinite(p));
}

}  // namespace
}  // namespace ballast
