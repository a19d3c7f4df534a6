// The mean number of entries of a cache, for tables.
#pragma once

#include <cstddef>

#include "ballast/cache.h"
#include "methods/adaptive.h"

namespace ballast {

/// Entries per KV head of a layer: of the largest head, or the mean, rounded up, where the heads
/// divide a budget.
inline std::size_t layer_entries(const Cache& cache, std::size_t layer) {
  if (!has_adaptive_heads(cache.options().policy)) return cache.entries(layer);
  const std::size_t heads = cache.shape().kv_heads;
  std::size_t sum = 0;
  for (std::size_t h = 0; h < heads; ++h) sum += cache.kept(layer, h).size();
  return (sum + heads - 1) / heads;
}

/// The mean over layers, rounded. Layers may have different budgets.
inline std::size_t mean_entries(const Cache& cache) {
  const std::size_t layers = cache.shape().layers;
  std::size_t sum = 0;
  for (std::size_t l = 0; l < layers; ++l) sum += layer_entries(cache, l);
  return layers == 0 ? 0 : (sum + layers / 2) / layers;
}

}  // namespace ballast
