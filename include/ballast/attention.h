// Attention over weighted runs of cached entries.
//
//   z(q) = sum over numerator entries  w_i e^{s(k_i,q)} v_i
//        / sum over normaliser entries u_i e^{s(k_i,q)},      s(k,q) = <k,q> · scale
//
// Exact attention is one segment of weight 1. Everything a method keeps is a list of segments.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "ballast/storage.h"

namespace ballast {

/// Which of the two sums the entries of a segment enter.
enum class Role : std::uint8_t { both, numerator, normaliser };

/// A run of entries: n keys of dimension d and n values of dimension dv.
struct Segment {
  RowsView keys;
  RowsView values;  ///< ignored when role is normaliser
  /// ln w_i for each entry, or null when every weight is 1.
  const float* log_weights = nullptr;
  Role role = Role::both;
  /// Where the entries stand in the text. An entry is hidden from queries before it.
  /// positions[i] when given; else first_position + i when that is not negative; else unknown:
  /// every query sees every entry.
  const Position* positions = nullptr;
  Position first_position = -1;
};

/// How logits are formed.
struct Logits {
  /// Usually 1/sqrt(d). There is no default: attention with a scale that is not set is an Error.
  float scale = std::numeric_limits<float>::quiet_NaN();
  float softcap = 0.0f;         ///< c > 0: s becomes c·tanh(s/c) (Gemma 2); 0: none
  Position sliding_window = 0;  ///< W > 0: entries at or before position(q) - W are hidden; 0: none
};

/// m queries that share one KV head (tokens × query heads of the group), in any order.
struct Queries {
  ConstMatrix rows;                     ///< m × d, float32
  std::span<const Position> positions;  ///< m positions; empty: every entry is visible
  /// m slopes a ≥ 0 of ALiBi: the logit gains -a·(position(q) - position(k)). Empty: none. Entries
  /// of unknown position gain nothing.
  std::span<const float> alibi_slopes;
  /// m logits that enter the normaliser alone, each as one entry of weight 1 without a value: a
  /// model's attention sinks. Finite. Empty: none.
  std::span<const float> sink_logits = {};
};

/// Unnormalised attention of m queries over part of a cache; parts merge to the whole.
/// With M = max_logit[r], the largest logit with its log-weight in either sum:
/// numerator row r = e^{-M} Σ w e^s v, normaliser[r] = e^{-M} Σ u e^s, which is 0 only if it is
/// empty.
struct PartialAttention {
  Matrix numerator;               ///< m × dv
  std::vector<float> max_logit;   ///< m; -infinity where nothing was seen
  std::vector<float> normaliser;  ///< m

  PartialAttention() = default;
  PartialAttention(std::size_t queries, std::size_t value_dim);
  void reset();
  /// Adds what `other` saw (disjoint entries, same queries).
  void merge(const PartialAttention& other);
  /// What the numerator of query r is divided by: the normaliser, but at least the largest term of
  /// the numerator. Attention gives no entry more than all of itself; an estimate whose two sums
  /// have entries of their own would, where the normaliser lacks the entries that count. Where both
  /// sums have the same entries the normaliser is never less.
  float divisor(std::size_t r) const { return normaliser[r] < 1.0f ? 1.0f : normaliser[r]; }
  /// z = numerator / divisor into out (m × dv); zeros where nothing was seen.
  /// Throws Error if entries were seen but the normaliser is empty or not finite.
  void finish(MutableMatrix out) const;
};

/// Adds the segments and the sink logits to `partial`: of several calls with the same queries, one
/// is given these. Heads up to dimension 256; any number of entries from 0.
/// Single-threaded; safe to call concurrently on different partials.
/// Throws Error on mismatched dimensions.
void attend_partial(const Queries& queries, std::span<const Segment> segments, const Logits& logits,
                    PartialAttention& partial);

/// Attention of all queries over all segments. out: m × dv.
void attend(const Queries& queries, std::span<const Segment> segments, const Logits& logits,
            MutableMatrix out);

/// What the attention that several queries give an entry is reduced to.
enum class AttentionReduction : std::uint8_t { sum, maximum, sum_of_squares };

/// The same, and a score for each entry. Query r gives entry e the attention
///   p_re = u_e e^{s(k_e, q_r)} / normaliser(q_r)
/// where the normaliser is what divisor() says; entries of numerator-only segments receive none.
/// With w = query_weights (m finite numbers from 0; empty: 1):
///   sum:             scores[e] += Σ_r w_r p_re
///   maximum:         scores[e] = max(scores[e], max_r w_r p_re)
///   sum_of_squares:  scores[e] += Σ_r (w_r p_re)²
/// e counts entries through the segments in order. Keeps weights: up to 16 MiB.
void attend_with_scores(const Queries& queries, std::span<const Segment> segments,
                        const Logits& logits, MutableMatrix out, AttentionReduction reduction,
                        std::span<const float> query_weights, std::span<float> scores);

/// attend_with_scores() with AttentionReduction::sum and weights of 1: the attention sum.
void attend_with_attention_sum(const Queries& queries, std::span<const Segment> segments,
                               const Logits& logits, MutableMatrix out,
                               std::span<float> attention_sum);

}  // namespace ballast
