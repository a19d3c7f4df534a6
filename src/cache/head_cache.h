// The cache of one KV head: where its rows are. LayerCache decides when they move.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "ballast/cache.h"
#include "ballast/summary.h"
#include "base/own_pages.h"
#include "cache/query_memory.h"
#include "cache/window_rows.h"
#include "storage/low_bits.h"

namespace ballast {

struct Tier;

/// Rows of the tokens in the window, oldest first from slot begin; a ring once its capacity is
/// fixed.
class Window {
 public:
  Window() = default;
  /// `attention_sums`: each token has an accumulated attention sum too. `as_read`: rows are not yet
  /// rounded to types of few bits (as_read() of a type).
  Window(const SummarySetup& setup, std::size_t capacity, bool attention_sums,
         bool as_read = false);

  std::size_t size() const { return size_; }
  std::size_t capacity() const { return rows_.capacity(); }
  std::size_t bytes() const { return rows_.bytes(); }
  /// Of rows that are not taken yet, or that only copies have.
  std::size_t room_bytes() const {
    if (capacity() == 0) return 0;
    const std::size_t sums = has_attention_sums_ ? sizeof(float) * (capacity() - size_) : 0;
    return bytes() - size_ * rows_.row_bytes() + sums;
  }
  /// Adds the memory of its rows.
  void list(std::vector<HeldMemory>& out) const { rows_.list(out); }
  std::size_t attention_sum_bytes() const { return attention_sum_.capacity() * sizeof(float); }

  /// Room for `count` more; only while the oldest row is in slot 0.
  void reserve(std::size_t count);
  /// The same, with spare room up to a capacity of `most`.
  void reserve(std::size_t count, std::size_t most);
  /// The same, without spare room.
  void reserve_exactly(std::size_t count);
  /// Without any room; not of a ring.
  void drop_room();
  /// There must be room. `position`: of the token.
  void push(std::span<const float> key, std::span<const float> value, Position position);
  /// Token i of a window that holds the tokens before `now`.
  void push(const Window& other, std::size_t i, Position now);
  void drop_oldest(std::size_t count);
  void drop_newest(std::size_t count);

  /// The `count` tokens from the i-th oldest on, in the one or two runs in which they lie.
  /// `now`: tokens seen so far, the window's included.
  std::vector<Block> blocks(std::size_t i, std::size_t count, Position now) const;
  /// The first of these runs.
  Block run(std::size_t i, std::size_t count, Position now) const;
  /// Adds to the attention sum of the tokens, oldest first.
  void add_attention_sum(std::span<const float> attention_sum);
  /// The attention sums, oldest token first, only while it is in slot 0: of the first tokens, held
  /// apart (leave_first()), then of the window.
  std::span<float> attention_sums() {
    return {attention_sum_.data(), has_attention_sums_ ? lead_ + size_ : 0};
  }
  void forget_attention_sums();
  /// Rounds rows as read to the setup's types. The oldest `count` tokens leave, but for their
  /// attention sums.
  void encode(const SummarySetup& setup, std::size_t count, std::size_t capacity, Position now);

  /// Becomes a copy of `other`; one that is not a ring gets no more room than it needs. `shares`:
  /// rows are shared, which wants a window that no summary takes its rows from.
  void copy(const SummarySetup& setup, const Window& other, bool ring, bool as_read,
            bool shares = false);
  /// `attention_sums`: they are written too, if there are any. `ring`: as for copy(); the spare
  /// room of another window is not written.
  void save(ByteWriter& out, bool attention_sums, bool ring) const;
  /// Restores what save() wrote; a window that is not a ring gets no more room than it needs.
  /// Returns its capacity, at most `most`.
  std::size_t load(const SummarySetup& setup, bool attention_sums, bool ring, bool as_read,
                   std::size_t lead, std::size_t most, ByteReader& in);

 private:
  WindowRows rows_;
  std::vector<float> attention_sum_;
  bool has_attention_sums_ = false;
  std::size_t lead_ = 0;  ///< sums of tokens before the window, first in attention_sum_
  std::size_t begin_ = 0;
  std::size_t size_ = 0;
};

/// first | sink | summary | window.
struct HeadCache {
  SummarySetup setup;  ///< capacity, tokens and sink are known once the middle is summarised
  /// Where rows have few bits: the first tokens, as read.
  Rows first_keys;
  Rows first_values;
  std::size_t first = 0;  ///< rows held there
  Rows sink_keys;
  Rows sink_values;
  std::size_t sink = 0;              ///< rows held there
  std::shared_ptr<Summary> summary;  ///< of copies, too, once it stays as it is
  Window window;
  QueryMemory queries;
  /// Entries held.
  std::size_t entries() const;
  /// Of them, those before the summary.
  std::size_t ahead() const { return first + sink; }
  CacheBytes bytes() const;
  /// Sets the means of the setup, of the window's tokens, as far as its types or `tiers` need them;
  /// they stay as they are once they are set.
  void find_means(Position now, const Rotary& rotary, std::span<const Tier> tiers = {});
  /// Rounds the window, which holds everything as read, to types of few bits; room for `capacity`.
  void encode(std::size_t capacity, Position now, const Rotary& rotary);
  /// Methods in tiers: of the summary's entries, in the order of its segments.
  VectorInOwnPages<Position> summary_positions() const;
  /// Appends sink, summary and window; `now`: tokens seen.
  void segments(Position now, std::vector<Segment>& out) const;
  /// What the method would choose by among the tokens between sink and window, which holds
  /// everything: see Summary::scores.
  std::vector<float> scores(const Budget& budget, Position now, const Observed& observed) const;
  /// Splits the window, which holds everything, into sink, summary and a window of the last
  /// budget.window tokens with room for `room` rows.
  void summarize(const Budget& budget, std::size_t room, Position now, const Observed& observed);
  /// Hands the window, which holds everything, to the summary with the tier of every token and the
  /// means that may stand for those evicted. A window with room for `room` rows remains.
  void summarize(std::span<const std::uint8_t> tiers, std::size_t means, std::size_t room,
                 Position now, const Rotary& rotary);
  /// Hands the window to the summary, with the tier of every entry held there and of every token.
  void end_chunk(std::span<const std::uint8_t> tiers, Position now, const Rotary& rotary);
  /// The oldest `count` tokens leave the window.
  void absorb_oldest(std::size_t count, Position now, const Observed& observed);
  std::vector<KeptEntry> kept(Position now) const;
  /// Takes the tokens of `other`, which holds all of them before a summary.
  void copy_prompt(const HeadCache& other, bool attention_sums, bool as_read);
  /// Becomes a copy of `other`, of another sequence with the same options. `ring`: of its window.
  /// `shares`: rows of the window are shared; `same_summary`: the summary is.
  void copy(const HeadCache& other, bool ring, bool as_read, bool shares, bool same_summary);
};

}  // namespace ballast
