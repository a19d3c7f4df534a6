#include "model/families/rope_scaling.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace ballast {
namespace {

/// The divisor: 1 at keep = 1, factor at keep = 0, linear in the frequency between.
float blended_divisor(double keep, double factor) {
  return static_cast<float>(1.0 / (keep + (1.0 - keep) / factor));
}

}  // namespace

std::vector<float> llama3_divisors(std::size_t dimension, double base, const Llama3Scaling& s) {
  std::vector<float> divisors(dimension / 2);
  for (std::size_t i = 0; i < divisors.size(); ++i) {
    double exponent = 2.0 * static_cast<double>(i) / static_cast<double>(dimension);
    double turns = s.original_positions / (2.0 * std::numbers::pi * std::pow(base, exponent));
    double keep =
        (turns - s.low_frequency_factor) / (s.high_frequency_factor - s.low_frequency_factor);
    divisors[i] = blended_divisor(std::clamp(keep, 0.0, 1.0), s.factor);
  }
  return divisors;
}

std::vector<float> yarn_divisors(std::size_t dimension, double base, const YarnScaling& s) {
  // The index of the rotation that turns `turns` times within the original context.
  auto index_of = [&](double turns) {
    return static_cast<double>(dimension) *
           std::log(s.original_positions / (turns * 2.0 * std::numbers::pi)) /
           (2.0 * std::log(base));
  };
  double low = index_of(s.beta_fast), high = index_of(s.beta_slow);
  if (s.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(dimension) - 1.0);
  double span = std::max(high - low, 0.001);
  std::vector<float> divisors(dimension / 2);
  for (std::size_t i = 0; i < divisors.size(); ++i) {
    double stretch = std::clamp((static_cast<double>(i) - low) / span, 0.0, 1.0);
    divisors[i] = blended_divisor(1.0 - stretch, s.factor);
  }
  return divisors;
}

double yarn_magnitude(double factor, double scale) {
  return factor <= 1.0 ? 1.0 : 0.1 * scale * std::log(factor) + 1.0;
}

double longrope_magnitude(double factor, double original_positions) {
  return factor <= 1.0 ? 1.0 : std::sqrt(1.0 + std::log(factor) / std::log(original_positions));
}

}  // namespace ballast
