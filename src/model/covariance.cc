#include "model/covariance.h"

#include <algorithm>
#include <cmath>

#include "base/fail.h"
#include "base/thread_pool.h"
#include "gemm/matmul.h"
#include "model/symmetric.h"
#include "simd/vector_math.h"

namespace ballast {
namespace {

constexpr std::size_t kFineRows = 128;

struct Block {
  std::size_t first, dim;
  const float* root;
};

/// Ms, a block for each head.
std::vector<Block> blocks_of(const PackBasis& of, const PackGroup& group) {
  std::vector<Block> blocks;
  std::size_t first = 0;
  const float* root = group.metric.data();
  for (std::size_t l = 0; l < group.layers.size(); ++l) {
    for (const std::size_t dim : {of.key_dim, of.value_dim}) {
      for (std::size_t h = 0; h < of.kv_heads; ++h) {
        blocks.push_back({first, dim, root});
        first += dim;
        root += dim * dim;
      }
    }
  }
  return blocks;
}

/// C -> C Ms.
void weigh_columns(const std::vector<Block>& blocks, Matrix& c) {
  parallel_for(c.rows(), [&](std::size_t r) {
    std::vector<float> out(c.cols());
    for (const Block& b : blocks) {
      const std::span<const float> of_row = c[r].subspan(b.first, b.dim);
      for (std::size_t k = 0; k < b.dim; ++k) {
        out[b.first + k] = kernels::dot(of_row, {b.root + k * b.dim, b.dim});
      }
    }
    std::ranges::copy(out, c[r].begin());
  });
}

/// C -> Ms C Ms; `c` is symmetric.
void weigh(const PackBasis& of, const PackGroup& group, Matrix& c) {
  const std::vector<Block> blocks = blocks_of(of, group);
  // The rows of a block, then the columns of each row: the order is that of any thread count.
  parallel_for(blocks.size(), [&](std::size_t i) {
    const Block& b = blocks[i];
    std::vector<float> rows(b.dim * c.cols());
    for (std::size_t r = 0; r < b.dim; ++r) {
      const std::span<float> out = std::span(rows).subspan(r * c.cols(), c.cols());
      for (std::size_t k = 0; k < b.dim; ++k) {
        kernels::axpy(b.root[r * b.dim + k], c[b.first + k], out);
      }
    }
    std::ranges::copy(rows, c[b.first].begin());
  });
  weigh_columns(blocks, c);
}

/// Eight bits an element; those of the leading rows, which have most of a token, are written down
/// twice, the second time for what rounding left.
void round_basis(const Matrix& vectors, PackGroup& group) {
  const std::size_t fine = std::min<std::size_t>(kFineRows, vectors.rows());
  group.basis.clear();
  group.basis_scale.clear();
  group.fine.clear();
  for (std::size_t i = 0; i < vectors.rows(); ++i) {
    const std::span<const float> row = vectors[i];
    float largest = 0;
    for (float x : row) largest = std::max(largest, std::abs(x));
    const float scale = largest / 127;
    group.basis_scale.push_back(scale);
    for (float x : row) {
      const long code = std::lround(x / scale);
      group.basis.push_back(static_cast<std::int8_t>(code));
      if (i >= fine) continue;
      group.fine.push_back(static_cast<std::int8_t>(std::lround(254 * (x / scale - float(code)))));
    }
  }
}

/// Least squares of the log scores over the coefficients, which are uncorrelated.
void fit_scores(const Covariance& covariance, const PackBasis& of, const Matrix& vectors,
                PackGroup& group) {
  const std::size_t n = group.width(), count = covariance.width() - n, k = vectors.rows();
  const std::vector<float> mean = covariance.mean();
  const Matrix own = covariance.covariance(n, count, n + count);
  Matrix with(count, n);
  for (std::size_t s = 0; s < count; ++s) std::ranges::copy(own[s].first(n), with[s].begin());
  weigh_columns(blocks_of(of, group), with);
  group.score_offsets.assign(count, 0.0f);
  group.score_weights.assign(count * k, 0.0f);
  parallel_for(count, [&](std::size_t s) {
    double explained = 0;
    // Directions in which nothing was seen, but for rounding, say nothing.
    for (std::size_t i = 0; i < k && group.variance[i] > 1e-6f * group.variance[0]; ++i) {
      const double common = kernels::dot(vectors[i], with[s]);
      group.score_weights[s * k + i] = static_cast<float>(common / group.variance[i]);
      explained += common * common / group.variance[i];
    }
    // Of a log-normal score the mean, not the median: budgets are divided by expected loss.
    const double rest = std::max(0.0, double{own[s][n + s]} - explained);
    group.score_offsets[s] = static_cast<float>(mean[n + s] + rest / 2);
  });
}

}  // namespace

void Covariance::add(ConstMatrix rows) {
  if (rows.rows == 0) return;
  require(rows.cols == width_, "rows of {} elements, {} expected", rows.cols, width_);
  if (tokens_ == 0) {
    sums_.resize(width_);
    products_ = Matrix(width_, width_);
    std::vector<double> first(width_);
    for (std::size_t t = 0; t < rows.rows; ++t) {
      for (std::size_t i = 0; i < width_; ++i) first[i] += rows[t][i];
    }
    for (double x : first) centre_.push_back(static_cast<float>(x / double(rows.rows)));
  }
  tokens_ += rows.rows;
  Matrix turned(width_, rows.rows);
  constexpr std::size_t kAtOnce = 64;
  parallel_for((width_ + kAtOnce - 1) / kAtOnce, [&](std::size_t task) {
    for (std::size_t i = task * kAtOnce; i < std::min(width_, (task + 1) * kAtOnce); ++i) {
      double sum = 0;
      for (std::size_t t = 0; t < rows.rows; ++t) {
        turned[i][t] = rows.row(t)[i] - centre_[i];
        sum += turned[i][t];
      }
      sums_[i] += sum;
    }
  });
  Matrix made(std::min(width_, kAtOnce), width_);
  for (std::size_t i = 0; i < width_; i += kAtOnce) {
    const std::size_t count = std::min(kAtOnce, width_ - i), right = width_ - i;
    Linear weights;
    weights.data = reinterpret_cast<const std::byte*>(turned[i].data());
    weights.rows = right;
    weights.cols = rows.rows;
    weights.row_bytes = rows.rows * sizeof(float);
    const MutableMatrix out(made.data(), count, right, width_);
    multiply(turned.view().slice(i, count), weights, out);
    parallel_for(
        count, [&](std::size_t r) { kernels::axpy(1.0f, out[r], products_[i + r].subspan(i)); },
        count * right >= 64 * 1024);
  }
}

std::vector<float> Covariance::mean() const {
  std::vector<float> out;
  for (std::size_t i = 0; i < width_; ++i) {
    out.push_back(static_cast<float>(centre_[i] + sums_[i] / double(tokens_)));
  }
  return out;
}

std::vector<double> Covariance::second_moments(std::size_t begin, std::size_t count) const {
  const auto n = double(tokens_);
  std::vector<double> out(count * count);
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t j = 0; j < count; ++j) {
      const std::size_t a = begin + std::min(i, j), b = begin + std::max(i, j);
      out[i * count + j] = products_[a][b] / n + double{centre_[a]} * sums_[b] / n +
                           double{centre_[b]} * sums_[a] / n + double{centre_[a]} * centre_[b];
    }
  }
  return out;
}

