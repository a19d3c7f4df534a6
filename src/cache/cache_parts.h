// The layers of a cache, for the files of this folder.
#pragma once

#include "ballast/cache.h"
#include "cache/head_elements.h"
#include "cache/layer_cache.h"

namespace ballast {

/// Throws Error that names what is wrong with a shape.
void check_shape(const CacheShape& shape);

struct CacheParts {
  /// Throws Error if there is no such layer or head.
  static const LayerCache& layer(const Cache& cache, std::size_t layer, std::size_t kv_head);
  /// Those of a second reading; makes empty ones where there are none.
  static ReplayScores& scores(Cache& cache);
};

}  // namespace ballast
