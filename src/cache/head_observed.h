// What a head's cache has seen, for the method that chooses among its entries.
#pragma once

#include <optional>
#include <vector>

#include "ballast/summary.h"
#include "cache/layer_attention.h"

namespace ballast {

/// Of head h as it is now. The rows of its entries must stay where they are.
class HeadObserved : public Observed {
 public:
  HeadObserved(const LayerAttention& attention, std::size_t h, const HeadCache& head,
               std::size_t now, const CacheOptions& options);

  std::span<const float> held_attention() const override;
  std::span<const float> attention(Position first, std::size_t count) const override;
  ConstMatrix queries() const override { return last().queries.view(); }
  std::span<const Position> query_positions() const override { return last().positions; }
  const QueryMoments* query_moments() const override { return head_->queries.moments(); }
  const ValueNorms* value_norms() const override { return options_->value_norms.get(); }

 private:
  const LastQueries& last() const;
  /// Of every entry of the head.
  const std::vector<float>& all() const;
  std::vector<float> scores(void (*score)(const QueryView&, std::span<double>)) const;

  const LayerAttention* attention_;
  std::size_t h_;
  const HeadCache* head_;
  std::size_t now_;
  const CacheOptions* options_;
  std::vector<Segment> segments_;
  std::size_t entries_, ahead_, held_;  ///< of the head; before the summary; in it
  Position window_;                     ///< the oldest token in the window
  mutable std::optional<LastQueries> last_;
  mutable std::optional<std::vector<float>> all_;
};

}  // namespace ballast
