#include "experiments/attention/softmax_regression.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "ballast/error.h"

namespace ballast {
namespace {

/// As the theorem wants it: ‖A‖ small, b a distribution, w² above what e^{R²} asks for.
SoftmaxRegression problem_of(std::size_t n, std::size_t d, std::uint32_t seed, double weight) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  SoftmaxRegression out{Matrix(n, d), {}, std::vector<double>(n, weight)};
  for (std::size_t i = 0; i < n; ++i) {
    for (float& x : out.a[i]) x = normal(random) / std::sqrt(static_cast<float>(d));
  }
  double sum = 0;
  for (std::size_t i = 0; i < n; ++i) sum += out.b.emplace_back(std::exp(normal(random)));
  for (double& x : out.b) x /= sum;
  return out;
}

/// Minus the logarithms of nothing: the definition, term by term.
double naive_loss(const SoftmaxRegression& p, const std::vector<double>& x) {
  std::vector<double> z(p.a.rows(), 0.0);
  for (std::size_t i = 0; i < z.size(); ++i) {
    for (std::size_t c = 0; c < x.size(); ++c) z[i] += double{p.a[i][c]} * x[c];
  }
  double sum = 0, exp = 0, reg = 0;
  for (double v : z) sum += std::exp(v);
  for (std::size_t i = 0; i < z.size(); ++i) {
    exp += std::pow(std::exp(z[i]) / sum - p.b[i], 2) / 2;
    reg += std::pow(p.w[i] * z[i], 2) / 2;
  }
  return exp + sum + reg;
}

TEST(SoftmaxRegression, GradientAndDiagonalAreThoseOfFiniteDifferences) {
  for (auto [n, d] : {std::pair<std::size_t, std::size_t>{1, 1}, {5, 3}, {12, 4}}) {
    const SoftmaxRegression p = problem_of(n, d, 3, 0.7);
    std::vector<double> x(d);
    for (std::size_t c = 0; c < d; ++c) x[c] = 0.3 * static_cast<double>(c) - 0.4;
    EXPECT_NEAR(p.loss(x), naive_loss(p, x), 1e-12);
    const std::vector<double> g = p.gradient(x);
    for (std::size_t c = 0; c < d; ++c) {
      std::vector<double> up = x, down = x;
      up[c] += 1e-5;
      down[c] -= 1e-5;
      EXPECT_NEAR(g[c], (naive_loss(p, up) - naive_loss(p, down)) / 2e-5, 1e-7);
    }
  }
  // With A = 1 the Hessian is the matrix between: its diagonal is the loss's second derivatives.
  SoftmaxRegression p = problem_of(5, 5, 4, 1.1);
  for (std::size_t i = 0; i < 5; ++i) {
    for (std::size_t c = 0; c < 5; ++c) p.a[i][c] = i == c ? 1.0f : 0.0f;
  }
  const std::vector<double> x = {0.1, -0.2, 0.4, 0, 0.3}, diagonal = p.diagonal(x);
  for (std::size_t c = 0; c < 5; ++c) {
    std::vector<double> up = x, down = x;
    up[c] += 1e-4;
    down[c] -= 1e-4;
    const double second = (naive_loss(p, up) - 2 * naive_loss(p, x) + naive_loss(p, down)) / 1e-8;
    EXPECT_NEAR(diagonal[c], second, 1e-5);
  }
}

TEST(SoftmaxRegression, StepsReachTheMinimumThatGradientDescentFinds) {
  const SoftmaxRegression p = problem_of(60, 4, 5, 3);
  std::vector<double> least(4, 0.0);
  for (int step = 0; step < 20000; ++step) {
    for (std::size_t c = 0; c < 4; ++c) {
      std::vector<double> up = least, down = least;
      up[c] += 1e-6;
      down[c] -= 1e-6;
      least[c] -= 1e-3 * (naive_loss(p, up) - naive_loss(p, down)) / 2e-6;
    }
  }
  for (std::size_t rows : {0, 40}) {
    const NewtonPath path = newton(p, rows, 1e-9, 200, 7);
    EXPECT_LE(path.gradient.back(), 1e-9) << rows;
    for (std::size_t c = 0; c < 4; ++c) EXPECT_NEAR(path.x.back()[c], least[c], 1e-5);
    // Theorem D.49: log(‖x_0 - x*‖ / ε) steps, so each leaves a fixed share of the error.
    EXPECT_LT(path.gradient.size(), rows == 0 ? 20u : 120u);
  }
  EXPECT_EQ(newton(p, 0, 1e9, 5, 0).x.size(), 1u);
  EXPECT_EQ(newton(p, 0, 0, 3, 0).x.size(), 4u);
  EXPECT_FALSE(newton(p, 0, 0, 3, 0).diverged);
  SoftmaxRegression wrong = problem_of(60, 4, 5, 3);
  wrong.b.pop_back();
  EXPECT_THROW(newton(wrong, 0, 1, 1, 0), Error);
}

TEST(SoftmaxRegression, APathThatDivergesSaysSo) {
  SoftmaxRegression p = problem_of(60, 4, 5, 0);
  p.a[0][0] = 1e4f;  // one step takes exp(Ax) out of float64
  const NewtonPath path = newton(p, 1, 1e-9, 200, 7);
  EXPECT_TRUE(path.diverged);
  EXPECT_EQ(path.x.size(), path.gradient.size());
}

}  // namespace
}  // namespace ballast
