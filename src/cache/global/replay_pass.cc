#include "cache/global/replay_pass.h"

#include <algorithm>
#include <cmath>

#include "base/thread_pool.h"
#include "simd/vector_math.h"

namespace ballast {
namespace {

/// The entries at positions before `end` of segments in which positions ascend. `held`: the
/// positions of the first entries.
void add_before(const std::vector<Segment>& segments, std::span<const Position> held, Position end,
                std::vector<Segment>& out) {
  for (const Segment& segment : segments) {
    std::size_t count = 0;
    while (count < segment.keys.rows &&
           (!held.empty() ? held[count] : segment.first_position + static_cast<Position>(count)) <
               end) {
      ++count;
    }
    if (!held.empty()) held = held.subspan(segment.keys.rows);
    if (count == 0) continue;
    out.push_back(segment);
    out.back().keys = segment.keys.slice(0, count);
    out.back().values = segment.values.slice(0, count);
  }
}

/// `count` entries of a segment without positions of its own.
Segment slice(const Segment& segment, std::size_t first, std::size_t count) {
  Segment out = segment;
  out.keys = segment.keys.slice(first, count);
  out.values = segment.values.slice(first, count);
  out.first_position += static_cast<Position>(first);
  return out;
}

std::size_t rows_of(const std::vector<Segment>& segments) {
  std::size_t rows = 0;
  for (const Segment& segment : segments) rows += segment.keys.rows;
  return rows;
}

}  // namespace

void run_replay(const LayerCache& layer, const ReplayRows& rows, ReplayScore score,
                std::optional<OwnChunk> chunk, std::span<ReplayHead> heads) {
  const auto& [keys, values, queries, query_weights, out] = rows;
  const CacheShape& shape = layer.shape();
  const CacheOptions& options = layer.options();
  const PoolScope scope(options.pool.get());
  const std::size_t tokens = keys.rows, group = shape.queries_per_kv_head;
  const std::size_t key_dim = shape.key_dim, value_dim = shape.value_dim;
  const auto now = static_cast<Position>(layer.tokens());
  // Of each KV head: what was read, then the tokens that read it again.
  struct Own {
    Rows keys, values;
    std::vector<Segment> segments;
    std::vector<Segment> scored;  ///< where a chunk scores its own entries: first tokens, it, these
  };
  std::vector<Own> own(heads.size());
  std::vector<Position> positions(tokens);
  for (std::size_t t = 0; t < tokens; ++t) positions[t] = now + static_cast<Position>(t);
  parallel_for(heads.size(), [&](std::size_t h) {
    Own& mine = own[h];
    mine.keys = Rows(options.key_type, key_dim, tokens);
    mine.values = Rows(options.value_type, value_dim, tokens);
    for (std::size_t t = 0; t < tokens; ++t) {
      mine.keys.set(t, {keys.row(t) + h * key_dim, key_dim});
      mine.values.set(t, {values.row(t) + h * value_dim, value_dim});
    }
    layer.head(h).segments(now, mine.segments);
    Segment segment;
    segment.keys = mine.keys.view(0, tokens);
    segment.values = mine.values.view(0, tokens);
    segment.first_position = now;
    if (chunk) {
      constexpr Position kFirst = 4;
      const Segment window = mine.segments.back();
      const auto begin = static_cast<Position>(chunk->first) + window.first_position;
      add_before(mine.segments, layer.head(h).summary_positions(), std::min(kFirst, begin),
                 mine.scored);
      mine.scored.push_back(slice(window, chunk->first, chunk->count));
      mine.scored.push_back(segment);
      for (Segment& one : mine.scored) one.role = Role::normaliser;  // answers are not wanted
    }
    mine.segments.push_back(segment);
  });
  const AttentionReduction reduction = score == ReplayScore::rms
                                           ? AttentionReduction::sum_of_squares
                                       : score == ReplayScore::mean ? AttentionReduction::sum
                                                                    : AttentionReduction::maximum;
  // Query heads are worked on at once; their scores unite afterwards, in order.
  std::vector<std::vector<float>> seen(heads.size() * group);
  parallel_for(seen.size(), [&](std::size_t q) {
    const Own& mine = own[q / group];
    const std::vector<Segment>& scored = chunk ? mine.scored : mine.segments;
    seen[q].assign(rows_of(scored), 0.0f);
    const auto each = [&](std::span<const float> of) {
      return of.empty() ? std::vector<float>() : std::vector<float>(tokens, of[q % group]);
    };
    const std::vector<float> biases = each(layer.attention().slopes(q / group)),
                             sinks = each(layer.attention().sinks(q / group));
    const Queries asked{
        {queries.data + q * key_dim, tokens, key_dim, queries.stride}, positions, biases, sinks};
    const MutableMatrix answers{out.data + q * value_dim, tokens, value_dim, out.stride};
    Matrix unused;
    if (chunk) {
      attend(asked, mine.segments, layer.attention().logits(), answers);
      unused = Matrix(tokens, value_dim);
    }
    attend_with_scores(
        asked, scored, layer.attention().logits(), chunk ? unused.view() : answers, reduction,
        score == ReplayScore::max ? query_weights : std::span<const float>{}, seen[q]);
  });
  parallel_for(heads.size(), [&](std::size_t h) {
    const std::span<float> scores = heads[h].scores;
    // Where the entries scored stand: the tokens that read again come last, the chunk before them.
    const std::size_t before = chunk ? scores.size() - layer.chunk_tokens() + chunk->first : 0;
    const std::size_t count = chunk ? chunk->count : scores.size();
    for (std::size_t g = 0; g < group; ++g) {
      const std::vector<float>& all = seen[h * group + g];
      const auto from = std::span(all).subspan(all.size() - tokens - count, count);
      for (std::size_t i = 0; i < count; ++i) {
        const std::size_t j = before + i;
        if (!heads[h].norms.empty()) {
          scores[j] = std::max(scores[j], from[i] * heads[h].norms[j]);
        } else if (score == ReplayScore::max) {
          scores[j] = std::max(scores[j], from[i] * (*heads[h].value_norms)[g][j]);
        } else if (score == ReplayScore::plain) {
          scores[j] = std::max(scores[j], from[i]);
        } else {
          scores[j] += from[i];
        }
      }
    }
  });
}

}  // namespace ballast
