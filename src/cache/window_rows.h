// The rows of a window, which copies of a cache share as far as they are the same.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <vector>

#include "ballast/storage.h"
#include "cache/held_memory.h"

namespace ballast {

/// Keys and values of tokens, slot by slot, in parts: the last is its own, those before are shared
/// with copies and never written. A part that another follows has whole blocks of attention, so
/// that sums are made as over rows in one piece. Copies may be made while this goes on.
class WindowRows {
 public:
  WindowRows() = default;
  WindowRows(Rows keys, Rows values);

  std::size_t capacity() const { return shared_ + (own_ ? own_->keys.capacity() : 0); }
  /// Of all parts.
  std::size_t bytes() const;
  std::size_t row_bytes() const;
  bool in_parts() const { return shared_ > 0; }
  /// Rows that grow() copies at most.
  std::size_t moved() const;
  /// Rows from this slot on that lie behind each other.
  std::size_t run(std::size_t slot) const;
  /// Of rows in one run; `first`: the position of the first.
  RowsView keys(std::size_t slot, std::size_t count, Position first) const;
  RowsView values(std::size_t slot, std::size_t count, Position first) const;
  /// The own part, for those who load it.
  Rows& own_keys() { return own_->keys; }
  Rows& own_values() { return own_->values; }

  /// Sets a row of the own part.
  void set(std::size_t slot, std::span<const float> key, std::span<const float> value,
           Position position);
  /// Copies a row of another, of the token at `position`, into the own part.
  void copy(std::size_t slot, const WindowRows& other, std::size_t from, Position position);
  /// Grows to `capacity` rows, of which `used` are kept.
  void grow(std::size_t capacity, std::size_t used);
  /// Gives back what has no rows of the first `used`, and makes one part of the last ones that no
  /// copy shares. Nothing changes where a copy shares the own part.
  void drop_room(std::size_t used);
  /// Forgets all rows but the first `used`: new ones come behind them.
  void cut(std::size_t used);
  /// Becomes the first `used` rows of another, without more room, by sharing them.
  void share(const WindowRows& other, std::size_t used);
  void list(std::vector<HeldMemory>& out) const;

 private:
  struct Held {
    Rows keys, values;
    std::size_t bytes() const { return keys.bytes() + values.bytes(); }
    /// Rows that have been shared, at most; they are never written again.
    std::atomic<std::size_t> lent = 0;
  };
  struct Part {
    std::shared_ptr<Held> held;
    std::size_t rows = 0;
  };

  static std::shared_ptr<Held> empty_like(const Held& held, std::size_t capacity);
  /// The part of a slot, whose place there `slot` becomes.
  Part at(std::size_t& slot) const;
  /// The first rows of `from` come next: whole blocks are shared, others copied to an own part.
  void take(const std::shared_ptr<Held>& from, std::size_t rows);

  std::vector<Part> parts_;
  std::size_t shared_ = 0;  ///< rows of `parts_`
  std::shared_ptr<Held> own_;
};

}  // namespace ballast
