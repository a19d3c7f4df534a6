// t-SNE: a map of two dimensions in which near rows stay near.
// van der Maaten & Hinton, "Visualizing Data using t-SNE", JMLR 9 (2008).
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "ballast/matrix.h"

namespace ballast {

using MapPoint = std::array<double, 2>;

struct TsneOptions {
  /// Neighbours that a row counts as near, about; at most a third of the other rows.
  double perplexity = 30;
  std::size_t iterations = 500;
};

/// The symmetric probabilities p_ij of section 3.1, rows × rows: 0 on the diagonal, sum 1. Each
/// row's precision is found by bisection, so that the entropy of p_{j|i} is log(perplexity).
std::vector<double> tsne_affinities(const Matrix& rows, double perplexity);

/// The Kullback-Leibler divergence of the map's probabilities (equation 4) from `affinities`, and
/// its gradient (equation 5) into `gradient`.
double tsne_cost(std::span<const double> affinities, std::span<const MapPoint> points,
                 std::span<MapPoint> gradient);

/// Algorithm 1 with its momentum, gains and exaggeration of the first 50 iterations, from the
/// plane of the principal components, so that equal rows give equal maps. Time and memory grow with
/// the square of the rows. Fewer than four rows are returned as that plane.
std::vector<MapPoint> tsne_map(const Matrix& rows, const TsneOptions& options = {});

}  // namespace ballast
