#include "methods/ridge.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace ballast {
namespace {

double dot(std::span<const double> a, std::span<const double> b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

/// What is left of b once A x is taken away.
std::vector<double> rest(const Columns& columns, std::span<const double> b,
                         std::span<const double> x) {
  std::vector<double> out(b.begin(), b.end());
  for (std::size_t a = 0; a < columns.size(); ++a) {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] -= columns[a][i] * x[a];
  }
  return out;
}

Columns pick(const Columns& all, std::span<const std::size_t> which) {
  Columns out;
  for (std::size_t j : which) out.push_back(all[j]);
  return out;
}

/// The square of the largest singular value, by power iteration from above its start.
double largest_square(const Columns& columns) {
  if (columns.empty()) return 0;
  std::vector<double> x(columns.size(), 1.0);
  double square = 0;
  for (int step = 0; step < 30; ++step) {
    const std::vector<double> zero(columns[0].size(), 0.0);
    std::vector<double> y = rest(columns, zero, x);
    for (std::size_t a = 0; a < columns.size(); ++a) x[a] = -dot(columns[a], y);
    square = std::sqrt(dot(x, x));
    if (square == 0) return 0;
    for (double& each : x) each /= square;
  }
  return square;
}

}  // namespace

RidgeSolver::RidgeSolver(const Columns& columns, double ridge) : columns_(columns) {
  const std::size_t n = columns.size();
  if (n == 0) return;
  rows_ = columns[0].size();
  dual_ = rows_ < n;
  size_ = dual_ ? rows_ : n;
  factor_.assign(size_ * size_, 0.0);
  double diagonal = 0;
  for (const std::vector<double>& column : columns) diagonal += dot(column, column);
  if (dual_) {
    for (const std::vector<double>& column : columns) {
      for (std::size_t i = 0; i < size_; ++i) {
        for (std::size_t j = 0; j <= i; ++j) factor_[i * size_ + j] += column[i] * column[j];
      }
    }
  } else {
    for (std::size_t i = 0; i < size_; ++i) {
      for (std::size_t j = 0; j <= i; ++j) factor_[i * size_ + j] = dot(columns[i], columns[j]);
    }
  }
  const double pull = std::max(ridge, 1e-9) * std::max(diagonal / static_cast<double>(n), 1e-30);
  for (std::size_t i = 0; i < size_; ++i) {
    factor_[i * size_ + i] += pull;
    for (std::size_t j = 0; j <= i; ++j) {
      double sum = factor_[i * size_ + j];
      for (std::size_t k = 0; k < j; ++k) sum -= factor_[i * size_ + k] * factor_[j * size_ + k];
      factor_[i * size_ + j] =
          i == j ? std::sqrt(std::max(sum, pull * 1e-6)) : sum / factor_[j * size_ + j];
    }
  }
}

std::vector<double> RidgeSolver::solve(std::span<const double> b,
                                       std::span<const double> start) const {
  std::vector<double> out(start.begin(), start.end());
  if (size_ == 0) return out;
  const std::vector<double> left = rest(columns_, b, start);
  std::vector<double> x(size_);
  for (std::size_t i = 0; i < size_; ++i) x[i] = dual_ ? left[i] : dot(columns_[i], left);
  for (std::size_t i = 0; i < size_; ++i) {
    for (std::size_t j = 0; j < i; ++j) x[i] -= factor_[i * size_ + j] * x[j];
    x[i] /= factor_[i * size_ + i];
  }
  for (std::size_t i = size_; i-- > 0;) {
    for (std::size_t j = i + 1; j < size_; ++j) x[i] -= factor_[j * size_ + i] * x[j];
    x[i] /= factor_[i * size_ + i];
  }
  for (std::size_t a = 0; a < out.size(); ++a) out[a] += dual_ ? dot(columns_[a], x) : x[a];
  return out;
}

Chosen highest(const Columns& shares, std::span<const double> totals, std::size_t count,
               double ridge) {
  std::vector<double> scores(shares.size());
  for (std::size_t j = 0; j < shares.size(); ++j) {
    for (std::size_t i = 0; i < totals.size(); ++i) {
      const double share = totals[i] > 0 ? shares[j][i] / totals[i] : 0;
      scores[j] += share * share;
    }
  }
  Chosen out;
  out.columns.resize(shares.size());
  std::iota(out.columns.begin(), out.columns.end(), std::size_t{0});
  std::ranges::sort(out.columns, [&](std::size_t a, std::size_t b) {
    return scores[a] != scores[b] ? scores[a] > scores[b] : a > b;
  });
  out.columns.resize(std::min(count, out.columns.size()));
  std::ranges::sort(out.columns);
  const Columns kept = pick(shares, out.columns);
  const std::vector<double> ones(kept.size(), 1.0);
  out.weights = RidgeSolver(kept, ridge).solve(totals, ones);
  const double low = std::exp(-3.0), high = std::exp(3.0), square = largest_square(kept);
  for (double& weight : out.weights) weight = std::clamp(weight, low, high);
  for (int step = 0; step < 2 && square > 0; ++step) {
    const std::vector<double> left = rest(kept, totals, out.weights);
    for (std::size_t a = 0; a < kept.size(); ++a)
      out.weights[a] = std::clamp(out.weights[a] + dot(kept[a], left) / square, low, high);
  }
  return out;
}

Chosen pursue(const Columns& shares, std::span<const double> totals, std::size_t count,
              double ridge) {
  constexpr std::size_t kAtOnce = 4;
  const double low = 1e-12, high = std::exp(7.0);
  count = std::min(count, shares.size());
  Chosen out;
  std::vector<bool> taken(shares.size());
  std::vector<double> left(totals.begin(), totals.end());
  const auto weigh = [&] {
    const Columns kept = pick(shares, out.columns);
    const std::vector<double> ones(kept.size(), 1.0);
    out.weights = RidgeSolver(kept, ridge).solve(totals, ones);
    for (double& weight : out.weights) weight = std::clamp(weight, low, high);
    left = rest(kept, totals, out.weights);
  };
  std::vector<std::size_t> order;
  for (std::size_t time = 0; out.columns.size() < count; ++time) {
    order.clear();
    std::vector<double> match(shares.size());
    for (std::size_t j = 0; j < shares.size(); ++j) {
      if (taken[j]) continue;
      match[j] = dot(shares[j], left);
      order.push_back(j);
    }
    const std::size_t more = std::min(kAtOnce, count - out.columns.size());
    std::ranges::partial_sort(order, order.begin() + static_cast<std::ptrdiff_t>(more),
                              [&](std::size_t a, std::size_t b) {
                                return match[a] != match[b] ? match[a] > match[b] : a > b;
                              });
    for (std::size_t i = 0; i < more; ++i) {
      taken[order[i]] = true;
      out.columns.push_back(order[i]);
    }
    if (time % 2 == 1 || out.columns.size() == count) weigh();
  }
  Chosen kept;
  order = out.columns;
  std::ranges::sort(order);
  for (std::size_t j : order) {
    const auto at = std::ranges::find(out.columns, j) - out.columns.begin();
    const double weight = out.weights[static_cast<std::size_t>(at)];
    if (weight < std::exp(-7.0)) continue;
    kept.columns.push_back(j);
    kept.weights.push_back(weight);
  }
  return kept;
}

}  // namespace ballast
