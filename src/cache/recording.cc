#include "ballast/recording.h"
#include "ballast/scoring.h"

#include <algorithm>
#include <cmath>

#include "base/fail.h"
#include "cache/cache_parts.h"

namespace ballast {

void Recording::include_attention(const Policy& policy) {
  attention_sum = attention_sum || policy.needs().attention_sums;
  queries = std::max(queries, policy.observed());
  query_moments = query_moments || policy.needs().query_moments;
}

void Recording::include(const Policy& policy) {
  include_attention(policy);
  const ReplayScore wanted = policy.needs().replay;
  if (wanted == ReplayScore::none) return;
  const auto chunk = static_cast<std::size_t>(policy.integer("chunk"));
  const bool own = policy.needs().replay_own;
  require(replay == ReplayScore::none ||
              (replay == wanted && replay_chunk == chunk && replay_own == own),
          "one reading scores entries in one way: {} wants another score, reading= or chunk=",
          policy.info().name);
  replay = wanted;
  replay_chunk = chunk;
  replay_own = own;
}

namespace {

/// A copy of an exact cache in prefill with another policy or recording, without scores.
std::unique_ptr<CacheParts> fork_parts(const CacheParts& from, const Policy& policy,
                                       std::uint64_t seed, const Recording& recording) {
  CacheOptions options = from.options;
  require(options.policy.info().window_policy == WindowPolicy::all &&
              options.protocol == Protocol::prefill,
          "only an exact cache in prefill can be forked, not {} in {}", options.policy.info().name,
          to_string(options.protocol));
  options.policy = policy;
  options.seed = seed;
  options.recording = recording;
  auto out = std::make_unique<CacheParts>(from.shape, options, false);
  require(
      out->options.key_type == options.key_type && out->options.value_type == options.value_type,
      "{}: the cache stores its tokens in {}/{}, a fork in the same types", policy.to_string(),
      to_string(options.key_type), to_string(options.value_type));
  for (std::size_t l = 0; l < from.layers.size(); ++l) {
    out->layers[l]->copy_prompt(*from.layers[l]);
  }
  out->recurrent = from.recurrent;
  return out;
}

}  // namespace

Cache fork_of(const Cache& cache, const Policy& policy, std::uint64_t seed) {
  const CacheParts& from = CacheParts::of(cache);
  std::unique_ptr<CacheParts> out = fork_parts(from, policy, seed, {});
  const ReplayScore wanted = policy.needs().replay;
  if (wanted != ReplayScore::none) {
    const Recording& recording = from.options.recording;
    require(wanted == recording.replay && policy.needs().replay_own == recording.replay_own,
            "{} needs another replay pass than the cache has had", policy.info().name);
    out->scoring.copy(from.scoring);
  }
  return CacheParts::cache_of(std::move(out));
}

Cache fork_of(const Cache& cache, const Recording& recording) {
  require(recording.replay != ReplayScore::given,
          "scores that come with the tokens cannot be noted once these are read");
  const CacheOptions& options = cache.options();
  return CacheParts::cache_of(
      fork_parts(CacheParts::of(cache), options.policy, options.seed, recording));
}

Matrix answer_latest(const Cache& cache, const Cache& recorded, std::size_t layer,
                     std::size_t kv_head) {
  const LayerCache& answering = CacheParts::of(cache).layer(layer, kv_head);
  const LayerCache& asking = CacheParts::of(recorded).layer(layer, kv_head);
  require(answering.tokens() == asking.tokens() &&
              cache.shape().key_dim == recorded.shape().key_dim &&
              cache.shape().queries_per_kv_head == recorded.shape().queries_per_kv_head,
          "layer {}, KV head {}: the two caches are not of the same text", layer, kv_head);
  const LastQueries last =
      asking.attention().last_queries(kv_head, asking.head(kv_head), asking.tokens());
  Matrix out(last.size(), cache.shape().value_dim);
  answering.attention().attend(kv_head, answering.segments(kv_head), last.rows(0, out.rows()),
                               out.view(), {});
  return out;
}

Matrix latest_attention(const Cache& cache, std::size_t layer, std::size_t kv_head,
                        std::size_t most) {
  const LayerCache& of = CacheParts::of(cache).layer(layer, kv_head);
  const LastQueries last = of.attention().last_queries(kv_head, of.head(kv_head), of.tokens());
  const std::vector<Segment> segments = of.segments(kv_head);
  std::size_t entries = 0;
  for (const Segment& segment : segments) entries += segment.keys.rows;
  Matrix out(std::min(last.size(), most), entries), unused(1, cache.shape().value_dim);
  const std::size_t group = cache.shape().queries_per_kv_head, tokens = last.size() / group;
  for (std::size_t r = 0; r < out.rows(); ++r) {
    // Of fewer, tokens evenly spaced, with each query head in its turn.
    const std::size_t q = r * tokens / out.rows() * group + r % group;
    of.attention().attend(kv_head, segments, last.rows(q, 1), unused.view(), out[r]);
  }
  return out;
}

}  // namespace ballast
