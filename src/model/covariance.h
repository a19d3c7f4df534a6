// Means and covariances of wide vectors, and what PackBasis makes of them.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "ballast/matrix.h"
#include "ballast/pack.h"

namespace ballast {

/// Sums over the vectors of many tokens. The same bits for any number of threads; float32, of the
/// differences to the mean of the first vectors.
class Covariance {
 public:
  explicit Covariance(std::size_t width) : width_(width) {}

  /// Takes in rows of `width` elements. Pieces of some 256 rows are best: each passes over all
  /// sums.
  void add(ConstMatrix rows);

  std::size_t width() const { return width_; }
  std::size_t tokens() const { return tokens_; }
  std::vector<float> mean() const;
  /// Mean product of elements [begin, begin + count), not about their mean: count × count.
  std::vector<double> second_moments(std::size_t begin, std::size_t count) const;
  /// About the mean, of elements [begin, begin + count) with the first `others`: count × others.
  /// Throws Error where there are no tokens.
  Matrix covariance(std::size_t begin, std::size_t count, std::size_t others) const;

 private:
  std::size_t width_ = 0, tokens_ = 0;
  std::vector<float> centre_;
  std::vector<double> sums_;  ///< of the differences to the centre
  Matrix products_;           ///< of them; upper triangle
};

/// Fills what covariances say: mean, variance, basis, its scales and fine rows, for `directions`
/// coefficients (as many as there are elements, at most). `group` has its layers and metric.
/// Elements of `covariance` behind those of the group are log scores: their weights are filled,
/// too. `start`: see leading_eigenvectors(). Returns the eigenvectors before they were rounded.
Matrix fit_group(const Covariance& covariance, const PackBasis& of, std::size_t directions,
                 PackGroup& group, const Matrix* start = nullptr);

}  // namespace ballast
