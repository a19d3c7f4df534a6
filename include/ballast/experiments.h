// What only experiments need from a cache: comparing methods on one reading of a text.
#pragma once

#include <cstddef>
#include <limits>
#include <span>

#include "ballast/matrix.h"
#include "ballast/method.h"

namespace ballast {

class Cache;
class Policy;

/// Attention statistics that an exact cache records beside its tokens, so that Cache::fork works
/// for methods that use them. A saved cache does not hold them.
struct Recording {
  bool attention_sum = false;              ///< of every token, summed over all queries
  std::size_t queries = 0;                 ///< of this many last tokens
  ReplayScore replay = ReplayScore::none;  ///< of a replay pass: see Scoring::replay
  std::size_t replay_chunk = 256;          ///< tokens that it reads at once
  bool replay_own = false;                 ///< a chunk scores its own entries alone
  bool replay_queries = false;             ///< some of its queries are noted, for refit=values
  bool query_moments = false;              ///< mean and covariance of all queries
  /// Adds what forks with this policy need.
  void include(const Policy& policy);
  /// The same without a replay pass: see Cache::fork(const Recording&).
  void include_attention(const Policy& policy);
  bool any() const { return needs_queries() || replay != ReplayScore::none; }
  bool needs_queries() const { return attention_sum || queries > 0 || query_moments; }
};

/// Gives a cache the scores of a replay pass that was made elsewhere, of one KV head: a number
/// from 0 for each of its tokens. All heads and layers have scores before the prompt ends. Throws
/// Error if the method has no use for them, or it is another number of tokens.
void set_replay_scores(Cache& cache, std::size_t layer, std::size_t kv_head,
                       std::span<const float> scores);

/// What `cache` answers to the last queries that `recorded` holds, for one KV head.
/// Rows are (token, query head) pairs: queries_per_kv_head rows a token, value_dim columns.
/// Throws Error unless both caches have seen the same number of tokens and have the same shape.
Matrix answer_latest(const Cache& cache, const Cache& recorded, std::size_t layer,
                     std::size_t kv_head);

/// The attention weights that the last recorded queries give the entries of Cache::segments(), for
/// one KV head. A row a query, at most `most` of them, evenly spaced, an entry a column; no rows if
/// the cache records no queries.
Matrix latest_attention(const Cache& cache, std::size_t layer, std::size_t kv_head,
                        std::size_t most = std::numeric_limits<std::size_t>::max());

}  // namespace ballast
