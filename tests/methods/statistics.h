// Tests of hypotheses at the level 1e-6: a right method fails one in a million seeds, and the seeds
// are fixed.
#pragma once

#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

namespace ballast::test {

/// |t| of the hypothesis that the samples' mean is `mean`; above kTLimit: refused. With hundreds of
/// samples t is close enough to normal.
inline double t_statistic(std::span<const double> samples, double mean) {
  const auto n = static_cast<double>(samples.size());
  double sum = 0, squares = 0;
  for (double x : samples) sum += x;
  for (double x : samples) squares += (x - sum / n) * (x - sum / n);
  const double error = std::sqrt(squares / (n - 1) / n);
  const double off = std::abs(sum / n - mean);
  return error > 0 ? off / error : (off > 1e-9 * (1 + std::abs(mean)) ? 1e9 : 0.0);
}
inline constexpr double kTLimit = 5.2;  // two-sided 1e-6 is 4.89 for the normal, more for t

/// Chi-square statistic of counts against expected counts.
inline double chi_square(std::span<const double> counts, std::span<const double> expected) {
  double sum = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    sum += (counts[i] - expected[i]) * (counts[i] - expected[i]) / expected[i];
  }
  return sum;
}

/// The value that chi-square with `df` degrees of freedom exceeds once in a million: Wilson and
/// Hilferty's approximation.
inline double chi_square_limit(std::size_t df) {
  const auto k = static_cast<double>(df);
  const double z = 4.7534;  // one-sided 1e-6
  const double c = 1.0 - 2.0 / (9.0 * k) + z * std::sqrt(2.0 / (9.0 * k));
  return k * c * c * c;
}

}  // namespace ballast::test
