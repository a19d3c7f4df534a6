#include "cache/rolling.h"

#include <algorithm>

namespace ballast {
namespace {

Position position_of(const Segment& segment, std::size_t i) {
  return segment.positions != nullptr ? segment.positions[i]
                                      : segment.first_position + static_cast<Position>(i);
}

}  // namespace

RolledEntries::RolledEntries(RotaryTable& table, std::span<Segment> segments) : table_(table) {
  for (const Segment& segment : segments) {
    for (std::size_t i = 0; i < segment.keys.rows; ++i) kept_.push_back(position_of(segment, i));
  }
  places_.resize(kept_.size());
  std::ranges::sort(kept_);
  kept_.erase(std::unique(kept_.begin(), kept_.end()), kept_.end());
  table_.reach(kept_.size() + 1);
  if (!segments.empty()) keys_ = Matrix(places_.size(), segments[0].keys.dim);
  std::size_t first = 0;
  for (Segment& segment : segments) {
    roll(segment, first);
    first += segment.keys.rows;
  }
}

Position RolledEntries::place_of(Position position) const {
  return static_cast<Position>(std::ranges::lower_bound(kept_, position) - kept_.begin());
}

void RolledEntries::roll(Segment& segment, std::size_t first) {
  const std::size_t count = segment.keys.rows;
  if (count == 0) return;
  const MutableMatrix keys = keys_.view().slice(first, count);
  segment.keys.decode(keys);
  for (std::size_t i = 0; i < count; ++i) {
    // Runs of consecutive tokens, which most are, need no search.
    const Position position = position_of(segment, i);
    const bool follows = i > 0 && position == position_of(segment, i - 1) + 1;
    const Position place = follows ? places_[first + i - 1] + 1 : place_of(position);
    places_[first + i] = place;
    rotate(table_.rotary(), table_.at(static_cast<std::size_t>(place)), keys.cols, keys[i]);
  }
  segment.keys = view_f32(keys);
  segment.positions = places_.data() + first;
  segment.first_position = -1;
}

void RolledEntries::place(std::span<Position> positions, MutableMatrix queries) const {
  for (std::size_t i = 0; i < positions.size(); ++i) {
    positions[i] = place_of(positions[i]);
    rotate(table_.rotary(), table_.at(static_cast<std::size_t>(positions[i])), queries.cols,
           queries[i]);
  }
}

}  // namespace ballast
