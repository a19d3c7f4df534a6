// How keys and values lie in space: greedy k-centres, and a map of two dimensions.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "ballast/matrix.h"

namespace ballast {

/// At most `count` rows, evenly spaced.
Matrix evenly_spaced(const Matrix& rows, std::size_t count);

/// Greedy k-centre (Dyer & Frieze 1985): each centre is the row farthest from those before it.
struct GreedyCentres {
  std::vector<std::size_t> centres;  ///< rows; the first is the last row
  /// radii[i]: the largest distance of a row to the nearest of the first i + 1 centres, at most
  /// twice the optimum.
  std::vector<double> radii;
};

/// Returns at most one centre a row. Throws Error if there are no rows.
GreedyCentres greedy_centres(const Matrix& rows, std::size_t count);

/// Rows on the plane of their two largest principal components.
struct PlaneMap {
  std::vector<std::array<double, 2>> points;
  std::array<double, 2> variance{};  ///< the fraction of the variance along each axis
};

/// By power iteration on the covariance; the sign of an axis makes its largest component positive.
PlaneMap principal_plane(const Matrix& rows);

}  // namespace ballast
