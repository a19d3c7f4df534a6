#include "model/symmetric.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "ballast/random.h"
#include "base/fail.h"
#include "base/thread_pool.h"
#include "gemm/matmul.h"
#include "simd/vector_math.h"

namespace ballast {
namespace {

constexpr std::size_t kParallelWork = 64 * 1024;

double dot(const double* a, const double* b, std::size_t n) {
  // Eight sums: the compiler makes vectors of them.
  double sums[8] = {};
  std::size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    for (std::size_t j = 0; j < 8; ++j) sums[j] += a[i + j] * b[i + j];
  }
  for (; i < n; ++i) sums[i % 8] += a[i] * b[i];
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

/// The tridiagonal form T = H A H of a matrix, H the product of reflections I - tau v vᵀ.
struct Tridiagonal {
  std::vector<double> diagonal, beside;        ///< n and n - 1 elements
  std::vector<std::vector<double>> reflected;  ///< v of step i, of elements i + 1 to n
  std::vector<double> taus;
};

Tridiagonal tridiagonal(std::vector<double>& a, std::size_t n) {
  Tridiagonal t;
  t.diagonal.resize(n);
  t.beside.resize(n - 1);
  std::vector<double> p(n);
  for (std::size_t i = 0; i + 1 < n; ++i) {
    t.diagonal[i] = a[i * n + i];
    const std::size_t m = n - i - 1;
    std::vector<double> v(a.begin() + static_cast<std::ptrdiff_t>(i * n + i + 1),
                          a.begin() + static_cast<std::ptrdiff_t>(i * n + n));
    const double norm = std::sqrt(dot(v.data(), v.data(), m));
    const double first = v[0] > 0 ? -norm : norm;
    t.beside[i] = norm == 0 ? 0 : first;
    v[0] -= first;
    const double squared = dot(v.data(), v.data(), m);
    const double tau = squared == 0 ? 0 : 2 / squared;
    if (tau > 0) {
      // A - v wᵀ - w vᵀ with p = tau A v and w = p - (tau/2 <p, v>) v.
      double* const sub = &a[(i + 1) * n + i + 1];
      const bool parallel = m * m >= kParallelWork;
      constexpr std::size_t kRows = 32;
      const std::size_t tasks = (m + kRows - 1) / kRows;
      parallel_for(
          tasks,
          [&](std::size_t task) {
            for (std::size_t r = task * kRows; r < std::min(m, (task + 1) * kRows); ++r) {
              p[r] = tau * dot(sub + r * n, v.data(), m);
            }
          },
          parallel);
      const double half = tau / 2 * dot(p.data(), v.data(), m);
      for (std::size_t r = 0; r < m; ++r) p[r] -= half * v[r];
      parallel_for(
          tasks,
          [&](std::size_t task) {
            for (std::size_t r = task * kRows; r < std::min(m, (task + 1) * kRows); ++r) {
              double* const row = sub + r * n;
              const double vr = v[r], pr = p[r];
              for (std::size_t c = 0; c < m; ++c) row[c] -= vr * p[c] + pr * v[c];
            }
          },
          parallel);
    }
    t.reflected.push_back(std::move(v));
    t.taus.push_back(tau);
  }
  t.diagonal[n - 1] = a[n * n - 1];
  return t;
}

struct Rotation {
  std::size_t row;  ///< this one and the next
  double c, s;
};

/// Turns rows of an n × n matrix. Columns are independent: stripes of them stay in the cache.
void turn_rows(std::span<const Rotation> rotations, std::vector<double>& rows, std::size_t n) {
  constexpr std::size_t kStripe = 128;
  parallel_for((n + kStripe - 1) / kStripe,
               [&](std::size_t stripe) {
                 const std::size_t begin = stripe * kStripe, end = std::min(n, begin + kStripe);
                 for (const Rotation& r : rotations) {
                   double* const upper = &rows[r.row * n];
                   double* const lower = upper + n;
                   for (std::size_t k = begin; k < end; ++k) {
                     const double x = upper[k], y = lower[k];
                     lower[k] = r.s * x + r.c * y;
                     upper[k] = r.c * x - r.s * y;
                   }
                 }
               },
               rotations.size() * n >= kParallelWork);
}

/// Diagonalises T; `vectors` starts as the identity and ends with an eigenvector a row.
void implicit_ql(std::vector<double>& d, std::vector<double>& e, std::vector<double>& vectors) {
  const std::size_t n = d.size();
  e.push_back(0);
  std::vector<Rotation> rotations;
  const auto flush = [&] {
    turn_rows(rotations, vectors, n);
    rotations.clear();
  };
  for (std::size_t l = 0; l < n; ++l) {
    for (int round = 0;; ++round) {
      std::size_t m = l;
      for (; m + 1 < n; ++m) {
        const double near = std::abs(d[m]) + std::abs(d[m + 1]);
        if (std::abs(e[m]) <= std::numeric_limits<double>::epsilon() * near) break;
      }
      if (m == l) break;
      require(round < 60, "eigenvalues of {} dimensions were not found", n);
      double g = (d[l + 1] - d[l]) / (2 * e[l]);
      double r = std::hypot(g, 1.0);
      g = d[m] - d[l] + e[l] / (g + std::copysign(r, g));
      double s = 1, c = 1, p = 0;
      bool split = false;
      for (std::size_t i = m; i-- > l;) {
        double f = s * e[i];
        const double b = c * e[i];
        r = std::hypot(f, g);
        e[i + 1] = r;
        if (r == 0) {
          d[i + 1] -= p;
          e[m] = 0;
          split = true;
          break;
        }
        s = f / r;
        c = g / r;
        g = d[i + 1] - p;
        r = (d[i] - g) * s + 2 * c * b;
        p = s * r;
        d[i + 1] = g + p;
        g = c * r - b;
        rotations.push_back({i, c, s});
      }
      if (rotations.size() >= 16 * n) flush();
      if (split) continue;
      d[l] -= p;
      e[l] = g;
      e[m] = 0;
    }
  }
  flush();
}

Linear weights_of(ConstMatrix m) {
  Linear out;
  out.data = reinterpret_cast<const std::byte*>(m.data);
  out.rows = m.rows;
  out.cols = m.cols;
  out.row_bytes = m.stride * sizeof(float);
  return out;
}

/// out = a · bᵀ, rows of `a` in pieces that stay in the cache.
void products(ConstMatrix a, ConstMatrix b, MutableMatrix out) {
  const Linear weights = weights_of(b);
  constexpr std::size_t kRows = 64;
  for (std::size_t i = 0; i < a.rows; i += kRows) {
    const std::size_t count = std::min(kRows, a.rows - i);
    multiply(a.slice(i, count), weights, out.slice(i, count));
  }
}

/// Rows, and the same turned: products want weights with the sum along a row.
void turn(ConstMatrix rows, std::size_t first, Matrix& across) {
  constexpr std::size_t kAtOnce = 64;
  parallel_for((rows.cols + kAtOnce - 1) / kAtOnce, [&](std::size_t task) {
    for (std::size_t k = task * kAtOnce; k < std::min(rows.cols, (task + 1) * kAtOnce); ++k) {
      for (std::size_t i = 0; i < rows.rows; ++i) across[k][first + i] = rows.row(i)[k];
    }
  });
}

/// out = coefficients · others, these turned: their first coefficients.cols count.
void combine(ConstMatrix coefficients, const Matrix& across, MutableMatrix out) {
  products(coefficients, {across.data(), across.rows(), coefficients.cols, across.cols()}, out);
}

double length(std::span<const float> row) {
  double sum = 0;
  for (float x : row) sum += double{x} * x;
  return std::sqrt(sum);
}

/// Makes rows orthonormal, in blocks: each is freed of all before it twice (once leaves what
/// rounding brings back), then its own rows of one another.
void orthonormalise(Matrix& q) {
  constexpr std::size_t kBlock = 64;
  const std::size_t n = q.cols();
  Matrix coefficients(kBlock, q.rows()), others(kBlock, n), across(n, q.rows());
  const auto free_of_others = [&](MutableMatrix rows, std::size_t begin) {
    for (int twice = 0; begin > 0 && twice < 2; ++twice) {
      const MutableMatrix with(coefficients.data(), rows.rows, begin, q.rows());
      products(rows, q.view().slice(0, begin), with);
      combine(with, across, others.view().slice(0, rows.rows));
      for (std::size_t i = 0; i < rows.rows; ++i) kernels::axpy(-1.0f, others[i], rows[i]);
    }
  };
  for (std::size_t begin = 0; begin < q.rows(); begin += kBlock) {
    const std::size_t count = std::min(kBlock, q.rows() - begin);
    const MutableMatrix block = q.view().slice(begin, count);
    for (std::size_t i = 0; i < count; ++i) {  // so that what is left can be compared with 1
      const double norm = length(block[i]);
      require(std::isfinite(norm), "a covariance is not finite");
      for (float& x : block[i]) x = static_cast<float>(x / std::max(norm, 1e-30));
    }
    free_of_others(block, begin);
    for (std::size_t i = 0; i < count; ++i) {
      for (int again = 0; again < 3; ++again) {
        for (std::size_t j = 0; j < i; ++j) {
          kernels::axpy(-kernels::dot(block[i], block[j]), block[j], block[i]);
        }
        const double norm = length(block[i]);
        if (norm > 1e-4) {
          for (float& x : block[i]) x = static_cast<float>(x / norm);
          continue;
        }
        // Nothing new is left: a direction of no weight, found by chance.
        const RandomKey key{2, static_cast<std::uint32_t>(begin + i)};
        const auto stream = static_cast<std::uint32_t>(again);
        for (std::size_t k = 0; k < n; ++k) {
          block[i][k] = static_cast<float>(random_unit(key, k, stream) - 0.5);
        }
        free_of_others(block.slice(i, 1), begin);
      }
    }
    turn(block, begin, across);
  }
}

}  // namespace

std::vector<double> eigenvectors(std::vector<double>& a, std::size_t n) {
  for (double x : a) require(std::isfinite(x), "a matrix of {} dimensions is not finite", n);
  if (n == 0) return {};
  Tridiagonal t = tridiagonal(a, n);
  std::ranges::fill(a, 0.0);
  for (std::size_t i = 0; i < n; ++i) a[i * n + i] = 1;
  implicit_ql(t.diagonal, t.beside, a);
  // An eigenvector of A is H times one of T.
  constexpr std::size_t kRows = 8;
  parallel_for((n + kRows - 1) / kRows,
               [&](std::size_t task) {
                 const std::size_t end = std::min(n, (task + 1) * kRows);
                 for (std::size_t i = n - 1; i-- > 0;) {
                   const std::vector<double>& v = t.reflected[i];
                   for (std::size_t r = task * kRows; r < end; ++r) {
                     double* const row = &a[r * n + i + 1];
                     const double by = t.taus[i] * dot(row, v.data(), v.size());
                     for (std::size_t k = 0; k < v.size(); ++k) row[k] -= by * v[k];
                   }
                 }
               },
               n * n >= kParallelWork);
  std::vector<std::size_t> order(n);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(
      order, [&](std::size_t x, std::size_t y) { return t.diagonal[x] > t.diagonal[y]; });
  std::vector<double> sorted(n * n), values(n);
  for (std::size_t i = 0; i < n; ++i) {
    values[i] = t.diagonal[order[i]];
    std::copy_n(&a[order[i] * n], n, &sorted[i * n]);
  }
  a = std::move(sorted);
  return values;
}

Roots roots(std::vector<double> m, std::size_t n, double floor) {
  const std::vector<double> values = eigenvectors(m, n);
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(n);
  require(mean > 0, "a metric of {} dimensions has no positive eigenvalue", n);
  Roots out{std::vector<double>(n * n), std::vector<double>(n * n)};
  for (std::size_t v = 0; v < n; ++v) {
    const double root = std::sqrt(std::max(values[v], floor * mean));
    const double* const row = &m[v * n];
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < n; ++j) {
        out.root[i * n + j] += row[i] * row[j] * root;
        out.inverse[i * n + j] += row[i] * row[j] / root;
      }
    }
  }
  return out;
}

