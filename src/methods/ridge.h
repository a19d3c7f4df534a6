// Least squares in float64, and the two choices of Attention Matching (arXiv:2602.16284).
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace ballast {

/// Columns of a matrix, each with a number a row.
using Columns = std::vector<std::vector<double>>;

/// Minimises |A x - b|² + ridge · (mean of the diagonal of A^T A) · |x - start|². The factor is
/// that of the smaller of A^T A and A A^T, made once for many b.
class RidgeSolver {
 public:
  /// `ridge` below 1e-9 counts as that, so that a solution exists.
  RidgeSolver(const Columns& columns, double ridge);
  std::vector<double> solve(std::span<const double> b, std::span<const double> start) const;

 private:
  const Columns& columns_;
  std::size_t rows_ = 0;
  bool dual_ = false;           ///< the factor is of A A^T
  std::vector<double> factor_;  ///< Cholesky, lower triangle, row after row
  std::size_t size_ = 0;
};

/// Columns of E and weights with which their sum comes near the totals.
struct Chosen {
  std::vector<std::size_t> columns;  ///< ascending
  std::vector<double> weights;       ///< positive
};

/// The `count` columns of the largest root mean square of E_ij / total_i. Weights: least squares,
/// clamped to [e^-3, e^3], then two steps of projected gradient of size 1 / |E|².
Chosen highest(const Columns& shares, std::span<const double> totals, std::size_t count,
               double ridge);

/// Orthogonal matching pursuit: of what is left of the totals, the four columns with the largest
/// inner product at a time, and new weights after every second time, clamped to [1e-12, e^7].
/// Columns that end below e^-7 are dropped.
Chosen pursue(const Columns& shares, std::span<const double> totals, std::size_t count,
              double ridge);

}  // namespace ballast
