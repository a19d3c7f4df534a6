#include <cmath>
#include <random>

#include "attention/kernels/attention_kernels.h"
#include "simd/forced_target.h"
#include "storage/turns.h"
#include "support.h"

namespace ballast::test {
namespace {

// Of models whose pairs turn fast and slowly, at positions near and far, against float64.
TEST(TurnedProducts, AreThoseOfTheDefinition) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (const auto& [count, base] : std::vector<std::pair<std::size_t, double>>{
           {32, 1e6}, {32, 1e5}, {64, 1e6}, {64, 1e4}, {10, 1e4}, {128, 5e5}, {3, 1e4}}) {
    Rotary rotary;
    for (std::size_t f = 0; f < count; ++f) {
      rotary.frequencies.push_back(
          static_cast<float>(std::pow(base, -static_cast<double>(f) / static_cast<double>(count))));
    }
    const Turns turns(rotary);
    EXPECT_EQ(turns.fast() < count, count > 10) << count;
    constexpr std::size_t kQueries = 3;
    std::vector<float> coefficients(kQueries * 2 * count), constants(kQueries);
    for (float& x : coefficients) x = normal(random);
    for (float& x : constants) x = normal(random);
    const kernels::TurnedMean mean{
        count,        coefficients.data(), 2 * count,      constants.data(),
        turns.fast(), turns.columns(),     turns.factors()};
    for (const Position first : {0, 64, 4096, 500032}) {
      std::vector<float> cosines(count), sines(count);
      turns.at(first, cosines.data(), sines.data());
      for (const std::int64_t target : kernel_targets()) {
        const ForcedTarget forced(target);
        std::vector<float> products(kQueries * kernels::kTurnedTogether);
        kernels::turned_products(mean, cosines.data(), sines.data(), kQueries, products.data());
        for (std::size_t q = 0; q < kQueries; ++q) {
          for (std::size_t j = 0; j < kernels::kTurnedTogether; ++j) {
            double expected{constants[q]}, size = 1;
            for (std::size_t f = 0; f < count; ++f) {
              const double angle = static_cast<double>(first + static_cast<Position>(j)) *
                                   double{rotary.frequencies[f]};
              const double a{coefficients[q * 2 * count + f]};
              const double b{coefficients[q * 2 * count + count + f]};
              expected += a * std::cos(angle) + b * std::sin(angle);
              size += std::abs(a) + std::abs(b);
            }
            ASSERT_NEAR(products[q * kernels::kTurnedTogether + j], expected, 1e-6 * size)
                << count << " pairs, position " << first << " + " << j;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace ballast::test