Matrix Covariance::covariance(std::size_t begin, std::size_t count, std::size_t others) const {
  require(tokens_ > 0, "no tokens to make a covariance of");
  const auto n = double(tokens_);
  Matrix out(count, others);
  parallel_for(count, [&](std::size_t i) {
    for (std::size_t j = 0; j < others; ++j) {
      const std::size_t a = std::min(begin + i, j), b = std::max(begin + i, j);
      out[i][j] = static_cast<float>((products_[a][b] - sums_[a] * (sums_[b] / n)) / n);
    }
  });
  return out;
}

Matrix fit_group(const Covariance& covariance, const PackBasis& of, std::size_t directions,
                 PackGroup& group, const Matrix* start) {
  const std::size_t n = group.layers.size() * of.layer_width();
  const std::vector<float> mean = covariance.mean();
  group.mean.assign(mean.begin(), mean.begin() + static_cast<std::ptrdiff_t>(n));
  Matrix c = covariance.covariance(0, n, n);
  weigh(of, group, c);
  Leading found = leading_eigenvectors(c.view(), std::min(directions, n), start);
  // A direction in which nothing was seen would have no scale to be rounded by.
  const double least = std::max(found.values.front() * 1e-12, 1e-30);
  group.variance.clear();
  for (double value : found.values) {
    group.variance.push_back(static_cast<float>(std::max(value, least)));
  }
  round_basis(found.vectors, group);
  const std::size_t scores = covariance.width() - n;
  if (scores > 0) fit_scores(covariance, of, found.vectors, group);
  return std::move(found.vectors);
}

}  // namespace ballast
