#include "cache/attention_by_token.h"

#include <vector>

#include "cache/cache_parts.h"
#include "storage/gap_code.h"

namespace ballast {
namespace {

/// Where the entries of a segment stand in the text; negative: unknown.
std::vector<Position> positions_of(const Segment& segment) {
  const RowsView& keys = segment.keys;
  std::vector<Position> out(keys.rows, -1);
  if (segment.positions != nullptr) {
    out.assign(segment.positions, segment.positions + keys.rows);
  } else if (segment.first_position >= 0) {
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i] = segment.first_position + static_cast<Position>(i);
  } else if (keys.positions != nullptr) {
    out.assign(keys.positions, keys.positions + keys.rows);
  } else if (keys.gaps != nullptr) {
    decode_gaps(keys.gaps, out);
  }
  return out;
}

}  // namespace

void add_attention_by_token(const Cache& cache, std::size_t layer, std::size_t query_head,
                            std::span<const float> query, Position position,
                            std::span<float> sums) {
  const std::size_t group = cache.shape().queries_per_kv_head, h = query_head / group;
  const LayerCache& of = CacheParts::of(cache).layer(layer, h);
  const std::vector<Segment> segments = of.segments(h);
  std::vector<Position> places;
  for (const Segment& segment : segments) {
    const std::vector<Position> more = positions_of(segment);
    places.insert(places.end(), more.begin(), more.end());
  }
  Matrix unused(1, cache.shape().value_dim);
  std::vector<float> weights(places.size());
  const auto own = [&](std::span<const float> all) {
    return all.empty() ? all : all.subspan(query_head % group, 1);
  };
  const LayerAttention& attention = of.attention();
  attention.attend(h, segments,
                   {{query.data(), 1, query.size()},
                    {&position, 1},
                    own(attention.slopes(h)),
                    own(attention.sinks(h))},
                   unused.view(), weights);
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (places[i] >= 0 && static_cast<std::size_t>(places[i]) < sums.size())
      sums[static_cast<std::size_t>(places[i])] += weights[i];
  }
}

}  // namespace ballast
