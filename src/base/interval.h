// Confidence intervals of shares.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace ballast {

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

}  // namespace ballast
