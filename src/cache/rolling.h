// Rolling positions: keys are cached before rotation, and an entry's position is its index among
// the entries that are kept. A text may go on for ever: no distance exceeds the size of the cache
// (Xiao et al. 2024, StreamingLLM, section 3.2).
#pragma once

#include <span>
#include <vector>

#include "attention/rotary.h"
#include "ballast/attention.h"

namespace ballast {

/// One head's entries at their places. `segments` are changed: keys become rotated copies, held
/// here, and positions become places. Entries of the same position share a place.
class RolledEntries {
 public:
  RolledEntries(RotaryTable& table, std::span<Segment> segments);
  RolledEntries(const RolledEntries&) = delete;
  RolledEntries& operator=(const RolledEntries&) = delete;

  /// Takes queries from their positions in the text to their places in the cache.
  void place(std::span<Position> positions, MutableMatrix queries) const;

 private:
  /// Whether all positions ascend, so that an entry's place is its number.
  bool ascend(std::span<const Segment> segments);
  void sort();
  void roll(Segment& segment, std::size_t first);

  RotaryTable& table_;
  std::vector<Position> kept_;    ///< positions of all entries, ascending, each once
  std::vector<Position> places_;  ///< of the entries, in the order of the segments; empty if that
                                  ///< is the order of positions: an entry's place is its number
  AlignedArray<float> keys_;
};

}  // namespace ballast
