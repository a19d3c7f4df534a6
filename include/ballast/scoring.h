// Scores of a cache's entries, for methods that choose by them: given with the tokens as they are
// read, or found by a replay pass of the text. One budget for the whole cache is divided by
// them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "ballast/matrix.h"

namespace ballast {

class Cache;
class Policy;
struct CacheParts;
class ReplayScores;

/// The scores of one cache, for methods that choose by them, and the budget divided by these.
/// Errors leave it as it was.
class Scoring {
 public:
  explicit Scoring(CacheParts& cache);
  ~Scoring();
  Scoring(const Scoring&) = delete;
  Scoring& operator=(const Scoring&) = delete;

  /// Scores of the entries of one KV head, in the order of Cache::segments(); empty: there are
  /// none. In stream, norms are the largest of the query heads' |W_O^T v|.
  std::span<const float> scores(std::size_t layer, std::size_t kv_head) const;

  /// Whether the tokens that forward() takes come with scores: the method has ReplayScore::given,
  /// and may still choose among them.
  bool takes_scores() const;
  /// Scores of the tokens that forward() has just taken in this layer, tokens × kv_heads, from 0:
  /// how much answers would lose without each entry. Throws Error if the method takes none, on
  /// another number of tokens, and if a score is negative or not finite.
  void note_scores(std::size_t layer, ConstMatrix scores);

  /// Whether a replay pass is due before the prompt ends: the method or the recording asks for
  /// one, it has not been, and the method's budget does not hold the exact cache.
  bool needs_replay() const;
  /// What a replay pass is scored with, for methods whose Needs ask for one or for
  /// recording.replay. After the last token of the text, before replay(), once for each layer.
  /// `output_grams`: for each of the kv_heads·queries_per_kv_head query heads W_O W_O^T of its part
  /// of the output projection, value_dim × value_dim, one below the other; no rows: the identity.
  /// Scores take |W_O^T v| of every entry from it (KVzip+, arXiv:2601.07891).
  void start_replay(std::size_t layer, ConstMatrix output_grams);
  /// Replay pass: m tokens that see everything read, and each other causally, as if they
  /// followed the text. Nothing of them is kept; every entry's score grows by what they look at.
  /// With Needs::replay_own calls come chunk by chunk, from the start of what was read
  /// last: the end of a call is the next chunk= tokens, whose entries alone are scored.
  /// keys, values, queries, out: as for Cache::forward(). query_weights: 1/|x| of each token's
  /// residual stream where it enters the layer, from 0; empty: 1.
  void replay(std::size_t layer, ConstMatrix keys, ConstMatrix values, ConstMatrix queries,
              std::span<const float> query_weights, MutableMatrix out);
  /// A question that is known before the prompt ends, for methods whose Needs want it.
  /// After the replay pass, and like it: nothing is kept. An entry counts for what its
  /// neighbours get, three on each side (as SnapKV pools), where that is more than its score.
  void replay_question(std::size_t layer, ConstMatrix keys, ConstMatrix values, ConstMatrix queries,
                       std::span<const float> query_weights, MutableMatrix out);
  /// The scores of a replay pass that was made elsewhere, of one KV head: a number from 0 for each
  /// of its tokens. All heads and layers have scores before the prompt ends. Throws Error if the
  /// method has no use for them, or it is another number of tokens.
  void set_scores(std::size_t layer, std::size_t kv_head, std::span<const float> scores);
  /// Discards the scores of a replay pass that was not completed.
  void discard_replay();

  /// Methods with one budget for the whole cache, in stream: a chunk is read, scored
  /// (start_replay(), replay(), or note_scores() as it is read) and divides the budget anew
  /// (end_chunk()). While the exact cache of all that was read is within the budget, the chunk is
  /// all of it. Tokens that forward() takes before the chunk must end; unlimited for other caches.
  std::size_t chunk_room() const;
  /// Tokens of the chunk: the last of those read.
  std::size_t chunk_tokens() const;
  /// Divides the budget among all entries, held ones and the chunk's. Held ones only move to tiers
  /// of fewer bytes, or leave. Throws Error if the chunk was not read again or the budget does not
  /// hold what no head drops.
  void end_chunk();
  /// The same with `bytes` in place of the method's, at any time once a token has been read; an
  /// empty chunk needs no scores. Later chunks divide the method's own budget again: what was
  /// evicted or rounded stays so.
  void compact(std::size_t bytes);

 private:
  friend class Cache;
  friend class GlobalBudget;
  friend Cache fork_of(const Cache& cache, const Policy& policy, std::uint64_t seed);

  /// Takes the scores of the cache that this one is a copy of. Those that come with the tokens go
  /// on growing, others are shared.
  void copy(const Scoring& other);
  /// Forgets scores of tokens that the cache has forgotten.
  void truncate();
  std::size_t bytes() const;

  /// Whether scores come with the tokens.
  bool gives_scores() const;
  /// Whether the cache works chunk by chunk.
  bool streams() const;
  void check_replay(std::size_t layer, ConstMatrix keys, ConstMatrix values, ConstMatrix queries,
                    std::span<const float> query_weights, MutableMatrix out) const;

  CacheParts& cache_;
  std::shared_ptr<ReplayScores> scores_;  ///< forks share them; null: there are none
};

/// Of this cache, as long as it lives.
Scoring& scoring_of(Cache& cache);
const Scoring& scoring_of(const Cache& cache);

}  // namespace ballast
