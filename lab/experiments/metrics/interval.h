// Confidence intervals of shares and means.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

namespace ballast {

/// The 97.5% quantile of Student's t, for 95% intervals of means; a multiple of the standard error.
/// `degrees`: of freedom, one less than the samples. To three digits; from five on by the expansion
/// around the normal quantile (Abramowitz and Stegun, 26.7.5). 0 without any.
inline double student_t(double degrees) {
  constexpr std::array least = {0.0, 12.706, 4.303, 3.182, 2.776};
  if (degrees < 5) return least[static_cast<std::size_t>(std::max(0.0, degrees))];
  const double z = 1.959963984540054, z2 = z * z, v = degrees;
  return z * (1 + (z2 + 1) / (4 * v) + ((5 * z2 + 16) * z2 + 3) / (96 * v * v) +
              (((3 * z2 + 19) * z2 + 17) * z2 - 15) / (384 * v * v * v) +
              ((((79 * z2 + 776) * z2 + 1482) * z2 - 1920) * z2 - 945) / (92160 * v * v * v * v));
}

struct Interval {
  double low = 0;
  double high = 1;
};

/// Wilson's score interval of a share in [0, 1] that was observed in `count` trials; `z`: standard
/// deviations, 1.96 for 95%. [0, 1] without trials. Wilson, J. Am. Stat. Assoc. 22 (1927), 209-212.
inline Interval wilson(double share, std::size_t count, double z = 1.959963984540054) {
  if (count == 0) return {};
  const auto n = static_cast<double>(count);
  const double centre = (share + z * z / (2 * n)) / (1 + z * z / n);
  const double half =
      z / (1 + z * z / n) * std::sqrt(share * (1 - share) / n + z * z / (4 * n * n));
  // Exact at the ends, where rounding would leave them out.
  return {share <= 0 ? 0.0 : std::max(0.0, centre - half),
          share >= 1 ? 1.0 : std::min(1.0, centre + half)};
}

/// Tango's score interval of the difference of two shares observed on the same `count` trials: of
/// these `only_first` succeeded in the first and not in the second, `only_second` the other way
/// round. It is the differences δ with (b − c − nδ)² ≤ z² n (2q + δ(1 − δ)), q being the likeliest
/// probability of c given δ. Unlike a normal interval it has a width where the two never differ.
/// [-1, 1] without trials. Tango, Statistics in Medicine 17 (1998), 891-908.
inline Interval tango(std::size_t only_first, std::size_t only_second, std::size_t count,
                      double z = 1.959963984540054) {
  if (count == 0) return {-1, 1};
  const auto n = static_cast<double>(count), b = static_cast<double>(only_first),
             c = static_cast<double>(only_second);
  const auto within = [&](double delta) {
    const double middle = -b - c + (2 * n - b + c) * delta;
    const double root = std::sqrt(std::max(0.0, middle * middle + 8 * n * c * delta * (1 - delta)));
    const double q = (root - middle) / (4 * n);
    const double off = b - c - n * delta;
    return off * off <= z * z * n * std::max(0.0, 2 * q + delta * (1 - delta));
  };
  // Both ends lie between the observed difference, which is within, and what cannot be.
  const auto end = [&](double outside) {
    double inside = (b - c) / n;
    if (within(outside)) return outside;
    for (int i = 0; i < 60; ++i) {
      const double half = (inside + outside) / 2;
      (within(half) ? inside : outside) = half;
    }
    return inside;
  };
  return {end(-1), end(1)};
}

}  // namespace ballast
