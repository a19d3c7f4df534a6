// The base of methods that keep tokens as they were, with weight 1: a rule ranks them, accumulated
// attention ranks them, or each has a part of the budget.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "ballast/entry_store.h"

namespace ballast {

/// Keeps the `by_rule` tokens of the highest rank() and, of the rest, the heaviest by accumulated
/// attention. Among equals the newer token stays. Nothing is evicted while everything fits. A token
/// that comes in takes the slot of the one that is evicted; no other entry moves. A method that
/// ranks tokens overrides rank() and nothing else: examples/method.
class SelectionSummary : public Summary {
 public:
  struct Options {
    /// Entries that rank() chooses, at most the capacity; accumulated attention chooses the rest.
    std::size_t by_rule = 0;
    bool mean = false;  ///< attention per query that could see the token, not its sum
    /// Equal ranks stay or go together: a rank of which not all fit is closed for good.
    bool whole_ranks = false;
    bool lightest = false;  ///< attention keeps the lightest tokens, not the heaviest
  };
  SelectionSummary(const SummarySetup& setup, const Options& options);

  void absorb(const Block& block) override;
  /// rank() of each token.
  void scores(const Block& block, std::span<float> out) override;
  void segments(std::vector<Segment>& out) const override;
  /// Adds to attention_sums(). Throws Error unless there is one number an entry.
  void observe(std::span<const float> attention_sum) override;
  std::size_t entries() const override { return store_.size(); }
  std::size_t bytes() const override;
  std::vector<KeptEntry> kept() const override;
  void save(ByteWriter& out) const override;
  void load(ByteReader& in) override;

 protected:
  /// The rank of a token that the rule never keeps.
  static constexpr float kNever = -std::numeric_limits<float>::infinity();

  /// Called at the start of absorb(): the time to rank the entries anew.
  virtual void prepare(const Block&) {}
  /// The rank of token i of the block, asked for once; the higher stays. Not NaN. It must depend on
  /// the token alone, or the result depends on how the text is cut into blocks.
  virtual float rank(const Block&, std::size_t) { return 0.0f; }
  /// Called at the end of absorb().
  virtual void finish(const Block&) {}

  const EntryStore& store() const { return store_; }
  /// Ranks and accumulated attention sums of the entries, in the order of segments().
  std::span<float> ranks() { return {rank_.data(), store_.size()}; }
  std::span<float> attention_sums() { return {attention_sum_.data(), store_.size()}; }
  /// The attention that the tokens of a block come with: sums over all queries if the method needs
  /// these, else over the last ones; none if it needs neither. Throws Error if it is not there.
  std::span<const float> attention_of(const Block& block) const;

  /// Copies `attention_sum` over `known`: for methods that need recent attention. Throws Error
  /// unless both have one number an entry.
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
  Needs needs_;
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
