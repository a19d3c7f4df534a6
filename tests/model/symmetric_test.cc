// Eigenvectors are checked by what they are: A v = λ v, of length 1, at right angles.
#include "model/symmetric.h"

#include <cmath>
#include <numbers>

#include "ballast/threads.h"
#include "base/thread_pool.h"
#include "support.h"

namespace ballast {
namespace {

/// A symmetric matrix with eigenvalues that fall by `ratio`, turned by chance.
std::vector<double> falling(std::size_t n, double ratio) {
  const Matrix random = test::random_matrix(n, n, 7);
  std::vector<std::vector<double>> q(n, std::vector<double>(n));
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t k = 0; k < n; ++k) q[i][k] = random[i][k];
    for (int twice = 0; twice < 2; ++twice) {
      for (std::size_t j = 0; j < i; ++j) {
        double with = 0;
        for (std::size_t k = 0; k < n; ++k) with += q[i][k] * q[j][k];
        for (std::size_t k = 0; k < n; ++k) q[i][k] -= with * q[j][k];
      }
    }
    double norm = 0;
    for (double x : q[i]) norm += x * x;
    for (double& x : q[i]) x /= std::sqrt(norm);
  }
  std::vector<double> a(n * n);
  for (std::size_t v = 0; v < n; ++v) {
    const double value = std::pow(ratio, static_cast<double>(v));
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < n; ++j) a[i * n + j] += value * q[v][i] * q[v][j];
    }
  }
  return a;
}

TEST(Symmetric, EigenvectorsAreThoseOfTheMatrix) {
  for (const std::size_t n : {1u, 2u, 3u, 40u, 129u}) {
    std::vector<double> a = falling(n, 0.9);
    const std::vector<double> matrix = a;
    const std::vector<double> values = eigenvectors(a, n);
    for (std::size_t v = 0; v < n; ++v) {
      EXPECT_NEAR(values[v], std::pow(0.9, static_cast<double>(v)), 1e-12);
      for (std::size_t i = 0; i < n; ++i) {
        double product = 0, with = 0;
        for (std::size_t k = 0; k < n; ++k) {
          product += matrix[i * n + k] * a[v * n + k];
          with += a[i * n + k] * a[v * n + k];
        }
        EXPECT_NEAR(product, values[v] * a[v * n + i], 1e-12);
        EXPECT_NEAR(with, i == v ? 1 : 0, 1e-12);
      }
    }
  }
}

TEST(Symmetric, EqualEigenvaluesAndZerosAreFound) {
  std::vector<double> a = {2, 0, 0, 0, 2, 0, 0, 0, 0};
  EXPECT_THAT(eigenvectors(a, 3), testing::ElementsAre(2, 2, 0));
  std::vector<double> none(16);
  EXPECT_THAT(eigenvectors(none, 4), testing::Each(0));
  std::vector<double> wrong = {1, std::nan(""), std::nan(""), 1};
  EXPECT_THROW(eigenvectors(wrong, 2), Error);
}

TEST(Symmetric, RootsSquareToTheMatrixAndSmallEigenvaluesToTheFloor) {
  constexpr std::size_t n = 24;
  const std::vector<double> matrix = falling(n, 0.8);
  const Roots made = roots(matrix, n, 1e-9);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < n; ++j) {
      double squared = 0, product = 0;
      for (std::size_t k = 0; k < n; ++k) {
        squared += made.root[i * n + k] * made.root[k * n + j];
        product += made.root[i * n + k] * made.inverse[k * n + j];
      }
      EXPECT_NEAR(squared, matrix[i * n + j], 1e-10);
      EXPECT_NEAR(product, i == j ? 1 : 0, 1e-9);
    }
  }
  const Roots floored = roots({3, 0, 0, 0}, 2, 0.01);
  EXPECT_NEAR(floored.root[3], std::sqrt(0.015), 1e-12);
  EXPECT_NEAR(floored.root[0], std::sqrt(3.0), 1e-12);
}

TEST(Symmetric, LeadingEigenvectorsSpanWhatTheMatrixHasMostOf) {
  constexpr std::size_t n = 300, count = 40;
  const std::vector<double> a = falling(n, 0.95);
  Matrix c(n, n);
  for (std::size_t i = 0; i < n * n; ++i) c.data()[i] = static_cast<float>(a[i]);
  const Leading found = leading_eigenvectors(c.view(), count);
  for (std::size_t v = 0; v < count; ++v) {
    const double value = std::pow(0.95, static_cast<double>(v));
    EXPECT_NEAR(found.values[v], value, 1e-3 * value);
    double wrong = 0;
    for (std::size_t i = 0; i < n; ++i) {
      double product = 0;
      for (std::size_t k = 0; k < n; ++k) product += a[i * n + k] * found.vectors[v][k];
      wrong += std::pow(product - value * found.vectors[v][i], 2);
    }
    EXPECT_LT(std::sqrt(wrong), 0.02 * value);
    for (std::size_t j = 0; j < v; ++j) {
      double with = 0;
      for (std::size_t k = 0; k < n; ++k) {
        with += double{found.vectors[v][k]} * found.vectors[j][k];
      }
      EXPECT_NEAR(with, 0, 1e-5);
    }
  }
  // From what was found one round stays there, and one thread finds the same bits.
  const Leading again = leading_eigenvectors(c.view(), count, &found.vectors);
  EXPECT_NEAR(again.values[count - 1], found.values[count - 1], 1e-3 * found.values[count - 1]);
  ThreadPool one(1);
  const PoolScope scope(&one);
  const Leading alone = leading_eigenvectors(c.view(), count);
  EXPECT_EQ(alone.values, found.values);
  for (std::size_t i = 0; i < count; ++i) {
    EXPECT_THAT(alone.vectors[i], testing::ElementsAreArray(found.vectors[i]));
  }
}

TEST(Symmetric, AMatrixOfLowRankHasDirectionsToSpare) {
  constexpr std::size_t n = 100;
  Matrix c(n, n);
  for (std::size_t i = 0; i < n; ++i) c[i][i] = i < 3 ? 4.0f : 0.0f;
  const Leading found = leading_eigenvectors(c.view(), 10);
  for (std::size_t v = 0; v < 10; ++v) {
    EXPECT_NEAR(found.values[v], v < 3 ? 4 : 0, 1e-5);
    double length = 0;
    for (float x : found.vectors[v]) length += double{x} * x;
    EXPECT_NEAR(length, 1, 1e-5);
  }
}

}  // namespace
}  // namespace ballast
