#include "ballast/experiments.h"

#include <algorithm>
#include <cmath>

#include "base/fail.h"
#include "cache/cache_parts.h"

namespace ballast {

void Recording::include_attention(const Policy& policy) {
  const AttentionStats::Kind kind = policy.attention_stats().kind;
  attention_sum = attention_sum || kind == AttentionStats::Kind::accumulated ||
                  kind == AttentionStats::Kind::both;
  queries = std::max(queries, policy.observed());
  query_moments = query_moments || policy.attention_stats().query_moments;
}

void Recording::include(const Policy& policy) {
  include_attention(policy);
  const ReplayScore wanted = policy.attention_stats().replay;
  if (wanted == ReplayScore::none) return;
  replay_queries = replay_queries || policy.attention_stats().refit;
  const auto chunk = static_cast<std::size_t>(policy.integer("chunk"));
  const bool own = policy.attention_stats().replay_own;
  require(replay == ReplayScore::none ||
              (replay == wanted && replay_chunk == chunk && replay_own == own),
          "one reading scores entries in one way: {} wants another score, reading= or chunk=",
          policy.info().name);
  replay = wanted;
  replay_chunk = chunk;
  replay_own = own;
}

void set_replay_scores(Cache& cache, std::size_t layer, std::size_t kv_head,
                       std::span<const float> scores) {
  cache.parts().layer(layer, kv_head);
  require(cache.options().policy.attention_stats().replay != ReplayScore::none &&
              cache.options().protocol == Protocol::prefill,
          "method {} in {} has no use for scores", cache.options().policy.info().name,
          to_string(cache.options().protocol));
  require(!cache.options().policy.attention_stats().refit,
          "method {}: refit=values needs the queries of a replay pass, not its scores alone",
          cache.options().policy.info().name);
  require(scores.size() == cache.tokens(layer), "{} scores for {} tokens", scores.size(),
          cache.tokens(layer));
  require(std::ranges::all_of(scores, [](float x) { return x >= 0 && std::isfinite(x); }),
          "layer {}, KV head {}: a score is negative or not finite", layer, kv_head);
  std::shared_ptr<ReplayScores>& all = cache.scoring().scores_;
  if (!all) all = std::make_shared<ReplayScores>(cache.shape().layers, cache.shape().kv_heads);
  all->layer(layer)[kv_head].scores.assign(scores.begin(), scores.end());
}

Matrix answer_latest(const Cache& cache, const Cache& recorded, std::size_t layer,
                     std::size_t kv_head) {
  const LayerCache& answering = cache.parts().layer(layer, kv_head);
  const LayerCache& asking = recorded.parts().layer(layer, kv_head);
  require(answering.tokens() == asking.tokens() &&
              cache.shape().key_dim == recorded.shape().key_dim &&
              cache.shape().queries_per_kv_head == recorded.shape().queries_per_kv_head,
          "layer {}, KV head {}: the two caches are not of the same text", layer, kv_head);
  return answering.answer_latest(asking, kv_head);
}

Matrix latest_attention(const Cache& cache, std::size_t layer, std::size_t kv_head,
                        std::size_t most) {
  return cache.parts().layer(layer, kv_head).latest_attention(kv_head, most);
}

}  // namespace ballast
