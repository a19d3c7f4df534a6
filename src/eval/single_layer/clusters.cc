#include "eval/single_layer/clusters.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "base/fail.h"

namespace ballast {
namespace {

using Vector = std::vector<double>;

double squared_distance(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (std::size_t c = 0; c < a.size(); ++c) {
    const double x = double{a[c]} - double{b[c]};
    sum += x * x;
  }
  return sum;
}

double dot(const Vector& a, const Vector& b) {
  double sum = 0;
  for (std::size_t c = 0; c < a.size(); ++c) sum += a[c] * b[c];
  return sum;
}

/// Scales to length 1; returns false for a zero vector.
bool to_unit(Vector& v) {
  const double size = std::sqrt(dot(v, v));
  if (!(size > 0)) return false;
  for (double& x : v) x /= size;
  return true;
}

std::vector<Vector> centred(const Matrix& rows) {
  const std::size_t n = rows.rows(), d = rows.cols();
  Vector mean(d, 0.0);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t c = 0; c < d; ++c) mean[c] += rows[i][c] / static_cast<double>(n);
  }
  std::vector<Vector> out(n, Vector(d));
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t c = 0; c < d; ++c) out[i][c] = rows[i][c] - mean[c];
  }
  return out;
}

std::vector<Vector> covariance(const std::vector<Vector>& rows, std::size_t d) {
  std::vector<Vector> out(d, Vector(d, 0.0));
  for (const Vector& row : rows) {
    for (std::size_t a = 0; a < d; ++a) {
      for (std::size_t b = 0; b < d; ++b) out[a][b] += row[a] * row[b];
    }
  }
  return out;
}

/// Finds the axis of largest variance and removes it from the matrix. Returns that variance.
double take_axis(std::vector<Vector>& matrix, Vector& axis) {
  const std::size_t d = matrix.size();
  // The row of the largest variance is not perpendicular to the axis sought.
  std::size_t start = 0;
  for (std::size_t c = 0; c < d; ++c) {
    if (matrix[c][c] > matrix[start][start]) start = c;
  }
  axis = matrix[start];
  if (!to_unit(axis)) return 0;
  double variance = 0;
  for (int step = 0; step < 1000; ++step) {
    Vector next(d);
    for (std::size_t c = 0; c < d; ++c) next[c] = dot(matrix[c], axis);
    variance = dot(next, axis);
    if (!to_unit(next)) return 0;
    const double turned = 1 - std::abs(dot(next, axis));
    axis = std::move(next);
    if (turned < 1e-14) break;
  }
  const auto largest =
      std::ranges::max_element(axis, [](double a, double b) { return std::abs(a) < std::abs(b); });
  if (*largest < 0) {
    for (double& x : axis) x = -x;
  }
  for (std::size_t a = 0; a < d; ++a) {
    for (std::size_t b = 0; b < d; ++b) matrix[a][b] -= variance * axis[a] * axis[b];
  }
  return variance;
}

}  // namespace

Matrix evenly_spaced(const Matrix& rows, std::size_t count) {
  const std::size_t n = std::min(count, rows.rows());
  Matrix out(n, rows.cols());
  for (std::size_t i = 0; i < n; ++i) std::ranges::copy(rows[i * rows.rows() / n], out[i].begin());
  return out;
}

GreedyCentres greedy_centres(const Matrix& rows, std::size_t count) {
  require(rows.rows() > 0, "there are no rows to find centres of");
  std::vector<double> nearest(rows.rows(), std::numeric_limits<double>::infinity());
  GreedyCentres out;
  std::size_t centre = rows.rows() - 1;
  for (std::size_t k = 0; k < std::min(count, rows.rows()); ++k) {
    out.centres.push_back(centre);
    for (std::size_t i = 0; i < rows.rows(); ++i) {
      nearest[i] = std::min(nearest[i], squared_distance(rows[i], rows[centre]));
    }
    centre = static_cast<std::size_t>(std::ranges::max_element(nearest) - nearest.begin());
    out.radii.push_back(std::sqrt(nearest[centre]));
  }
  return out;
}

PlaneMap principal_plane(const Matrix& rows) {
  const std::vector<Vector> from_mean = centred(rows);
  std::vector<Vector> matrix = covariance(from_mean, rows.cols());
  double total = 0;
  for (std::size_t c = 0; c < rows.cols(); ++c) total += matrix[c][c];
  PlaneMap out;
  out.points.assign(rows.rows(), {0.0, 0.0});
  for (std::size_t a = 0; a < 2 && total > 0; ++a) {
    Vector axis;
    const double variance = take_axis(matrix, axis);
    // Rows on a line leave only rounding errors here.
    if (!(variance > 1e-12 * total)) break;
    out.variance[a] = variance / total;
    for (std::size_t i = 0; i < rows.rows(); ++i) out.points[i][a] = dot(from_mean[i], axis);
  }
  return out;
}

}  // namespace ballast
