#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace ballast {

/// A running mean and its standard error, which assumes independent samples.
struct RunningMean {
  std::size_t count = 0;
  double sum = 0, squares = 0;

  void add(double x) {
    ++count;
    sum += x;
    squares += x * x;
  }
  double mean() const { return count == 0 ? 0 : sum / static_cast<double>(count); }
  /// 0 for fewer than two samples.
  double error() const {
    if (count < 2) return 0;
    const auto n = static_cast<double>(count);
    return std::sqrt(std::max(0.0, (squares - sum * sum / n) / (n - 1)) / n);
  }
};

}  // namespace ballast
