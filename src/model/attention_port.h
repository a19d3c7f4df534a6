// What the queries of a layer attend to: the door through which the forward pass knows caches.
#pragma once

#include <cstddef>

#include "ballast/matrix.h"

namespace ballast {

/// One layer's attention for the tokens of a pass: a row a token, heads side by side, keys and
/// queries with the model's norms and rotations.
struct AttentionRows {
  std::size_t layer = 0;  ///< of the cache: counted among those that attend
  ConstMatrix residual;   ///< tokens × width: the residual stream where it enters the layer
  ConstMatrix inputs;     ///< tokens × width: the same after the layer's norm
  ConstMatrix keys;       ///< tokens × (KV heads · key dimension)
  ConstMatrix values;     ///< tokens × (KV heads · value dimension)
  ConstMatrix queries;    ///< × (heads · key dimension), of the last tokens, maybe not of all
  MutableMatrix outputs;  ///< × (heads · value dimension), a row a query
};

/// Given to each pass. Implementations: CacheBatch, WatchedAttention, and those of replay passes
/// and of documents that are reread.
class Attention {
 public:
  virtual ~Attention() = default;

  /// Whether the queries of all tokens are wanted, even of those whose output nobody reads.
  virtual bool wants_all_queries() const { return false; }
  /// Takes in keys and values, answers the queries. Layers come in order. Throws Error.
  virtual void run(const AttentionRows& rows) = 0;
};

}  // namespace ballast