Leading leading_eigenvectors(ConstMatrix c, std::size_t count, const Matrix* start) {
  const std::size_t n = c.rows;
  require(count > 0 && count <= n, "{} eigenvectors of {} dimensions", count, n);
  const std::size_t rows = std::min(n, count + 64);
  Matrix q(rows, n), next(rows, n);
  parallel_for(rows, [&](std::size_t i) {
    for (std::size_t k = 0; k < n; ++k) {
      q[i][k] = start != nullptr && i < start->rows()
                    ? (*start)[i][k]
                    : static_cast<float>(random_unit({1, static_cast<std::uint32_t>(i)}, k) - 0.5);
    }
  });
  for (int round = start != nullptr ? 2 : 0; round < 3; ++round) {
    products(q.view(), c, next.view());
    std::swap(q, next);
    orthonormalise(q);
  }
  products(q.view(), c, next.view());
  Matrix small(rows, rows);
  products(q.view(), next.view(), small.view());
  std::vector<double> ritz(rows * rows);
  for (std::size_t i = 0; i < rows; ++i) {
    for (std::size_t j = 0; j < rows; ++j) {
      ritz[i * rows + j] = (double{small[i][j]} + small[j][i]) / 2;
    }
  }
  std::vector<double> values = eigenvectors(ritz, rows);
  Leading out{Matrix(count, n), {}};
  Matrix turned(count, rows), across(n, rows);
  for (std::size_t i = 0; i < count; ++i) {
    out.values.push_back(std::max(values[i], 0.0));
    for (std::size_t j = 0; j < rows; ++j) {
      turned[i][j] = static_cast<float>(ritz[i * rows + j]);
    }
  }
  turn(q.view(), 0, across);
  combine(turned.view(), across, out.vectors.view());
  parallel_for(count, [&](std::size_t i) {
    const double norm = length(out.vectors[i]);
    for (float& x : out.vectors[i]) x = static_cast<float>(x / norm);
  });
  return out;
}

}  // namespace ballast
