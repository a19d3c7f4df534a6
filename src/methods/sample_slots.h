// Samples with replacement: slots that hold tokens, equal ones stored once.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "ballast/entry_store.h"

namespace ballast {

/// A fixed number of slots, each empty or holding one token. A token in several slots is one entry
/// of the store: attention sees it once, with its multiplicity in its weight.
class SampleSlots {
 public:
  static constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

  SampleSlots() = default;
  /// value_dim 0: keys only.
  SampleSlots(const SummarySetup& setup, std::size_t value_dim, std::size_t slots);

  std::size_t slots() const { return id_.size(); }
  const EntryStore& store() const { return store_; }
  EntryStore& store() { return store_; }
  std::size_t bytes() const;

  /// The entry that a slot holds, or kNone.
  std::uint32_t entry(std::size_t slot) const {
    return id_[slot] == kNone ? kNone : entry_of_[id_[slot]];
  }
  /// Slots that hold the entry: at least one.
  std::uint32_t multiplicity(std::size_t entry) const { return count_[entry]; }
  /// A number that goes with the entry.
  float tag(std::size_t entry) const { return tag_[entry]; }

  /// All these slots now hold token i of the block. At least one slot, none twice.
  void put(std::span<const std::uint32_t> slots, const Block& block, std::size_t i, float tag = 0);
  /// All these slots now hold entry i of other samples.
  void put(std::span<const std::uint32_t> slots, const SampleSlots& other, std::size_t i);
  /// Slot `to` now holds what slot `from` holds.
  void copy(std::size_t to, std::size_t from);
  /// Takes a time that does not depend on how many slots hold the entry.
  void release(std::size_t slot);

  /// Writes the entries and the first `slots` slots, which hold all of them.
  void save(ByteWriter& out, std::size_t slots) const;
  void load(ByteReader& in, std::size_t slots);

 private:
  void link(std::size_t slot, std::uint32_t id);

  EntryStore store_;
  // A slot names its entry by an id that stays while the entry moves in the store.
  std::vector<std::uint32_t> id_;        ///< of each slot, or kNone
  std::vector<std::uint32_t> id_of_;     ///< of each entry, then the ids that are free
  std::vector<std::uint32_t> entry_of_;  ///< of each id: where id_of_ has it
  std::vector<std::uint32_t> count_;     ///< slots of each entry
  std::vector<float> tag_;
};

}  // namespace ballast
