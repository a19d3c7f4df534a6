// Where attention goes: how sparse it is, and how much of it a few tokens get (H2O, section 3).
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "eval/data/kv_source.h"

namespace ballast {

/// Of one layer.
struct HeavyStats {
  /// Entries of the causal attention matrix that are below this fraction of their row's largest
  /// count as zero.
  static constexpr double kThreshold = 0.01;
  static constexpr std::array<double, 4> kParts = {0.01, 0.05, 0.1, 0.2};

  double sparsity = 0;            ///< fraction of the entries that count as zero
  double sparsity_deviation = 0;  ///< over query heads
  /// Fraction of all attention, accumulated over every query, on the kParts of tokens with the
  /// most; mean over KV heads.
  std::array<double, 4> top{};
  /// Accumulated attention of the token of rank ranks[i] (from 1), as a fraction of all of it; mean
  /// over KV heads. Ranks double.
  std::vector<std::size_t> ranks;
  std::vector<double> scores;
  /// The fit of ln(score) over ln(rank): a straight line is a power law.
  double slope = 0;
};

/// Sparsity from `queries` rows of each query head, evenly spaced over the text. The result does
/// not depend on the number of threads.
HeavyStats measure_heavy(const KvSource& source, std::size_t layer,
                         std::span<const std::size_t> kv_heads, std::size_t queries,
                         const Advance& advance = {});

}  // namespace ballast
