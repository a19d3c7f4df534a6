#include "cache/rolling.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "attention/kernels/rotate.h"

namespace ballast {

RolledEntries::RolledEntries(RotaryTable& table, std::span<Segment> segments) : table_(table) {
  if (!ascend(segments)) sort();
  table_.reach(kept_.size() + 1);
  std::size_t first = 0;
  for (const Segment& segment : segments) first += segment.keys.rows * segment.keys.dim;
  keys_ = allocate_aligned<float>(first);
  first = 0;
  for (Segment& segment : segments) {
    roll(segment, first);
    first += segment.keys.rows;
  }
}

bool RolledEntries::ascend(std::span<const Segment> segments) {
  std::size_t count = 0;
  for (const Segment& segment : segments) count += segment.keys.rows;
  kept_.reserve(count);
  bool ascends = true;
  Position last = -1;
  for (const Segment& segment : segments) {
    const std::size_t n = segment.keys.rows;
    for (std::size_t i = 0; i < n; ++i) {
      const Position position = segment.positions != nullptr
                                    ? segment.positions[i]
                                    : segment.first_position + static_cast<Position>(i);
      ascends &= position > last;
      last = position;
      kept_.push_back(position);
    }
  }
  return ascends;
}

// Radix sort, eight bits at a time: it takes a half to a third of the time of std::sort. A uint64
// of each entry holds its position and, below, its index.
void RolledEntries::sort() {
  const std::size_t n = kept_.size();
  const auto most = static_cast<std::uint64_t>(*std::ranges::max_element(kept_));
  std::vector<std::uint64_t> entries(n), sorted(n);
  for (std::size_t i = 0; i < n; ++i) entries[i] = static_cast<std::uint64_t>(kept_[i]) << 32 | i;
  for (unsigned shift = 0; most >> shift != 0; shift += 8) {
    const auto digit = [shift](std::uint64_t entry) { return entry >> (32 + shift) & 255; };
    std::array<std::uint32_t, 257> begin{};
    for (std::uint64_t entry : entries) ++begin[digit(entry) + 1];
    for (std::size_t d = 0; d < 256; ++d) begin[d + 1] += begin[d];
    for (std::uint64_t entry : entries) sorted[begin[digit(entry)]++] = entry;
    entries.swap(sorted);
  }
  kept_.clear();
  places_.resize(n);
  for (std::uint64_t entry : entries) {
    const auto position = static_cast<Position>(entry >> 32);
    if (kept_.empty() || kept_.back() != position) kept_.push_back(position);
    places_[static_cast<std::uint32_t>(entry)] = static_cast<Position>(kept_.size() - 1);
  }
}

void RolledEntries::roll(Segment& segment, std::size_t first) {
  constexpr std::size_t kTogether = 32;  // rows that stay in the first-level cache
  const float* turns[kTogether];
  const std::size_t dim = segment.keys.dim;
  const MutableMatrix keys{keys_.get() + first * dim, segment.keys.rows, dim};
  for (std::size_t begin = 0; begin < keys.rows; begin += kTogether) {
    const std::size_t count = std::min(kTogether, keys.rows - begin);
    const MutableMatrix rows = keys.slice(begin, count);
    segment.keys.slice(begin, count).decode(rows);
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t entry = first + begin + i;
      turns[i] =
          table_.at(places_.empty() ? entry : static_cast<std::size_t>(places_[entry])).data();
    }
    kernels::rotate_rows(table_.rotary().pairs, turns, table_.rotary().frequencies.size(), rows);
  }
  segment.keys = view_f32(keys);
  segment.positions = places_.empty() ? nullptr : places_.data() + first;
  segment.first_position = places_.empty() ? static_cast<Position>(first) : -1;
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
