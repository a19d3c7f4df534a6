// One layer's heads, and when tokens move through their caches.
#pragma once

#include <atomic>
#include <cstddef>
#include <optional>
#include <vector>

#include "cache/head_cache.h"
#include "cache/layer_attention.h"

namespace ballast {

class GlobalBudget;
class HeadObserved;
class JoinedDocuments;
class RotaryTable;

/// Whether attention asks where entries stand: with ALiBi, or a sliding window in any layer.
bool asks_positions(const CacheShape& shape);

/// A layer's cache passes through up to three states: `whole` (everything is exact, in the
/// window), then, once the prompt has ended or the budget is reached, either `growing` (the window
/// takes every generated token) or `sliding` (the window is a ring, its oldest tokens leave for
/// the summary `step` at a time).
class LayerCache {
 public:
  /// `rotations`: null when positions are absolute. `reserve`: allocate at once what the options
  /// let expect. `counted`: the policy with bytes= in entries; null: not known before the prompt
  /// ends, or the cache is to become a copy of another.
  /// `global`: what divides the method's budget among all layers; null: each head has its own.
  LayerCache(const CacheShape& shape, const CacheOptions& options, const Policy* counted,
             std::size_t layer, SharedState* shared, RotaryTable* rotations,
             const GlobalBudget* global, bool reserve);

  /// See Cache::forward; shapes are known to fit and elements to be finite.
  void forward(const HeadsView& keys, const HeadsView& values, const HeadsView& queries,
               const MutableHeadsView& out);
  /// `counted`: the policy with bytes= in entries.
  void finish_prompt(const Policy& counted);
  /// Ends the prompt; every entry becomes what `tiers` say, a head each. Empty: all stay exact.
  /// `means`: those of each head that stand for what is evicted.
  void finish_prompt(std::span<const std::vector<std::uint8_t>> tiers,
                     std::span<const std::size_t> means);
  /// Tokens of the chunk that end_chunk() waits for, and those that it may still take.
  std::size_t chunk_tokens() const { return heads_[0].window.size(); }
  std::size_t chunk_room() const;
  /// Every entry, of the summary and of the chunk, becomes what `tiers` say, a head each.
  void end_chunk(std::span<const std::vector<std::uint8_t>> tiers);
  /// Takes the tokens of an exact layer into this empty one. Throws Error if the other's prompt is
  /// finished, or if it did not record the attention that this one's method uses.
  void copy_prompt(const LayerCache& other);

  /// Becomes a copy of `other`, of another sequence with the same shape and options.
  void copy(const LayerCache& other);
  /// The tokens of this empty, exact layer follow those documents, which must outlive it.
  void join(const JoinedDocuments& documents);

  void reserve(std::size_t tokens);
  void drop_room();
  /// Throws Error if truncate() is impossible.
  void check_truncate(std::size_t tokens) const;
  /// Forgets all but the first `tokens` tokens.
  void truncate(std::size_t tokens);

  /// Another thread may read these two while this layer works.
  std::size_t tokens() const { return tokens_.load(std::memory_order_relaxed); }
  /// Tokens of the prompt once it is finished, else (and in a loaded cache) 0.
  std::size_t prompt_tokens() const { return prompt_tokens_.load(std::memory_order_relaxed); }
  std::size_t entries() const;  ///< of the head that has most
  const Budget& budget() const { return budget_; }
  CacheBytes bytes() const;
  /// Adds the memory that copies may share.
  void list(std::vector<HeldMemory>& out) const;
  std::vector<Segment> segments(std::size_t head) const;
  std::vector<KeptEntry> kept(std::size_t head) const;
  const HeadCache& head(std::size_t i) const { return heads_[i]; }
  const CacheShape& shape() const { return shape_; }
  const CacheOptions& options() const { return options_; }
  const LayerAttention& attention() const { return attention_; }

  bool prompt_ended() const { return prompt_ended_; }
  void save(ByteWriter& out) const;
  /// `room`: bytes that may still be allocated. check_invariants() follows once all layers are
  /// loaded. Throws Error.
  void load(ByteReader& in, std::size_t& room);

 private:
  friend struct Invariants;
  enum class State : std::uint8_t { whole, growing, sliding };

  Position now() const { return static_cast<Position>(tokens()); }
  bool accumulates() const { return needs_.attention_sums || options_.recording.attention_sum; }
  bool watches_moments() const { return needs_.query_moments || options_.recording.query_moments; }
  bool works_in_chunks() const;
  /// Tokens after which rows as read are rounded to types of few bits, unless they leave before.
  std::size_t encode_at() const {
    return kFirstTokens + (prompt_ended_ ? kLeastMean : kMeanTokens);
  }
  /// Whether that waits for the end of the prompt: a replay pass scores rows as read.
  bool reads_first() const;
  /// Rounds them, if they are as read.
  void encode();
  /// Tokens that may come in before something must leave.
  std::size_t room() const;
  /// Rows that a window gets at once for the tokens expected later: what a file says of them is not
  /// worth more memory than what has come.
  std::size_t later_room() const;
  void make_room();
  /// Sets skipped(), which changes when the budget is divided.
  void skip();
  /// Whether answering `tokens` tokens is work enough for several threads.
  bool parallel(std::size_t tokens) const;
  void summarize();
  /// Entries of each head's summary: equal, or divided by scores (heads=adaptive).
  std::vector<std::size_t> capacities(std::span<const HeadObserved> observed) const;
  bool adapts() const;
  /// Every head's attention sums become the sum over heads.
  static void add_up(std::vector<std::vector<float>>& attention_sums);
  /// Appends tokens for which there is room, and computes their attention.
  void extend(const HeadsView& keys, const HeadsView& values, const HeadsView& queries,
              const MutableHeadsView& out);
  std::size_t entries(std::size_t h) const;
  std::size_t all_entries() const;
  /// Parts into which a token's query heads of one KV head are divided, so that all threads work
  /// where few heads have most entries.
  std::size_t parts_of_heads(std::size_t tokens) const;
  void load_head(HeadCache& head, ByteReader& in, std::size_t& room);

  const CacheShape& shape_;
  const CacheOptions& options_;
  std::size_t layer_;
  Needs needs_;
  const GlobalBudget* global_;
  LayerAttention attention_;
  /// A prompt that ends with fewer tokens for a mean waits for these.
  static constexpr std::size_t kLeastMean = 16;

  State state_ = State::whole;
  bool as_read_ = false;     ///< rows wait for their mean; only while whole
  std::size_t rounded_ = 0;  ///< tokens that the mean is of, and those before; 0: none is needed
  std::size_t rows_ = 0;     ///< that the window has room for at once
  bool prompt_ended_ = false;
  bool loaded_ = false;  ///< from a file, or copied from such a cache
  std::atomic<std::size_t> tokens_ = 0;
  std::atomic<std::size_t> prompt_tokens_ = 0;
  Budget budget_;
  std::vector<HeadCache> heads_;
};

}  // namespace ballast
