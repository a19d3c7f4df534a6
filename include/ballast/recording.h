// Many methods compared on one reading of a text: what an exact cache records beside its tokens,
// and its forks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "ballast/matrix.h"
#include "ballast/method.h"

namespace ballast {

class Cache;
class Policy;

/// Attention statistics that an exact cache records beside its tokens, so that fork_of() works
/// for methods that use them. A saved cache does not hold them.
struct Recording {
  bool attention_sum = false;              ///< of every token, summed over all queries
  std::size_t queries = 0;                 ///< of this many last tokens
  ReplayScore replay = ReplayScore::none;  ///< of a replay pass: see Scoring::replay
  std::size_t replay_chunk = 256;          ///< tokens that it reads at once
  bool replay_own = false;                 ///< a chunk scores its own entries alone
  bool query_moments = false;              ///< mean and covariance of all queries
  /// Adds what forks with this policy need.
  void include(const Policy& policy);
  /// The same without a replay pass: see fork_of(cache, recording).
  void include_attention(const Policy& policy);
  bool any() const { return needs_queries() || replay != ReplayScore::none; }
  bool needs_queries() const { return attention_sum || queries > 0 || query_moments; }
};

/// A copy whose prompt another method will summarise. The cache must be exact, in prefill, its
/// prompt not finished; options().recording must cover what the policy uses. The fork is what it
/// would be had the prompt been read with that policy. Throws Error otherwise.
Cache fork_of(const Cache& cache, const Policy& policy, std::uint64_t seed);
/// An exact copy that notes something else from here on, above all another replay pass; of
/// attention, no more than this cache noted. Throws Error where the fork above does.
Cache fork_of(const Cache& cache, const Recording& recording);

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
