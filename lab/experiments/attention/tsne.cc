#include "experiments/attention/tsne.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/thread_pool.h"
#include "experiments/attention/clusters.h"

namespace ballast {
namespace {

constexpr double kLeast = 1e-12;  ///< keeps logarithms finite

/// p_{j|i} for one i: `squares` are the distances to all rows.
void conditional(std::span<const double> squares, std::size_t i, double perplexity,
                 std::span<double> out) {
  const double wanted = std::log(perplexity);
  double precision = 1, low = 0, high = HUGE_VAL;
  // The nearest row's distance, subtracted from all, leaves the probabilities as they are.
  double nearest = HUGE_VAL;
  for (std::size_t j = 0; j < squares.size(); ++j) {
    if (j != i) nearest = std::min(nearest, squares[j]);
  }
  for (int step = 0; step < 200; ++step) {
    double sum = 0, weighted = 0;
    for (std::size_t j = 0; j < squares.size(); ++j) {
      const double square = squares[j] - nearest;
      out[j] = j == i ? 0 : std::exp(-precision * square);
      sum += out[j];
      if (j != i) weighted += out[j] * square;
    }
    for (double& p : out) p /= sum;
    const double entropy = std::log(sum) + precision * weighted / sum;
    if (std::abs(entropy - wanted) < 1e-6) return;
    (entropy > wanted ? low : high) = precision;
    precision = high == HUGE_VAL ? precision * 2 : (low + high) / 2;
    if (!std::isfinite(precision)) return;  // equal rows: no precision tells them apart
  }
}

}  // namespace

std::vector<double> tsne_affinities(const Matrix& rows, double perplexity) {
  const std::size_t n = rows.rows();
  std::vector<double> out(n * n, 0.0);
  if (n < 2) return out;
  perplexity = std::clamp(perplexity, 1.0, std::max(1.0, static_cast<double>(n - 1) / 3));
  parallel_for(n, [&](std::size_t i) {
    std::vector<double> squares(n);
    for (std::size_t j = 0; j < n; ++j) {
      for (std::size_t c = 0; c < rows.cols(); ++c) {
        const double difference = double{rows[i][c]} - double{rows[j][c]};
        squares[j] += difference * difference;
      }
    }
    conditional(squares, i, perplexity, std::span(out).subspan(i * n, n));
  });
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      const double p = (out[i * n + j] + out[j * n + i]) / (2 * static_cast<double>(n));
      out[i * n + j] = out[j * n + i] = p;
    }
  }
  return out;
}

double tsne_cost(std::span<const double> affinities, std::span<const MapPoint> points,
                 std::span<MapPoint> gradient) {
  const std::size_t n = points.size();
  const auto closeness = [&](std::size_t i, std::size_t j) {
    const double x = points[i][0] - points[j][0], y = points[i][1] - points[j][1];
    return 1 / (1 + x * x + y * y);
  };
  std::vector<double> sums(n, 0.0);
  parallel_for(n, [&](std::size_t i) {
    for (std::size_t j = 0; j < n; ++j) sums[i] += j == i ? 0 : closeness(i, j);
  });
  const double all = std::accumulate(sums.begin(), sums.end(), 0.0);
  std::vector<double> costs(n, 0.0);
  parallel_for(n, [&](std::size_t i) {
    gradient[i] = {0, 0};
    for (std::size_t j = 0; j < n; ++j) {
      if (j == i) continue;
      const double near = closeness(i, j), p = affinities[i * n + j], q = near / all;
      costs[i] += p > 0 ? p * std::log(std::max(p, kLeast) / std::max(q, kLeast)) : 0;
      for (std::size_t a = 0; a < 2; ++a) {
        gradient[i][a] += 4 * (p - q) * near * (points[i][a] - points[j][a]);
      }
    }
  });
  return std::accumulate(costs.begin(), costs.end(), 0.0);
}

std::vector<MapPoint> tsne_map(const Matrix& rows, const TsneOptions& options) {
  std::vector<MapPoint> points = principal_plane(rows).points;
  const std::size_t n = points.size();
  if (n < 4) return points;
  // The paper begins with normal numbers of deviation 1e-4.
  double largest = 0;
  for (const MapPoint& p : points) largest = std::max({largest, std::abs(p[0]), std::abs(p[1])});
  if (largest == 0) return points;
  for (MapPoint& p : points) p = {p[0] / largest * 1e-4, p[1] / largest * 1e-4};
  std::vector<double> affinities = tsne_affinities(rows, options.perplexity);
  constexpr double kExaggeration = 4, kRate = 100;
  constexpr std::size_t kExaggerated = 50, kSlow = 250;
  for (double& p : affinities) p *= kExaggeration;
  std::vector<MapPoint> gradient(n), step(n, MapPoint{}), gain(n, MapPoint{1, 1});
  for (std::size_t t = 0; t < options.iterations; ++t) {
    if (t == kExaggerated) {
      for (double& p : affinities) p /= kExaggeration;
    }
    tsne_cost(affinities, points, gradient);
    const double momentum = t < kSlow ? 0.5 : 0.8;
    MapPoint mean{};
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t a = 0; a < 2; ++a) {
        // Jacobs (1988): larger steps where the direction stays.
        const bool stays = (gradient[i][a] > 0) != (step[i][a] > 0);
        gain[i][a] = std::max(0.01, stays ? gain[i][a] + 0.2 : gain[i][a] * 0.8);
        step[i][a] = momentum * step[i][a] - kRate * gain[i][a] * gradient[i][a];
        points[i][a] += step[i][a];
        mean[a] += points[i][a] / static_cast<double>(n);
      }
    }
    for (MapPoint& p : points) p = {p[0] - mean[0], p[1] - mean[1]};
  }
  return points;
}

}  // namespace ballast
