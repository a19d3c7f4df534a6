// A small basis for packing, and rows that fit it: few directions hold most of what there is.
#pragma once

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "ballast/pack.h"

namespace ballast::test {

struct ToySize {
  std::size_t layers = 3, kv_heads = 2, key_dim = 16, value_dim = 12;
  std::size_t directions = 100;  ///< of each group, at most
  std::size_t fine = 5;          ///< rows, at most
  bool scores = true;
  std::vector<std::vector<std::size_t>> groups = {{0, 1, 2}};
};

inline PackBasis toy_basis(const ToySize& size = {}) {
  std::mt19937_64 random(7);
  std::normal_distribution<double> normal;
  PackBasis out;
  out.model = "toy";
  out.layers = size.layers;
  out.kv_heads = size.kv_heads;
  out.key_dim = size.key_dim;
  out.value_dim = size.value_dim;
  for (const auto& layers : size.groups) {
    PackGroup& group = out.groups.emplace_back();
    group.layers = layers;
    const std::size_t n = layers.size() * out.layer_width();
    const std::size_t k = std::min(size.directions, n);
    for (std::size_t i = 0; i < n; ++i)
      group.mean.push_back(static_cast<float>(3 * normal(random)));
    for (std::size_t l = 0; l < layers.size(); ++l) {
      for (std::size_t dim : {out.key_dim, out.value_dim}) {
        for (std::size_t h = 0; h < out.kv_heads; ++h) {
          // 1 + u u^T is positive definite; the numbers are those of the file, f16.
          std::vector<double> u(dim);
          for (double& x : u) x = std::round(8 * normal(random)) / 16;
          for (std::size_t i = 0; i < dim; ++i) {
            for (std::size_t j = 0; j < dim; ++j) {
              const double x = (i == j ? 1.0 : 0.0) + u[i] * u[j];
              group.metric.push_back(static_cast<float>(std::round(x * 128) / 128));
            }
          }
        }
      }
    }
    std::vector<std::vector<double>> rows(k, std::vector<double>(n));
    for (std::size_t i = 0; i < k; ++i) {
      for (double& x : rows[i]) x = normal(random);
      for (std::size_t j = 0; j <= i; ++j) {  // orthogonal to those before it, of length 1
        double dot = 0;
        for (std::size_t c = 0; c < n; ++c) dot += rows[i][c] * rows[j][c];
        for (std::size_t c = 0; c < n; ++c) {
          rows[i][c] = j < i ? rows[i][c] - dot * rows[j][c] : rows[i][c] / std::sqrt(dot);
        }
      }
      double most = 0;
      for (double x : rows[i]) most = std::max(most, std::fabs(x));
      for (double x : rows[i]) {
        const long code = std::lround(x / most * 127);
        group.basis.push_back(static_cast<std::int8_t>(code));
        if (i >= size.fine) continue;
        const double left = x / most * 127 - static_cast<double>(code);
        group.fine.push_back(static_cast<std::int8_t>(std::lround(254 * left)));
      }
      group.basis_scale.push_back(static_cast<float>(most / 127));
      group.variance.push_back(static_cast<float>(100 * std::exp(-0.08 * static_cast<double>(i))));
    }
    for (std::size_t s = 0; size.scores && s < layers.size() * out.kv_heads; ++s) {
      group.score_offsets.push_back(static_cast<float>(normal(random)));
      for (std::size_t i = 0; i < k; ++i) {
        group.score_weights.push_back(static_cast<float>(normal(random) / 30));
      }
    }
  }
  out.presets = {{16, 0.25f, 0.004f}, {32, 0.5f, 0.01f}};
  return out;
}

/// Element c of direction i.
inline double direction(const PackGroup& group, std::size_t i, std::size_t c) {
  const std::size_t at = i * group.width() + c;
  const double less = at < group.fine.size() ? group.fine[at] / 254.0 : 0;
  return group.basis_scale[i] * (group.basis[at] + less);
}

/// Ms v of a group, or with `inverse` Ms^-1 v, by elimination.
inline std::vector<double> times_metric(const PackBasis& basis, const PackGroup& group,
                                        const std::vector<double>& v, bool inverse) {
  std::vector<double> out(v.size());
  for (std::size_t at = 0, element = 0; element < v.size();) {
    const bool key = element % basis.layer_width() < basis.kv_heads * basis.key_dim;
    const std::size_t d = key ? basis.key_dim : basis.value_dim;
    std::vector<std::vector<double>> m(d, std::vector<double>(d + 1));
    for (std::size_t i = 0; i < d; ++i) {
      for (std::size_t j = 0; j < d; ++j) m[i][j] = group.metric[at + i * d + j];
      m[i][d] = v[element + i];
    }
    for (std::size_t i = 0; !inverse && i < d; ++i) {
      for (std::size_t j = 0; j < d; ++j) out[element + i] += m[i][j] * v[element + j];
    }
    for (std::size_t p = 0; inverse && p < d; ++p) {
      for (std::size_t i = 0; i < d; ++i) {
        if (i == p) continue;
        const double factor = m[i][p] / m[p][p];
        for (std::size_t j = p; j <= d; ++j) m[i][j] -= factor * m[p][j];
      }
    }
    for (std::size_t i = 0; inverse && i < d; ++i) out[element + i] = m[i][d] / m[i][i];
    at += d * d;
    element += d;
  }
  return out;
}

/// The coefficients of a text have the deviations that the basis says, and Laplace's shape.
inline std::vector<Matrix> toy_rows(const PackBasis& basis, std::size_t tokens,
                                    std::uint64_t seed = 1) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> uniform(-0.5, 0.5);
  std::vector<Matrix> out;
  for (const PackGroup& group : basis.groups) {
    const std::size_t n = group.width();
    Matrix& rows = out.emplace_back(tokens, n);
    for (std::size_t t = 0; t < tokens; ++t) {
      std::vector<double> x(n);
      for (std::size_t i = 0; i < group.directions(); ++i) {
        const double u = uniform(random);
        const double deviation = std::sqrt(group.variance[i]);
        const double y = -std::copysign(std::log(1 - 2 * std::fabs(u)), u) * deviation / 1.41421356;
        for (std::size_t c = 0; c < n; ++c) {
          x[c] += y * direction(group, i, c);
        }
      }
      x = times_metric(basis, group, x, true);
      for (std::size_t c = 0; c < n; ++c) {
        rows[t][c] = static_cast<float>(x[c] + group.mean[c]);
      }
    }
  }
  return out;
}

inline PackCodec::Rows rows_of(const std::vector<Matrix>& all) {
  return [&all](std::size_t group, std::size_t first, MutableMatrix out) {
    for (std::size_t t = 0; t < out.rows; ++t) {
      std::ranges::copy(all[group][first + t], out[t].begin());
    }
  };
}

}  // namespace ballast::test
