#include "model/cache_batch.h"

#include <algorithm>

#include "ballast/engine/calibration.h"
#include "ballast/scoring.h"
#include "base/fail.h"

namespace ballast {

void CacheBatch::add(Sequence& sequence, std::span<const Token> tokens) {
  const std::size_t end = sequence.positions_after(tokens.size());
  const std::size_t most = model_.config().max_positions;
  require(end <= most, ErrorCode::over_limit,
          "{}: a sequence of {} tokens, but the model has {} positions",
          model_.file().path().string(), end, most);
  Cache& cache = sequence.cache();
  const bool rolls = cache.options().positions == Positions::rolling;
  runs_.push_back({.tokens = tokens,
                   .first = sequence.tokens(),
                   .shape = rolls ? nullptr : &cache.shape(),
                   .states = cache.recurrent()});
  caches_.push_back(&cache);
}

bool CacheBatch::wants_all_queries() const { return caches_[0]->options().needs_queries(); }

void CacheBatch::run(const AttentionRows& rows) {
  const std::size_t tokens = rows.keys.rows, first = tokens - rows.queries.rows;
  if (first > 0) forward(rows, 0, first, false);
  forward(rows, first, tokens, true);
  score(rows);
}

void CacheBatch::forward(const AttentionRows& rows, std::size_t begin, std::size_t end,
                         bool asked) {
  const std::size_t unasked = rows.keys.rows - rows.queries.rows;
  items_.clear();
  std::size_t at = 0;
  for (std::size_t i = 0; i < runs_.size(); ++i) {
    const std::size_t first = std::max(begin, at);
    at += runs_[i].tokens.size();
    if (first >= std::min(end, at)) continue;
    const std::size_t count = std::min(end, at) - first, answers = asked ? count : 0;
    const std::size_t query = asked ? first - unasked : 0;
    const CacheShape& shape = caches_[i]->shape();
    const std::size_t heads = shape.kv_heads * shape.queries_per_kv_head;
    items_.push_back({caches_[i], HeadsView::of(rows.keys.slice(first, count), shape.kv_heads),
                      HeadsView::of(rows.values.slice(first, count), shape.kv_heads),
                      HeadsView::of(rows.queries.slice(query, answers), heads),
                      MutableHeadsView::of(rows.outputs.slice(query, answers), heads)});
  }
  forward_batch(rows.layer, items_);
}

void CacheBatch::score(const AttentionRows& rows) const {
  std::size_t first = 0;
  for (std::size_t i = 0; i < runs_.size(); ++i) {
    const std::size_t count = runs_[i].tokens.size();
    Scoring& scoring = scoring_of(*caches_[i]);
    if (scoring.takes_scores()) {
      require(model_.calibration() != nullptr,
              "{}: method {} needs a calibration of this model; make one with: ballast calibrate",
              model_.file().path().string(), caches_[i]->options().policy.info().name);
      Matrix scores(count, caches_[i]->shape().kv_heads);
      model_.calibration()->score(rows.layer, rows.inputs.slice(first, count),
                                  rows.keys.slice(first, count), rows.values.slice(first, count),
                                  scores.view());
      scoring.note_scores(rows.layer, scores.view());
    }
    first += count;
  }
}

void WatchedAttention::run(const AttentionRows& rows) {
  inner_.run(rows);
  if (watch_) {
    watch_({rows.layer, first_, rows.queries, rows.keys, rows.values, rows.outputs, rows.inputs});
  }
}

}  // namespace ballast
