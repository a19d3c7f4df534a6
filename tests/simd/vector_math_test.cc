#include "simd/vector_math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "simd/forced_target.h"

namespace ballast {
namespace {

using test::ForcedTarget;

class VectorMath : public testing::TestWithParam<std::int64_t> {
 protected:
  ForcedTarget forced_{GetParam()};
  std::mt19937 random_{7};
};

TEST_P(VectorMath, ExpIsWithinTwoUnitsInTheLastPlace) {
  std::vector<float> x;
  for (float v = -87.3f; v < 88.7f; v += 0.00371f) x.push_back(v);
  for (float v : {0.0f, -0.0f, 1e-8f, -1e-8f, 1e-30f, -87.33f, 88.72f}) x.push_back(v);
  std::vector<float> y = x;
  kernels::exp_in_place(y);
  double worst = 0.0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double exact = std::exp(static_cast<double>(x[i]));
    const float rounded = static_cast<float>(exact);
    const double unit = std::nextafter(rounded, INFINITY) - rounded;
    worst = std::max(worst, std::abs(y[i] - exact) / unit);
  }
  RecordProperty("worst_ulp", std::to_string(worst));
  EXPECT_LE(worst, 2.0);
}

TEST_P(VectorMath, ExpAtTheEnds) {
  const float inf = std::numeric_limits<float>::infinity();
  std::vector<float> x = {0.0f, -88.0f, -1e30f, -inf, 89.0f, inf, NAN};
  kernels::exp_in_place(x);
  EXPECT_EQ(x[0], 1.0f);
  EXPECT_EQ(x[1], 0.0f);
  EXPECT_EQ(x[2], 0.0f);
  EXPECT_EQ(x[3], 0.0f);
  EXPECT_EQ(x[4], inf);
  EXPECT_EQ(x[5], inf);
  EXPECT_TRUE(std::isnan(x[6]));
}

TEST_P(VectorMath, ActivationsOfAnyLengthMatchFloat64) {
  std::normal_distribution<float> normal(0.0f, 6.0f);
  for (std::size_t n = 0; n < 70; ++n) {
    std::vector<float> x(n);
    for (float& v : x) v = normal(random_);
    for (std::size_t i = 0; i < n && i < 4; ++i) x[i] = (i % 2 ? -1.0f : 1.0f) * (i < 2 ? 1e4f : 0);
    std::vector<float> silu = x, gelu = x;
    kernels::silu_in_place(silu);
    kernels::gelu_tanh_in_place(gelu);
    for (std::size_t i = 0; i < n; ++i) {
      const double v = x[i];
      const double tolerance = 1e-6 * std::abs(v) + 1e-30;
      EXPECT_NEAR(silu[i], v / (1.0 + std::exp(-v)), tolerance) << v;
      const double tanh = std::tanh(std::sqrt(2.0 / M_PI) * (v + 0.044715 * v * v * v));
      EXPECT_NEAR(gelu[i], 0.5 * v * (1.0 + tanh), tolerance) << v;
    }
  }
}

TEST_P(VectorMath, ProductsOfAnyLength) {
  std::normal_distribution<float> normal;
  for (std::size_t n = 0; n < 70; ++n) {
    std::vector<float> x(n), y(n), out(n);
    for (float& v : x) v = normal(random_);
    for (float& v : y) v = normal(random_);
    std::vector<float> product = y;
    kernels::multiply(x, product);
    kernels::scale_and_weigh(x, 0.3f, y, out);
    std::vector<float> same = x;
    kernels::scale_and_weigh(same, 0.3f, y, same);
    EXPECT_EQ(same, out);
    for (std::size_t i = 0; i < n; ++i) {
      EXPECT_EQ(product[i], x[i] * y[i]);
      EXPECT_FLOAT_EQ(out[i], x[i] * 0.3f * y[i]);
    }
  }
}

TEST_P(VectorMath, LargestOfAnyLength) {
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(kernels::largest({}), -inf);
  std::normal_distribution<float> normal(-3.0f, 1.0f);
  for (std::size_t n = 1; n < 100; ++n) {
    std::vector<float> x(n);
    for (float& v : x) v = normal(random_);
    EXPECT_EQ(kernels::largest(x), *std::max_element(x.begin(), x.end()));
    for (std::size_t i : {std::size_t{0}, n / 2, n - 1}) {
      std::vector<float> y = x;
      y[i] = 7.0f;
      EXPECT_EQ(kernels::largest(y), 7.0f);
      y[i] = inf;
      EXPECT_EQ(kernels::largest(y), inf);
      y[i] = NAN;
      EXPECT_TRUE(std::isnan(kernels::largest(y)));
    }
    EXPECT_EQ(kernels::largest(std::vector<float>(n, -inf)), -inf);
  }
}

TEST_P(VectorMath, SumsOfExponentialsMatchFloat64) {
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(kernels::sum_exp({}, 1.0f), 0.0);
  std::normal_distribution<float> normal(0.0f, 5.0f);
  for (std::size_t n : {1u, 2u, 15u, 16u, 17u, 1023u, 1024u, 1025u, 50001u}) {
    std::vector<float> x(n);
    for (float& v : x) v = normal(random_);
    x[n / 2] = -inf;
    x[n - 1] = 3e38f;
    double exact = 0.0;
    for (float v : x) exact += std::exp(static_cast<double>(v) - static_cast<double>(3e38f));
    EXPECT_NEAR(kernels::sum_exp(x, 3e38f), exact, 1e-6 * exact);
    x[n - 1] = 20.0f;
    exact = 0.0;
    for (float v : x) exact += std::exp(static_cast<double>(v) - 20.0);
    EXPECT_NEAR(kernels::sum_exp(x, 20.0f), exact, 1e-6 * exact) << n;
  }
}

TEST_P(VectorMath, SumsOfAnyLengthMatchFloat64) {
  std::normal_distribution<float> normal;
  for (std::size_t n = 0; n < 150; ++n) {
    std::vector<float> a(n), b(n);
    for (auto& x : a) x = normal(random_);
    for (auto& x : b) x = normal(random_);
    double product = 0.0, norm = 0.0;
    for (std::size_t i = 0; i < n; ++i) {
      product += double{a[i]} * b[i];
      norm += double{a[i]} * a[i];
    }
    EXPECT_NEAR(kernels::dot(a, b), product, 1e-5 * std::sqrt(n + 1.0));
    float squared = 0.0f;
    kernels::squared_norms({a.data(), 1, n}, {&squared, 1});
    EXPECT_NEAR(squared, norm, 1e-5 * norm);
    std::vector<float> y = b;
    kernels::axpy(0.75f, a, y);
    for (std::size_t i = 0; i < n; ++i) EXPECT_NEAR(y[i], 0.75 * a[i] + b[i], 1e-6);
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, VectorMath, testing::ValuesIn(test::kernel_targets()),
                         [](const auto& info) { return hwy::TargetName(info.param); });

}  // namespace
}  // namespace ballast
