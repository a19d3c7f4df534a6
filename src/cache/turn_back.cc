#include "cache/turn_back.h"

#include <algorithm>
#include <utility>

#include "attention/rotary.h"

namespace ballast {

TurnBack::TurnBack(Rotary rotary, Position offset)
    : rotary_(std::move(rotary)), offset_(offset), turns_(2 * rotary_.frequencies.size()) {
  rotary_.magnitude = 1;
  rotation_at(rotary_, -static_cast<double>(offset), turns_);
}

void TurnBack::attend(const Queries& queries, std::span<const Segment> segments,
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
