// Entries that are seen from elsewhere than where they stood in their text.
#pragma once

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "attention/rotary.h"
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

inline TurnBack::TurnBack(Rotary rotary, Position offset)
    : rotary_(std::move(rotary)), offset_(offset), turns_(2 * rotary_.frequencies.size()) {
  rotary_.magnitude = 1;
  rotation_at(rotary_, -static_cast<double>(offset), turns_);
}

inline void TurnBack::attend(const Queries& queries, std::span<const Segment> segments,
                             const Logits& logits, PartialAttention& partial) const {
  Queries asked = queries;
  asked.sink_logits = {};
  if (offset_ == 0) return attend_partial(asked, segments, logits, partial);
  const std::size_t rows = queries.rows.rows, dim = queries.rows.cols;
  thread_local std::vector<Position> positions;
  positions.resize(rows);
  for (std::size_t i = 0; i < rows; ++i) positions[i] = queries.positions[i] - offset_;
  asked.positions = positions;
  Matrix turned;
  if (!turns_.empty()) {
    turned = Matrix(rows, dim);
    for (std::size_t i = 0; i < rows; ++i) {
      std::ranges::copy(queries.rows[i], turned[i].begin());
      rotate(rotary_, turns_, dim, turned[i]);
    }
    asked.rows = turned.view();
  }
  attend_partial(asked, segments, logits, partial);
}

}  // namespace ballast
