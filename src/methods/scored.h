// The base of methods that score all candidates anew whenever tokens leave the window: the entries
// held, then the tokens that come in. The best stay, as they were, with weight 1.
#pragma once

#include <vector>

#include "ballast/entry_store.h"

namespace ballast {

/// Entries lie in the order of the text. Of equal scores the newer token's stays. Nothing is
/// evicted while everything fits.
class ScoredSummary : public Summary {
 public:
  /// What is remembered of each entry beside its rows.
  struct Remembers {
    bool attention =
        false;  ///< what it got when last observed, from Block::recent_attention() at first
    bool weight = false;  ///< see weigh()
  };
  ScoredSummary(const SummarySetup& setup, Remembers remembers);

  void absorb(const Block& block) override;
  void scores(const Block& block, std::span<float> out) override;
  void segments(std::vector<Segment>& out) const override;
  /// Replaces the attention of the entries. Throws Error unless there is one number an entry.
  void observe_recent(const Observed& observed) override;
  std::size_t entries() const override { return store_.size(); }
  std::size_t bytes() const override;
  std::vector<KeptEntry> kept() const override;
  void save(ByteWriter& out) const override;
  void load(ByteReader& in) override;

 protected:
  /// The candidates of one choice, in the order of the text.
  struct Candidates {
    const EntryStore& held;
    const Block& block;
    std::vector<float> attention, weights;  ///< one number each, if remembered

    std::size_t size() const { return held.size() + block.size(); }
    Position position(std::size_t i) const {
      return i < held.size() ? held.position(i)
                             : block.first + static_cast<Position>(i - held.size());
    }
    void key(std::size_t i, std::span<float> out) const {
      i < held.size() ? held.keys().decode(i, out) : block.keys.decode(i - held.size(), out);
    }
    void value(std::size_t i, std::span<float> out) const {
      i < held.size() ? held.values().decode(i, out) : block.values.decode(i - held.size(), out);
    }
  };

  /// scores[i] of candidate i: finite, the higher stays.
  virtual void score(const Candidates& all, std::span<float> scores) = 0;
  /// Entries that score() chooses; score_rest() chooses the others.
  virtual std::size_t chosen_first() const { return capacity_; }
  /// Replaces the scores for the second choice.
  virtual void score_rest(const Candidates&, std::span<float>) {}
  /// A number of each token that stays with it, asked for when it comes in.
  virtual void weigh(const Block&, std::span<float>) {}

  const SummarySetup& setup() const { return setup_; }
  std::size_t capacity() const { return capacity_; }

 private:
  Candidates candidates(const Block& block);
  std::vector<std::size_t> choose(const Candidates& all);

  SummarySetup setup_;
  std::size_t capacity_;
  Remembers remembers_;
  EntryStore store_;
  std::vector<float> attention_, weights_;  ///< of the entries, if remembered
};

}  // namespace ballast
