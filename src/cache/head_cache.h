// The cache of one KV head: where its rows are. LayerCache decides when they move.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "ballast/cache.h"
#include "ballast/summary.h"
#include "base/own_pages.h"
#include "summary/query_moments.h"

namespace ballast {

struct ReplayQueries;

/// Rows of the tokens in the window, oldest first from slot begin; a ring once its capacity is
/// fixed.
class Window {
 public:
  Window() = default;
  /// `attention_sums`: each token has an accumulated attention sum too.
  Window(const SummarySetup& setup, std::size_t capacity, bool attention_sums);

  std::size_t size() const { return size_; }
  std::size_t capacity() const { return keys_.capacity(); }
  std::size_t bytes() const { return keys_.bytes() + values_.bytes(); }
  /// Of the rows that are not taken yet.
  std::size_t room_bytes() const {
    const std::size_t sum = has_attention_sums_ ? sizeof(float) : 0;
    return capacity() == 0 ? 0 : (bytes() / capacity() + sum) * (capacity() - size_);
  }
  std::size_t attention_sum_bytes() const { return attention_sum_.capacity() * sizeof(float); }

  /// Room for `count` more; only while the oldest row is in slot 0.
  void reserve(std::size_t count);
  /// The same, with spare room up to a capacity of `most`.
  void reserve(std::size_t count, std::size_t most);
  /// The same, without spare room.
  void reserve_exactly(std::size_t count);
  /// There must be room.
  void push(std::span<const float> key, std::span<const float> value);
  void push(const Window& other, std::size_t i);
  void drop_oldest(std::size_t count);
  void drop_newest(std::size_t count) { size_ -= count; }

  /// The `count` tokens from the i-th oldest on, in the one or two runs in which they lie.
  /// `now`: tokens seen so far, the window's included.
  std::vector<Block> blocks(std::size_t i, std::size_t count, Position now) const;
  /// The first of these runs.
  Block run(std::size_t i, std::size_t count, Position now) const;
  /// Adds to the attention sum of the tokens, oldest first.
  void add_attention_sum(std::span<const float> attention_sum);
  /// The attention sums, oldest token first; only while it is in slot 0.
  std::span<float> attention_sums() {
    return {attention_sum_.data(), has_attention_sums_ ? size_ : 0};
  }

  /// Becomes a copy of `other`; one that is not a ring gets no more room than it needs.
  void copy(const SummarySetup& setup, const Window& other, bool ring);
  /// `attention_sums`: they are written too, if there are any. `ring`: as for copy(); the spare
  /// room of another window is not written.
  void save(ByteWriter& out, bool attention_sums, bool ring) const;
  /// Restores what save() wrote; a window that is not a ring gets no more room than it needs.
  /// Returns its capacity, at most `most`.
  std::size_t load(const SummarySetup& setup, bool attention_sums, bool ring, std::size_t most,
                   ByteReader& in);

 private:
  Rows keys_;
  Rows values_;
  std::vector<float> attention_sum_;
  bool has_attention_sums_ = false;
  std::size_t begin_ = 0;
  std::size_t size_ = 0;
};

/// The last queries that a layer remembers of a KV head, for methods that want them; else empty.
struct AskedQueries {
  ConstMatrix rows;
  std::span<const Position> positions;  ///< of each row
};

/// sink | summary | window.
struct HeadCache {
  SummarySetup setup;  ///< capacity, tokens and sink are known once the middle is summarised
  Rows sink_keys;
  Rows sink_values;
  std::size_t sink = 0;  ///< rows held there
  std::unique_ptr<Summary> summary;
  Window window;
  /// Queries of the last `observed` tokens, queries_per_kv_head rows a token. Token t is in slot
  /// t mod observed.
  Matrix recent_queries;
  QueryMoments query_moments;  ///< of no query heads unless they are watched
  /// Entries held.
  std::size_t entries() const;
  CacheBytes bytes() const;
  /// Methods in tiers: of the summary's entries, in the order of its segments.
  VectorInOwnPages<Position> summary_positions() const;
  /// Appends sink, summary and window; `now`: tokens seen.
  void segments(Position now, std::vector<Segment>& out) const;
  /// What the method would choose by among the tokens between sink and window, which holds
  /// everything: see Summary::scores. `latest`: as for summarize().
  std::vector<float> scores(const Budget& budget, Position now,
                            std::span<const float> latest) const;
  /// Splits the window, which holds everything, into sink, summary and a window of the last
  /// budget.window tokens with room for `room` rows. `latest`: every entry's attention sum of the
  /// last queries, or empty.
  void summarize(const Budget& budget, std::size_t room, Position now,
                 std::span<const float> latest, const AskedQueries& asked);
  /// Hands the window, which holds everything, to the summary with the tier of every token and the
  /// entries that may stand for those evicted. `queries`: values are fitted to them; null: they
  /// stay. A window with room for `room` rows remains.
  void summarize(std::span<const std::uint8_t> tiers, std::size_t sample,
                 const ReplayQueries* queries, std::size_t room, Position now);
  /// Hands the window to the summary, with the tier of every entry held there and of every token.
  void end_chunk(std::span<const std::uint8_t> tiers, Position now);
  /// The oldest `count` tokens leave the window.
  void absorb_oldest(std::size_t count, Position now, std::span<const float> latest,
                     const AskedQueries& asked);
  std::vector<KeptEntry> kept(Position now) const;
  /// Becomes a copy of `other`, of another sequence with the same options. `ring`: of its window.
  void copy(const HeadCache& other, bool ring);
};

}  // namespace ballast
