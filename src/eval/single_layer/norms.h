// Lengths of queries, keys and values.
#pragma once

#include <cstddef>
#include <span>

#include "eval/data/kv_source.h"

namespace ballast {

struct Moments {
  double mean = 0;
  double deviation = 0;
  double largest = 0;
};

/// Sums from which moments follow.
struct MomentSums {
  double count = 0, sum = 0, squares = 0, largest = 0;

  void add(double x);
  void add(const MomentSums& other);
  Moments moments() const;
  /// Half the width of a 95% confidence interval of the mean, as if all were independent.
  double confidence() const;
};

/// Of one head, layer or source.
struct KvNorms {
  MomentSums query, key, shifted, value;  ///< shifted: keys less their mean in the head
  void add(const KvNorms& other);
};

/// Of rows of one head.
KvNorms measure_norms(const Matrix& queries, const Matrix& keys, const Matrix& values);
/// Of one KV head, with the query heads of its group.
KvNorms measure_norms(const KvSource& source, std::size_t layer, std::size_t kv_head);
/// Of several heads of a layer; the same numbers for any number of threads.
KvNorms measure_norms(const KvSource& source, std::size_t layer,
                      std::span<const std::size_t> kv_heads, const Advance& advance = {});

}  // namespace ballast
