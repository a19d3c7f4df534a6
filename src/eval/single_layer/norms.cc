#include "eval/single_layer/norms.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <vector>

#include "base/thread_pool.h"

namespace ballast {
namespace {

double norm(std::span<const float> row, std::span<const double> shift = {}) {
  double squares = 0;
  for (std::size_t c = 0; c < row.size(); ++c) {
    const double x = double{row[c]} - (shift.empty() ? 0.0 : shift[c]);
    squares += x * x;
  }
  return std::sqrt(squares);
}

MomentSums norms(const Matrix& rows, std::span<const double> shift = {}) {
  MomentSums out;
  for (std::size_t t = 0; t < rows.rows(); ++t) out.add(norm(rows[t], shift));
  return out;
}

std::vector<double> mean_row(const Matrix& rows) {
  std::vector<double> mean(rows.cols(), 0.0);
  for (std::size_t t = 0; t < rows.rows(); ++t) {
    for (std::size_t c = 0; c < mean.size(); ++c) mean[c] += rows[t][c];
  }
  for (double& x : mean) x /= static_cast<double>(rows.rows());
  return mean;
}

}  // namespace

void MomentSums::add(double x) {
  count += 1;
  sum += x;
  squares += x * x;
  largest = std::max(largest, x);
}

void MomentSums::add(const MomentSums& other) {
  count += other.count;
  sum += other.sum;
  squares += other.squares;
  largest = std::max(largest, other.largest);
}

Moments MomentSums::moments() const {
  if (count == 0) return {};
  const double mean = sum / count;
  return {mean, std::sqrt(std::max(0.0, squares / count - mean * mean)), largest};
}

double MomentSums::confidence() const {
  return count == 0 ? 0 : 1.96 * moments().deviation / std::sqrt(count);
}

void KvNorms::add(const KvNorms& other) {
  query.add(other.query);
  key.add(other.key);
  shifted.add(other.shifted);
  value.add(other.value);
}

KvNorms measure_norms(const Matrix& queries, const Matrix& keys, const Matrix& values) {
  return {norms(queries), norms(keys), norms(keys, mean_row(keys)), norms(values)};
}

KvNorms measure_norms(std::span<const Segment> segments) {
  KvNorms out;
  std::vector<float> row;
  std::vector<double> mean;
  const auto each_row = [&](RowsView Segment::*part, auto&& action) {
    for (const Segment& segment : segments) {
      const RowsView& rows = segment.*part;
      Matrix decoded(rows.rows, rows.dim);
      rows.decode(decoded.view());
      for (std::size_t i = 0; i < rows.rows; ++i) {
        row.assign(decoded[i].begin(), decoded[i].end());
        action();
      }
    }
  };
  each_row(&Segment::keys, [&] {
    out.key.add(norm(row));
    mean.resize(row.size(), 0.0);
    for (std::size_t c = 0; c < row.size(); ++c) mean[c] += row[c];
  });
  for (double& x : mean) x /= out.key.count;
  each_row(&Segment::keys, [&] { out.shifted.add(norm(row, mean)); });
  each_row(&Segment::values, [&] { out.value.add(norm(row)); });
  return out;
}

KvNorms measure_norms(const KvSource& source, std::size_t layer, std::size_t kv_head) {
  const KvShape& s = source.shape();
  KvNorms out = measure_norms({}, source.read(KvSource::Part::key, layer, kv_head, 0, s.tokens),
                              source.read(KvSource::Part::value, layer, kv_head, 0, s.tokens));
  for (std::size_t g = 0; g < s.group(); ++g) {
    const std::size_t head = kv_head * s.group() + g;
    out.query.add(norms(source.read(KvSource::Part::query, layer, head, 0, s.tokens)));
  }
  return out;
}

KvNorms measure_norms(const KvSource& source, std::size_t layer,
                      std::span<const std::size_t> kv_heads, const Advance& advance) {
  std::vector<KvNorms> of_head(kv_heads.size());
  std::mutex mutex;
  double done = 0;
  parallel_for(kv_heads.size(), [&](std::size_t h) {
    of_head[h] = measure_norms(source, layer, kv_heads[h]);
    std::lock_guard lock(mutex);
    if (advance) advance(++done / static_cast<double>(kv_heads.size()));
  });
  KvNorms out;
  for (const KvNorms& head : of_head) out.add(head);
  return out;
}

}  // namespace ballast
