// Checks of numbers that come from outside.
#pragma once

#include <cmath>
#include <cstddef>
#include <span>

namespace ballast {

/// Index of the first NaN or infinity, or row.size().
inline std::size_t first_not_finite(std::span<const float> row) {
  float sum = 0.0f;
  for (float x : row) sum += x * 0.0f;  // 0 unless something is not finite; vectorises
  if (sum == 0.0f) return row.size();
  for (std::size_t i = 0; i < row.size(); ++i) {
    if (!std::isfinite(row[i])) return i;
  }
  return row.size();
}

}  // namespace ballast
