// Entries that are seen from elsewhere than where they stood in their text.
#pragma once

#include <span>
#include <vector>

#include "ballast/attention.h"
#include "ballast/rotary.h"

namespace ballast {

/// A shift of entries by `offset` tokens towards the end. No row changes: a query at position p
/// looks at them as the same query at p - offset, turned back by as much.
class TurnBack {
 public:
  TurnBack() = default;
  /// `rotary`: of keys and queries, which come turned by it.
  TurnBack(Rotary rotary, Position offset);

  Position offset() const { return offset_; }
  /// Adds what these entries answer. Sink logits, which enter once, are left out.
  void attend(const Queries& queries, std::span<const Segment> segments, const Logits& logits,
              PartialAttention& partial) const;

 private:
  Rotary rotary_;  ///< without magnitude
  Position offset_ = 0;
  std::vector<float> turns_;
};

}  // namespace ballast
