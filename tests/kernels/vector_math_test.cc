#include "kernels/vector_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/forced_target.h"

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
