// The mean number of entries of a cache, for tables.
#pragma once

#include <cstddef>

#include "ballast/cache.h"

namespace ballast {

/// Entries per KV head (the layer's largest), mean over layers, rounded. Layers may have different
/// budgets.
inline std::size_t mean_entries(const Cache& cache) {
  const std::size_t layers = cache.shape().layers;
  std::size_t sum = 0;
  for (std::size_t l = 0; l < layers; ++l) sum += cache.entries(l);
  return layers == 0 ? 0 : (sum + layers / 2) / layers;
}

}  // namespace ballast
