// The entries of a summary: one contiguous, preallocated run, ready for attention.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "ballast/summary.h"

namespace ballast {

/// Up to capacity() entries: a key, a value (unless keys only), the position of the token in the
/// text and a log-weight. Rows are stored in the setup's types; a row that already has the type is
/// copied bit for bit. Nothing is allocated after construction. Slots are 0 to size() - 1; their
/// order has no meaning.
class EntryStore {
 public:
  EntryStore() = default;
  /// With the setup's types, dimensions and means; `has_values` false: keys only.
  EntryStore(const SummarySetup& setup, std::size_t capacity, bool has_values = true);

  /// An empty store of the same kind.
  EntryStore like(std::size_t capacity) const;

  std::size_t size() const { return size_; }
  std::size_t capacity() const { return capacity_; }
  bool full() const { return size_ == capacity_; }
  std::size_t bytes() const;

  /// Appends token i of the block. There must be room.
  void push(const Block& block, std::size_t i, float log_weight = 0.0f);
  /// Appends entry i of another store. There must be room.
  void push(const EntryStore& other, std::size_t i);
  /// Token i of the block takes the slot's place.
  void replace(std::size_t slot, const Block& block, std::size_t i, float log_weight = 0.0f);
  /// Entry i of another store takes the slot's place.
  void replace(std::size_t slot, const EntryStore& other, std::size_t i);
  /// The last entry takes the slot's place.
  void erase(std::size_t slot);
  /// Keeps only these slots (ascending), in this order.
  void keep(std::span<const std::size_t> slots);
  void clear() { size_ = 0; }

  Position position(std::size_t slot) const { return positions_[slot]; }
  float log_weight(std::size_t slot) const { return log_weights_[slot]; }
  void set_log_weight(std::size_t slot, float log_weight) { log_weights_[slot] = log_weight; }
  std::span<const Position> positions() const { return {positions_.data(), size_}; }
  RowsView keys() const { return keys_.view(0, size_, positions_.data()); }
  RowsView values() const { return values_.view(0, size_); }

  /// All entries; `weighted`: with their log-weights.
  Segment segment(Role role = Role::both, bool weighted = true) const;
  /// u64 size; then of every entry the key, then every value (unless keys only), each row as its
  /// payload and its scales; i32 positions; f32 log-weights.
  void save(ByteWriter& out) const;
  /// Restores what save() wrote. Throws Error when it does not fit this store or is not finite.
  void load(ByteReader& in);

 private:
  void move(std::size_t to, std::size_t from);

  Rows keys_;
  Rows values_;
  bool has_values_ = true;
  std::vector<Position> positions_;
  std::vector<float> log_weights_;
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
};

}  // namespace ballast
