#include "methods/refit.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "methods/ridge.h"
#include "simd/vector_math.h"

namespace ballast {
namespace {

constexpr double kRidge = 0.3;

Matrix decoded(const RowsView& rows) {
  Matrix out(rows.rows, rows.dim);
  for (std::size_t i = 0; i < rows.rows; ++i) rows.decode(i, out[i]);
  return out;
}

/// e^(logit - the largest) of one query and each key, and their logarithmic sum.
struct Shares {
  std::vector<double> each;
  double sum = 0;
  double most = -std::numeric_limits<double>::infinity();

  template <typename PositionOf>
  void set(std::span<const float> query, Position now, ConstMatrix keys, PositionOf position_of,
           const Logits& logits) {
    each.resize(keys.rows);
    most = -std::numeric_limits<double>::infinity();
    for (std::size_t j = 0; j < keys.rows; ++j) {
      const bool hidden =
          logits.sliding_window > 0 && position_of(j) <= now - logits.sliding_window;
      each[j] = hidden ? -std::numeric_limits<double>::infinity()
                       : double{logit_of(kernels::dot(query, keys[j]), logits)};
      most = std::max(most, each[j]);
    }
    sum = 0;
    for (double& x : each) sum += x = std::isinf(most) ? 0 : std::exp(x - most);
  }
};

}  // namespace

float logit_of(float dot, const Logits& logits) {
  const float logit = logits.scale * dot;
  return logits.softcap > 0 ? logits.softcap * std::tanh(logit / logits.softcap) : logit;
}

Matrix fit_values(const Block& block, ConstMatrix keys, ConstMatrix values,
                  std::span<const Position> positions, const Logits& logits) {
  const Matrix all_keys = decoded(block.keys), all_values = decoded(block.values);
  const ConstMatrix queries = block.observed->queries();
  const std::span<const Position> query_positions = block.observed->query_positions();
  const std::span<const float> outside_logits = block.observed->outside_logits();
  const std::size_t kept = keys.rows, asked = queries.rows, dim = values.cols;
  Columns shares(kept, std::vector<double>(asked, 0.0));
  Columns answers(dim, std::vector<double>(asked, 0.0));
  Shares of_all, of_kept;
  for (std::size_t i = 0; i < asked; ++i) {
    const std::span<const float> query = queries[i];
    const Position now = query_positions[i];
    of_all.set(
        query, now, all_keys.view(),
        [&](std::size_t j) { return block.first + static_cast<Position>(j); }, logits);
    of_kept.set(
        query, now, keys, [&](std::size_t j) { return positions[j]; }, logits);
    if (of_all.sum == 0 || of_kept.sum == 0) continue;
    const double outside = std::exp(double{outside_logits[i]} - of_all.most);
    const double weight = of_all.sum / (of_all.sum + outside);
    for (std::size_t a = 0; a < kept; ++a) shares[a][i] = weight * of_kept.each[a] / of_kept.sum;
    for (std::size_t j = 0; j < all_keys.rows(); ++j) {
      const double share = weight * of_all.each[j] / of_all.sum;
      for (std::size_t c = 0; c < dim; ++c) answers[c][i] += share * double{all_values[j][c]};
    }
  }
  const RidgeSolver solver(shares, kRidge);
  Matrix out(kept, dim);
  std::vector<double> start(kept);
  for (std::size_t c = 0; c < dim; ++c) {
    for (std::size_t a = 0; a < kept; ++a) start[a] = double{values[a][c]};
    const std::vector<double> fitted = solver.solve(answers[c], start);
    for (std::size_t a = 0; a < kept; ++a) out[a][c] = static_cast<float>(fitted[a]);
  }
  return out;
}

}  // namespace ballast
