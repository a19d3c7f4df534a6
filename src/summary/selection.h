// Summaries that keep tokens as they were, of weight 1: which ones, a rule and attention decide.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "summary/entry_store.h"

namespace ballast {

/// Keeps, of all tokens that came in, the `by_rule` best by the rank that the method gives them
/// and, of the rest, the heaviest by accumulated attention. Among equals the newer stays. Nothing
/// is dropped while everything fits. A token that comes in takes the slot of the one that goes; no
/// other entry moves.
class Selection : public Summary {
 public:
  struct Options {
    std::size_t by_rule = 0;  ///< the rest of the capacity goes by accumulated attention
    bool mean = false;        ///< attention per query that could see the token, not its sum
    /// Equal ranks stay or go together: a rank of which not all fit is closed for good.
    bool whole_ranks = false;
    bool lightest = false;  ///< of those that go by attention, the lightest stay, not the heaviest
    bool accumulates = true;  ///< attention is accumulated: blocks and observe() bring it
  };
  Selection(const SummarySetup& setup, const Options& options);

  void absorb(const Block& block) override;
  void segments(std::vector<Segment>& out) const override;
  /// Accumulates.
  void observe(std::span<const float> attention_sum) override;
  std::size_t entries() const override { return store_.size(); }
  std::size_t bytes() const override;
  std::vector<KeptEntry> kept() const override;
  void save(ByteWriter& out) const override;
  void load(ByteReader& in) override;

 protected:
  /// A rank that the rule never keeps.
  static constexpr float kNever = -std::numeric_limits<float>::infinity();

  /// Called at the start of absorb: the time to rank the entries anew.
  virtual void prepare(const Block&) {}
  /// The rule's rank of token i of the block; higher stays.
  virtual float rank(const Block&, std::size_t) const { return 0.0f; }
  /// Called at the end of absorb.
  virtual void finish(const Block&) {}

  const EntryStore& store() const { return store_; }
  /// Ranks and accumulated attention sums of the entries, in the order of segments().
  std::span<float> ranks() { return {rank_.data(), store_.size()}; }
  std::span<float> attention_sums() { return {attention_sum_.data(), store_.size()}; }

  /// Takes `attention_sum` for what all entries have, in place of what was known.
  void replace(std::span<float> known, std::span<const float> attention_sum) const;

 private:
  Position position(const Block& block, std::size_t i) const;
  bool heavier(const Block& block, std::size_t a, std::size_t b) const;
  bool outranks(const Block& block, std::size_t a, std::size_t b) const;
  void take_in(const Block& block);
  void choose(const Block& block, std::size_t total);
  void choose_one(const Block& block);
  void place(const Block& block, std::size_t total);

  std::size_t capacity_;
  Options options_;
  EntryStore store_;
  std::uint64_t seen_ = 0;
  float closed_ = kNever;  ///< ranks up to this one are not kept by the rule
  // The candidates of one choice: the entries, then the tokens that come in.
  std::size_t chunk_;
  std::vector<float> rank_;
  std::vector<float> attention_sum_;
  std::vector<std::uint32_t> order_;
  std::vector<std::uint8_t> stays_;
};

}  // namespace ballast
