#include "cache/rolling.h"

#include <algorithm>
#include <cstdint>

namespace ballast {
namespace {

Position position_of(const Segment& segment, std::size_t i) {
  return segment.positions != nullptr ? segment.positions[i]
                                      : segment.first_position + static_cast<Position>(i);
}

}  // namespace

RolledEntries::RolledEntries(RotaryTable& table, std::span<Segment> segments) : table_(table) {
  find_places(segments);
  table_.reach(kept_.size() + 1);
  if (!segments.empty()) keys_ = Matrix(places_.size(), segments[0].keys.dim);
  std::size_t first = 0;
  for (Segment& segment : segments) {
    roll(segment, first);
    first += segment.keys.rows;
  }
}

// Sorts the entries by position: a word of each holds that and, below, its number.
void RolledEntries::find_places(std::span<const Segment> segments) {
  std::size_t count = 0;
  for (const Segment& segment : segments) count += segment.keys.rows;
  std::vector<std::uint64_t> entries;
  entries.reserve(count);
  for (const Segment& segment : segments) {
    for (std::size_t i = 0; i < segment.keys.rows; ++i) {
      const auto position = static_cast<std::uint64_t>(position_of(segment, i));
      entries.push_back(position << 32 | entries.size());
    }
  }
  std::ranges::sort(entries);
  kept_.reserve(count);
  places_.resize(count);
  for (std::uint64_t entry : entries) {
    const auto position = static_cast<Position>(entry >> 32);
    if (kept_.empty() || kept_.back() != position) kept_.push_back(position);
    places_[static_cast<std::uint32_t>(entry)] = static_cast<Position>(kept_.size() - 1);
  }
}

void RolledEntries::roll(Segment& segment, std::size_t first) {
  const std::size_t count = segment.keys.rows;
  if (count == 0) return;
  const MutableMatrix keys = keys_.view().slice(first, count);
  segment.keys.decode(keys);
  for (std::size_t i = 0; i < count; ++i) {
    const auto place = static_cast<std::size_t>(places_[first + i]);
    rotate(table_.rotary(), table_.at(place), keys.cols, keys[i]);
  }
  segment.keys = view_f32(keys);
  segment.positions = places_.data() + first;
  segment.first_position = -1;
}

void RolledEntries::place(std::span<Position> positions, MutableMatrix queries) const {
  for (std::size_t i = 0; i < positions.size(); ++i) {
    positions[i] =
        static_cast<Position>(std::ranges::lower_bound(kept_, positions[i]) - kept_.begin());
    rotate(table_.rotary(), table_.at(static_cast<std::size_t>(positions[i])), queries.cols,
           queries[i]);
  }
}

}  // namespace ballast
