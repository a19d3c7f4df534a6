// What queries, keys and values are like: lengths, clusters, where attention goes.
#pragma once

#include <array>
#include <vector>

#include "ballast/cache.h"
#include "eval/data/kv_source.h"
#include "eval/single_layer/norms.h"

namespace ballast {

/// Of one layer, over all its heads and tokens.
struct KvLayerStats {
  Moments query_norm;
  Moments key_norm;
  Moments shifted_norm;  ///< of keys less their mean in the head
  Moments value_norm;

  /// Greedy k-centre over up to 2048 keys of a head, evenly spaced: with k centres, the largest
  /// distance of a key to its centre, over the mean shifted norm; mean over heads. Small at few
  /// centres means that keys come in few clusters.
  static constexpr std::array<std::size_t, 4> kCentres = {1, 16, 64, 256};
  std::array<double, 4> radius{};

  /// Softmax weights of some queries, means over them; see measure_layer().
  double queries = 0;    ///< how many; 0: the rest says nothing
  double first4 = 0;     ///< share of the first 4 tokens
  double last256 = 0;    ///< share of the last 256 tokens that the query could see
  double top1 = 0;       ///< share of the hundredth of tokens with the most
  double largest = 0;    ///< share of the token with the most
  double effective = 0;  ///< e^entropy, geometric mean: as many tokens share equally
};

/// Attention (causal, scale 1/sqrt(d)) is that of 32 queries of each query head, evenly spaced over
/// the second half of the text.
KvLayerStats measure_layer(const KvSource& source, std::size_t layer, const Advance& advance = {});
/// Of the entries that a cache holds. Queries are the last ones, where its method notes them;
/// tokens that are not held get no attention.
KvLayerStats measure_layer(const Cache& cache, std::size_t layer);

}  // namespace ballast
