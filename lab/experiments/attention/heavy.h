// Where attention goes: how sparse it is, and how much of it a few tokens get (H2O, section 3).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "experiments/data/kv_source.h"

namespace ballast {

/// Of one layer.
struct HeavyStats {
  /// Entries of the causal attention matrix that are below this fraction of their row's largest
  /// count as zero.
  static constexpr double kThreshold = 0.01;
  /// Accumulated attention takes time that grows with the square of the tokens.
  static constexpr std::size_t kMostTokens = 131072;
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
  /// The accumulated attention of every token, as a fraction of all of it; mean over KV heads.
  std::vector<double> of_token;
  /// Mean over KV heads of kept_attention().
  double local = 0, h2o = 0, global = 0;
};

/// Of the exact attention of a query, the share that is on the tokens kept when it comes and on
/// itself; mean over the queries from number `keep` on. 1 where there are none.
struct KeptAttention {
  double local = 0;   ///< the last `keep` tokens
  double h2o = 0;     ///< Algorithm 1: half recent, half by the sums that the cache in force gives
  double global = 0;  ///< the same with sums of exact attention over all queries, later ones too
};

/// `rows`: causal attention, row t over tokens 0 to t, of sum 1.
KeptAttention kept_attention(std::span<const std::vector<double>> rows, std::size_t keep);

/// Times that a word stands within `window` tokens of another word, and its accumulated attention.
struct WordHeaviness {
  std::size_t words = 0;   ///< different ones
  double slope = 0;        ///< of ln(attention) over ln(rank), ranks doubling
  double correlation = 0;  ///< Spearman's, of attention and co-occurrences over the words
  /// The same with the words' frequency taken out, which both grow with: the partial correlation.
  double partial_correlation = 0;
};

/// `words`: of each token; `attention`: that it got.
WordHeaviness word_heaviness(std::span<const std::int32_t> words, std::span<const double> attention,
                             std::size_t window = 10);

/// Sparsity from `queries` rows of each query head, evenly spaced over the text; kept attention of
/// its first 1,024 tokens with `kept` of them. Throws Error where there are over kMostTokens. The
/// result does not depend on the number of threads.
HeavyStats measure_heavy(const KvSource& source, std::size_t layer,
                         std::span<const std::size_t> kv_heads, std::size_t queries,
                         const Advance& advance = {}, double kept = 0.2);

}  // namespace ballast
