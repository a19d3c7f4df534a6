#include "experiments/attention/softmax_regression.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "ballast/random.h"
#include "base/fail.h"

namespace ballast {
namespace {

using Vector = std::vector<double>;

Vector times(const Matrix& a, const Vector& x) {
  Vector out(a.rows(), 0.0);
  for (std::size_t i = 0; i < a.rows(); ++i) {
    for (std::size_t c = 0; c < x.size(); ++c) out[i] += double{a[i][c]} * x[c];
  }
  return out;
}

double norm(const Vector& x) {
  return std::sqrt(std::inner_product(x.begin(), x.end(), x.begin(), 0.0));
}

/// exp(Ax) and its sum.
struct Exponentials {
  explicit Exponentials(const Vector& logits) : u(logits) {
    for (double& z : u) sum += z = std::exp(z);
  }
  Vector u;
  double sum = 0;
};

/// Solves h·x = g for a symmetric d × d matrix by Cholesky's method; none if it is not positive
/// definite.
std::optional<Vector> solve(Vector h, Vector g) {
  const std::size_t d = g.size();
  for (std::size_t j = 0; j < d; ++j) {
    for (std::size_t i = j; i < d; ++i) {
      double sum = h[i * d + j];
      for (std::size_t k = 0; k < j; ++k) sum -= h[i * d + k] * h[j * d + k];
      if (i == j && !(sum > 0)) return std::nullopt;
      h[i * d + j] = i == j ? std::sqrt(sum) : sum / h[j * d + j];
    }
  }
  for (std::size_t i = 0; i < d; ++i) {
    for (std::size_t k = 0; k < i; ++k) g[i] -= h[i * d + k] * g[k];
    g[i] /= h[i * d + i];
  }
  for (std::size_t i = d; i-- > 0;) {
    for (std::size_t k = i + 1; k < d; ++k) g[i] -= h[k * d + i] * g[k];
    g[i] /= h[i * d + i];
  }
  return g;
}

void add_outer(Vector& h, std::span<const float> row, double weight) {
  const std::size_t d = row.size();
  for (std::size_t i = 0; i < d; ++i) {
    for (std::size_t j = 0; j < d; ++j) h[i * d + j] += weight * double{row[i]} * row[j];
  }
}

}  // namespace

double SoftmaxRegression::loss(const Vector& x) const {
  const Vector z = times(a, x);
  const Exponentials e(z);
  double out = e.sum;
  for (std::size_t i = 0; i < z.size(); ++i) {
    const double c = e.u[i] / e.sum - b[i];
    out += 0.5 * (c * c + w[i] * w[i] * z[i] * z[i]);
  }
  return out;
}

Vector SoftmaxRegression::gradient(const Vector& x) const {
  const Vector z = times(a, x);
  const Exponentials e(z);
  double along = 0;  // <f, f - b>
  for (std::size_t i = 0; i < z.size(); ++i) along += e.u[i] / e.sum * (e.u[i] / e.sum - b[i]);
  Vector out(a.cols(), 0.0);
  for (std::size_t i = 0; i < z.size(); ++i) {
    const double f = e.u[i] / e.sum;
    const double inner = f * (f - b[i] - along) + e.u[i] + w[i] * w[i] * z[i];
    for (std::size_t c = 0; c < out.size(); ++c) out[c] += inner * double{a[i][c]};
  }
  return out;
}

Vector SoftmaxRegression::diagonal(const Vector& x) const {
  const Vector z = times(a, x);
  const Exponentials e(z);
  double along = 0, squares = 0;
  for (double u : e.u) squares += u / e.sum * (u / e.sum);
  for (std::size_t i = 0; i < z.size(); ++i) along += e.u[i] / e.sum * (e.u[i] / e.sum - b[i]);
  Vector out(z.size());
  for (std::size_t i = 0; i < z.size(); ++i) {
    const double f = e.u[i] / e.sum, c = f - b[i];
    // J = diag(f) - f fᵀ: the diagonals of J² and of the derivative of J against a fixed f - b.
    const double square = f * f * (1 - 2 * f + squares);
    const double turn = (c - along) * f * (1 - f) - f * f * (c - along);
    out[i] = std::max(0.0, square + turn + e.u[i] + w[i] * w[i]);
  }
  return out;
}

NewtonPath newton(const SoftmaxRegression& problem, std::size_t rows, double tolerance,
                  std::size_t most, std::uint64_t seed) {
  const std::size_t n = problem.a.rows(), d = problem.a.cols();
  require(problem.b.size() == n && problem.w.size() == n, "{} rows, {} targets, {} weights", n,
          problem.b.size(), problem.w.size());
  NewtonPath out;
  Vector x(d, 0.0);
  for (std::size_t t = 0;; ++t) {
    const Vector g = problem.gradient(x);
    out.x.push_back(x);
    out.gradient.push_back(norm(g));
    if (out.gradient.back() <= tolerance || t == most) return out;
    const Vector weights = problem.diagonal(x);
    Vector h(d * d, 0.0);
    if (rows == 0) {
      for (std::size_t i = 0; i < n; ++i) add_outer(h, problem.a[i], weights[i]);
    } else {
      Vector upto(n);
      double sum = 0;
      for (std::size_t i = 0; i < n; ++i) {
        double square = 0;
        for (float v : problem.a[i]) square += double{v} * v;
        upto[i] = sum += weights[i] * square;
      }
      for (std::size_t r = 0; r < rows; ++r) {
        const double at = random_unit({seed, static_cast<std::uint32_t>(t), 0}, r) * sum;
        const auto i = std::min<std::size_t>(
            n - 1, static_cast<std::size_t>(std::ranges::upper_bound(upto, at) - upto.begin()));
        const double chance = (upto[i] - (i == 0 ? 0.0 : upto[i - 1])) / sum;
        if (chance > 0) {
          add_outer(h, problem.a[i], weights[i] / (chance * static_cast<double>(rows)));
        }
      }
    }
    // Rows that do not span the space leave directions without curvature, and without gradient.
    double largest = 0;
    for (std::size_t c = 0; c < d; ++c) largest = std::max(largest, h[c * d + c]);
    for (std::size_t c = 0; c < d; ++c) h[c * d + c] += 1e-8 * largest;
    const std::optional<Vector> step = solve(std::move(h), g);
    if (!step) {
      out.diverged = true;
      return out;
    }
    for (std::size_t c = 0; c < d; ++c) x[c] -= (*step)[c];
  }
}

}  // namespace ballast
