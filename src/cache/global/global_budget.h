// One budget in bytes for all layers and heads, divided by scores: at the end of a prompt, or in
// stream after every chunk.
#pragma once

#include <cstddef>
#include <span>

#include "ballast/cache.h"
#include "ballast/serialize.h"
#include "methods/allocation.h"

namespace ballast {

struct CacheParts;

/// How a cache spends its budget where the method has MethodInfo::global_budget. The scores are
/// those of the cache's Scoring.
class GlobalBudget {
 public:
  /// Throws Error on options and keys that exclude each other. The layers come later.
  explicit GlobalBudget(CacheParts& cache);

  /// Whether the text is divided chunk by chunk: see Scoring::chunk_room.
  bool streams() const;
  /// Tokens of a chunk.
  std::size_t chunk() const;
  /// Tokens that a stream holds exactly before it is compressed: what the budget holds, in chunks,
  /// and a chunk at least.
  std::size_t exact_limit() const { return exact_limit_; }
  /// reach= of a stream whose budget is divided after so many tokens: those behind the first ones
  /// that the next chunk cannot look back to.
  Position out_of_reach(std::size_t tokens) const;

  /// bytes= for the tokens read; in stream for those expected.
  std::size_t bytes() const;
  /// Whether the exact cache is within it.
  bool fits_exactly() const;

  /// Divides `bytes` among all entries, those held and the chunk's: see Scoring::end_chunk.
  void end_chunk(std::size_t bytes);
  /// Ends the prompt of all layers.
  void finish_prompt();

  /// The scores, which a cache that goes on needs.
  void save(ByteWriter& out) const;
  /// Behind the layers. Throws Error.
  void load(ByteReader& in);

 private:
  Allocation divide(std::span<ScoredRun> runs, std::span<const std::size_t> first_run,
                    std::span<const Tier> tiers, std::size_t bytes) const;
  /// Entries of a head whose scores a saved cache has: those held, and with given scores the chunk.
  std::size_t saved_scores(std::size_t layer, std::size_t head) const;

  CacheParts& cache_;
  std::size_t exact_limit_ = 0;
};

}  // namespace ballast
