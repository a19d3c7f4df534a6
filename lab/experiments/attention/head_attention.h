// The rows and the exact attention of one KV head: the reference of the single-layer experiments.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ballast/attention.h"
#include "ballast/method.h"
#include "ballast/storage.h"
#include "ballast/summary.h"
#include "experiments/data/kv_source.h"

namespace ballast {

/// Queries of consecutive tokens. Row t·group + g is token first + t of query head g.
struct GroupQueries {
  Matrix rows;
  std::vector<Position> positions;
  Queries view() const { return {rows.view(), positions, {}}; }
};

/// Tokens [begin, begin + count) of a head, exact.
Segment exact_segment(const RowsView& keys, const RowsView& values, std::size_t begin,
                      std::size_t count);

/// The summary of a part of one head's tokens, as an experiment plans it.
struct SummaryPlan {
  Policy policy;
  Protocol protocol = Protocol::prefill;
  std::size_t sink = 0;      ///< tokens before the first that is summarised
  std::size_t tokens = 0;    ///< that are summarised
  std::size_t capacity = 0;  ///< entries
  StorageType key_type = StorageType::f32;
  StorageType value_type = StorageType::f32;
  std::uint64_t seed = 0;
};

/// One KV head of a source.
class HeadAttention {
 public:
  /// Reads keys and values. scale 0: 1/sqrt(key dimension).
  HeadAttention(const KvSource& source, std::size_t layer, std::size_t kv_head, float scale = 0);

  const Matrix& keys() const { return keys_; }
  const Matrix& values() const { return values_; }
  const Logits& logits() const { return logits_; }
  /// What rows of few bits are relative to, as in a cache.
  const std::shared_ptr<const RowMean>& key_mean() const { return key_mean_; }
  const std::shared_ptr<const RowMean>& value_mean() const { return value_mean_; }

  /// The input of make_summary() for this head: the plan, dimensions, logits and a random key.
  SummarySetup setup(const SummaryPlan& plan) const;
  GroupQueries queries(std::size_t first, std::size_t count) const;
  /// Exact causal attention of `queries` over the first `tokens` tokens.
  Matrix exact(const GroupQueries& queries, std::size_t tokens) const;
  /// The causal attention that each of the first `end` tokens receives from the queries of tokens
  /// [first, end), summed over queries and over the query heads of the group.
  std::vector<float> attention_sum(std::size_t first, std::size_t end) const;

 private:
  /// The first `tokens` tokens.
  Segment segment(std::size_t tokens) const;

  const KvSource& source_;
  std::size_t layer_;
  std::size_t kv_head_;
  Logits logits_;
  Matrix keys_;
  Matrix values_;
  std::shared_ptr<const RowMean> key_mean_, value_mean_;
};

/// ‖estimate − exact‖_F / ‖exact‖_F over the rows of each head of the group; 0 where both are 0.
std::vector<double> relative_errors(const Matrix& estimate, const Matrix& exact, std::size_t group);

}  // namespace ballast
