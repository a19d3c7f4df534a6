// Lengths of queries, keys and values.
#pragma once

#include <cstddef>
#include <span>

#include "ballast/attention.h"
#include "experiments/data/kv_source.h"

namespace ballast {

struct Moments {
  double mean = 0;
  double deviation = 0;
  double largest = 0;
};

/// Sums that mean and deviation are computed from.
struct MomentSums {
  double count = 0, sum = 0, squares = 0, largest = 0;

  void add(double x);
  void add(const MomentSums& other);
  Moments moments() const;
  /// Half the width of the mean's 95% confidence interval, if all values are independent.
  double confidence() const;
};

/// Norms of one head, layer or source.
struct KvNorms {
  MomentSums query, key, shifted, value;  ///< shifted: keys less their mean in the head
  void add(const KvNorms& other);
};

/// Norms of rows of one head.
KvNorms measure_norms(const Matrix& queries, const Matrix& keys, const Matrix& values);
/// The same of what a cache holds, without queries.
KvNorms measure_norms(std::span<const Segment> segments);
/// Norms of one KV head and the query heads of its group.
KvNorms measure_norms(const KvSource& source, std::size_t layer, std::size_t kv_head);
/// Norms of several heads of a layer. The result does not depend on the number of threads.
KvNorms measure_norms(const KvSource& source, std::size_t layer,
                      std::span<const std::size_t> kv_heads, const Advance& advance = {});

}  // namespace ballast
