// MergeAndReduce: a stream of tokens in levels, an entry of level l standing for about 2^l tokens
// (BalanceKV, arXiv:2502.07861, Algorithm 4), in a store of fixed size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ballast/entry_store.h"
#include "methods/softmax_balance.h"

namespace ballast {

/// Entries of several levels, and of several groups (the value-norm buckets of Algorithm 1) that
/// share the store but are never mixed.
///
/// Two schedules, which may be combined:
/// - strict (batch t > 0): after every t-th token of a group, j = p·t, level 0 is reduced into
///   level 1, and while p is even and below the top, level i into level i + 1: Algorithm 4. Then
///   |C^i| ≤ t for i < T, and C^i, 0 < i < T, is empty just when bit i - 1 of ⌊j/t⌋ is 0. A store
///   that is too small for this goes on lazily, and overflows() counts the tokens that it met full.
/// - lazy: when the store is full and a token comes in, the oldest batch of one run (a level of a
///   group) is reduced into the next level: MergeAndReduce with batches of varying size. The run is
///   the lowest one that holds a batch. Batches are an eighth of the store at the top and shrink by
///   √2 a level below it: a level's error grows as 2^l/batch, and these sizes make the sum least.
///   So lower levels are buffers, nearly all entries are in the two highest levels and weigh nearly
///   the same, and no stream is too long. Levels of groups are compared by weight · 2^group, what
///   an entry adds to the error.
class MergeAndReduce {
 public:
  struct Schedule {
    std::size_t batch = 0;   ///< t; 0: lazy only
    std::size_t levels = 0;  ///< T, with a batch
  };

  /// Takes over an empty store, whose capacity is the bound on entries.
  MergeAndReduce(EntryStore store, Schedule schedule);

  /// Takes in token i of the block.
  void push(const Block& block, std::size_t i, HalvingRule& rule, int group = 0);
  /// Takes in a token that has been reduced elsewhere. There must be room.
  void place(const Block& block, std::size_t i, float log_weight, float log_normaliser, int level);
  /// Tokens that place()d entries stand for.
  void count_tokens(std::uint64_t tokens) { tokens_ += tokens; }
  /// Unites with another of the same schedule over other tokens. Equal levels unite. They are then
  /// reduced as in adding the two numbers of batches (strict), or until they fit the store (lazy).
  void merge(const MergeAndReduce& other, HalvingRule& rule);
  /// Evicts the groups from `group` down; returns the number of entries evicted.
  std::size_t erase_groups_to(int group);
  void clear();

  const EntryStore& store() const { return store_; }
  std::size_t size() const { return store_.size(); }
  std::uint64_t tokens() const { return tokens_; }        ///< taken in
  std::uint64_t overflows() const { return overflows_; }  ///< strict: tokens that found no room
  std::size_t level_size(int level, int group = 0) const;
  float log_normaliser(std::size_t slot) const { return log_normalisers_[slot]; }

  /// The entries as attention reads them, with their weights in that sum.
  Segment numerator(Role role) const { return store_.segment(role); }
  Segment normaliser() const;

  std::size_t bytes() const;
  void save(ByteWriter& out) const;
  void load(ByteReader& in);

 private:
  struct Tag {
    std::int16_t group = 0;
    std::int16_t level = 0;
    bool operator==(const Tag&) const = default;
  };
  struct GroupTokens {
    std::int64_t group = 0;
    std::uint64_t tokens = 0;
  };
  struct Run {
    Tag tag;
    std::size_t size = 0;
  };

  void make_room(HalvingRule& rule);
  void reduce(Tag tag, std::size_t batch, HalvingRule& rule);
  bool strict() const { return schedule_.batch != 0; }
  std::uint64_t& tokens_of(std::int16_t group);
  void cascade(std::int16_t group, std::uint64_t p, HalvingRule& rule);
  void carry(std::int16_t group, std::uint64_t p, std::uint64_t q, HalvingRule& rule);
  void erase(std::size_t slot);
  void count_runs();
  void set_tag(std::size_t slot, Tag tag, float log_normaliser);

  EntryStore store_;
  Schedule schedule_;
  std::uint64_t tokens_ = 0;
  std::uint64_t overflows_ = 0;
  std::vector<GroupTokens> counts_;     // strict: of each group that is held
  std::vector<Tag> tags_;               // of each slot
  std::vector<float> log_normalisers_;  // of each slot
  // Scratch of make_room() and reduce(), allocated at the start.
  std::vector<Run> runs_;
  WeightedTokens work_;
  std::vector<std::uint8_t> dropped_;
  std::vector<std::uint32_t> slots_;
};

}  // namespace ballast
