// Statistics of queries, keys and values: norms, clusters, the distribution of attention.
#pragma once

#include <array>
#include <vector>

#include "ballast/cache.h"
#include "experiments/attention/norms.h"
#include "experiments/data/kv_source.h"

namespace ballast {

/// Statistics of one layer over all its heads and tokens.
struct KvLayerStats {
  Moments query_norm;
  Moments key_norm;
  Moments shifted_norm;  ///< of keys less their mean in the head
  Moments value_norm;
  /// The mean of a head's keys before rotary positions, over heads, and keys less that mean turned
  /// to where they stand: what types of few bits store (RowMean). 0 where no mean is known.
  Moments mean_norm;
  Moments turned_norm;

  /// Greedy k-centre over up to 2048 keys of a head, evenly spaced: with k centres, the largest
  /// distance of a key to its centre, over the mean shifted norm; mean over heads. Small at few
  /// centres means that keys come in few clusters.
  static constexpr std::array<std::size_t, 4> kCentres = {1, 16, 64, 256};
  std::array<double, 4> radius{};

  /// Softmax weights, means over sampled queries; see measure_layer().
  double queries = 0;    ///< sampled queries; 0: the fields below are unset
  double first4 = 0;     ///< fraction on the first 4 tokens
  double last256 = 0;    ///< fraction on the last 256 tokens visible to the query
  double top1 = 0;       ///< fraction on the 1% of tokens with the most
  double largest = 0;    ///< fraction on the token with the most
  double effective = 0;  ///< e^entropy, geometric mean: the effective number of tokens
};

/// Samples the causal attention (scale 1/sqrt(d)) of 32 queries a query head, evenly spaced over
/// the second half of the text.
KvLayerStats measure_layer(const KvSource& source, std::size_t layer, const Advance& advance = {});
/// Statistics of the entries of a cache. The queries are the last ones, if the method records them;
/// evicted tokens get no attention.
KvLayerStats measure_layer(const Cache& cache, std::size_t layer);

}  // namespace ballast
