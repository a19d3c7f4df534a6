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

/// C -> Ms C Ms, Ms with a block for each head; `c` is symmetric.
void weigh(const PackBasis& of, const PackGroup& group, Matrix& c) {
  struct Block {
    std::size_t first, dim;
    const float* root;
  };
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

Matrix Covariance::covariance() const {
  require(tokens_ > 0, "no tokens to make a covariance of");
  const auto n = double(tokens_);
  Matrix out(width_, width_);
  parallel_for(width_, [&](std::size_t i) {
    for (std::size_t j = 0; j < width_; ++j) {
      const std::size_t a = std::min(i, j), b = std::max(i, j);
      out[i][j] = static_cast<float>((products_[a][b] - sums_[a] * (sums_[b] / n)) / n);
    }
  });
  return out;
}

Matrix fit_group(const Covariance& covariance, const PackBasis& of, std::size_t directions,
                 PackGroup& group, const Matrix* start) {
  const std::size_t n = covariance.width();
  group.mean = covariance.mean();
  Matrix c = covariance.covariance();
  weigh(of, group, c);
  Leading found = leading_eigenvectors(c.view(), std::min(directions, n), start);
  // A direction in which nothing was seen would have no scale to be rounded by.
  const double least = std::max(found.values.front() * 1e-12, 1e-30);
  group.variance.clear();
  group.basis.clear();
  group.basis_scale.clear();
  for (std::size_t i = 0; i < found.values.size(); ++i) {
    const std::span<const float> row = found.vectors[i];
    float largest = 0;
    for (float x : row) largest = std::max(largest, std::abs(x));
    const float scale = largest / 127;
    group.variance.push_back(static_cast<float>(std::max(found.values[i], least)));
    group.basis_scale.push_back(scale);
    for (float x : row) group.basis.push_back(static_cast<std::int8_t>(std::lround(x / scale)));
  }
  return std::move(found.vectors);
}

}  // namespace ballast
