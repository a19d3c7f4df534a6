// How many entries a cache keeps, as one number for tables.
#pragma once

#include <cstddef>

#include "ballast/cache.h"

namespace ballast {

/// Entries kept per KV head (its layer's largest), mean over layers, rounded: a pyramid gives each
/// layer a number of its own, and the first one may keep everything.
inline std::size_t mean_entries(const Cache& cache) {
  const std::size_t layers = cache.shape().layers;
  std::size_t sum = 0;
  for (std::size_t l = 0; l < layers; ++l) sum += cache.entries(l);
  return layers == 0 ? 0 : (sum + layers / 2) / layers;
}

}  // namespace ballast
