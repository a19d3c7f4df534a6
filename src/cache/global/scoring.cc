#include "ballast/scoring.h"

#include <algorithm>
#include <cmath>

#include "base/checks.h"
#include "base/fail.h"
#include "base/thread_pool.h"
#include "cache/cache_parts.h"
#include "cache/global/replay_pass.h"
#include "simd/vector_math.h"

namespace ballast {
namespace {

/// norms[g][j] = sqrt(v_j^T A_g v_j), where rounding may leave the form below 0.
void value_norms(const std::vector<Segment>& segments, ConstMatrix grams, Matrix& norms) {
  std::size_t entry = 0;
  std::vector<float> value, product;
  for (const Segment& segment : segments) {
    const std::size_t dim = segment.values.dim;
    value.resize(dim);
    product.resize(dim);
    for (std::size_t i = 0; i < segment.values.rows; ++i, ++entry) {
      segment.values.decode(i, value);
      for (std::size_t g = 0; g < norms.rows(); ++g) {
        float square = kernels::dot(value, value);
        if (grams.rows != 0) {
          std::ranges::fill(product, 0.0f);
          for (std::size_t a = 0; a < dim; ++a) {
            kernels::axpy(value[a], grams[g * dim + a], product);
          }
          square = kernels::dot(value, product);
        }
        norms[g][entry] = std::sqrt(std::max(square, 0.0f));
      }
    }
  }
}

/// The score that a cache's method or its recording asks for.
ReplayScore wanted_score(const CacheOptions& options) {
  const ReplayScore wanted = options.policy.needs().replay;
  return wanted != ReplayScore::none ? wanted : options.recording.replay;
}

/// Tokens of a chunk that scores its own entries alone; 0: chunks score all entries.
std::size_t own_chunk(const CacheOptions& options) {
  if (options.policy.needs().replay_own)
    return static_cast<std::size_t>(options.policy.integer("chunk"));
  return options.recording.replay_own ? options.recording.replay_chunk : 0;
}

}  // namespace

Scoring::Scoring(CacheParts& cache) : cache_(cache) {
  if (gives_scores()) {
    scores_ = std::make_shared<ReplayScores>(cache.shape.layers, cache.shape.kv_heads);
  }
}
Scoring::~Scoring() = default;

bool Scoring::gives_scores() const { return wanted_score(cache_.options) == ReplayScore::given; }

bool Scoring::takes_scores() const {
  return gives_scores() && (streams() || !cache_.layers[0]->prompt_ended());
}

void Scoring::note_scores(std::size_t layer, ConstMatrix scores) {
  const CacheShape& s = cache_.shape;
  require(takes_scores(), "method {} takes no scores with its tokens",
          cache_.options.policy.info().name);
  require(layer < cache_.layers.size(), "layer {} of a cache of {} layers", layer,
          cache_.layers.size());
  require(scores.cols == s.kv_heads, "scores of {} KV heads, expected {}", scores.cols, s.kv_heads);
  std::vector<ReplayHead>& heads = scores_->layer(layer);
  const std::size_t entries = cache_.layers[layer]->head(0).entries(), had = heads[0].scores.size();
  require(had + scores.rows == entries, "layer {}: {} scores for {} new tokens", layer, scores.rows,
          entries - std::min(entries, had));
  for (std::size_t t = 0; t < scores.rows; ++t) {
    require(std::ranges::all_of(scores[t], [](float x) { return x >= 0 && std::isfinite(x); }),
            "layer {}: a score of token {} is negative or not finite", layer, t);
  }
  for (std::size_t h = 0; h < s.kv_heads; ++h) {
    for (std::size_t t = 0; t < scores.rows; ++t) heads[h].scores.push_back(scores[t][h]);
  }
}

void Scoring::start_replay(std::size_t layer, ConstMatrix output_grams) {
  const CacheShape& s = cache_.shape;
  require(layer < cache_.layers.size(), "layer {} of a cache of {} layers", layer,
          cache_.layers.size());
  const ReplayScore score = wanted_score(cache_.options);
  require(score != ReplayScore::none && score != ReplayScore::given,
          "method {} has no use for a replay pass", cache_.options.policy.info().name);
  require(cache_.options.positions == Positions::absolute,
          "a replay pass needs absolute positions, not rolling ones");
  const std::size_t group = s.queries_per_kv_head, dim = s.value_dim;
  require(output_grams.rows == 0 ||
              (output_grams.rows == s.kv_heads * group * dim && output_grams.cols == dim),
          "the output projections are {} × {}, expected {} × {}", output_grams.rows,
          output_grams.cols, s.kv_heads * group * dim, dim);
  // Scores that forks share stay as they are; this is another reading.
  if (!scores_ || (scores_.use_count() > 1 && !streams())) {
    scores_ = std::make_shared<ReplayScores>(s.layers, s.kv_heads);
  } else if (scores_.use_count() > 1) {
    scores_ = std::make_shared<ReplayScores>(scores_->copy());
  }
  scores_->read(layer) = 0;
  std::vector<ReplayHead>& heads = scores_->layer(layer);
  const PoolScope scope(cache_.options.pool.get());
  parallel_for(heads.size(), [&](std::size_t h) {
    ReplayHead& head = heads[h];
    const std::vector<Segment> entries = cache_.layers[layer]->segments(h);
    // What a stream holds has its scores; the chunk's tokens come last.
    const std::size_t chunk = streams() ? chunk_tokens() : cache_.layers[layer]->tokens();
    const std::size_t held = cache_.layers[layer]->head(h).entries() - chunk;
    // Without room to spare, which growing by resize() would take.
    head.scores.resize(held);
    head.scores.reserve(held + chunk);
    head.scores.resize(held + chunk, 0.0f);
    if (score != ReplayScore::max) return;
    Matrix norms(group, chunk);
    const ConstMatrix grams =
        output_grams.rows == 0 ? output_grams : output_grams.slice(h * group * dim, group * dim);
    value_norms(held == 0 ? entries : std::vector<Segment>{entries.back()}, grams, norms);
    if (!streams()) {
      head.value_norms = std::make_shared<Matrix>(std::move(norms));
      return;
    }
    head.norms.resize(held);
    head.norms.reserve(held + chunk);
    head.norms.resize(held + chunk, 0.0f);
    for (std::size_t g = 0; g < group; ++g) {
      for (std::size_t i = 0; i < chunk; ++i) {
        head.norms[held + i] = std::max(head.norms[held + i], norms[g][i]);
      }
    }
  });
}

void Scoring::check_replay(std::size_t layer, ConstMatrix keys, ConstMatrix values,
                           ConstMatrix queries, std::span<const float> query_weights,
                           MutableMatrix out) const {
  const CacheShape& s = cache_.shape;
  require(layer < cache_.layers.size(), "layer {} of a cache of {} layers", layer,
          cache_.layers.size());
  require(scores_ != nullptr &&
              scores_->layer(layer)[0].scores.size() == cache_.layers[layer]->head(0).entries(),
          "layer {}: a replay pass follows start_replay(), with no token between", layer);
  const std::size_t query_heads = s.kv_heads * s.queries_per_kv_head;
  const auto check = [&](ConstMatrix rows, std::size_t cols, const char* name) {
    require(rows.rows == keys.rows && rows.cols == cols, "{} are {} × {}, expected {} × {}", name,
            rows.rows, rows.cols, keys.rows, cols);
    for (std::size_t t = 0; t < rows.rows; ++t) {
      require(first_not_finite(rows[t]) == cols, "{}: token {} is not finite", name, t);
    }
  };
  check(keys, s.kv_heads * s.key_dim, "keys");
  check(values, s.kv_heads * s.value_dim, "values");
  check(queries, query_heads * s.key_dim, "queries");
  require(out.rows == keys.rows && out.cols == query_heads * s.value_dim,
          "the output is {} × {}, expected {} × {}", out.rows, out.cols, keys.rows,
          query_heads * s.value_dim);
  require(query_weights.empty() || query_weights.size() == keys.rows, "{} tokens have {} weights",
          keys.rows, query_weights.size());
}

void Scoring::replay(std::size_t layer, ConstMatrix keys, ConstMatrix values, ConstMatrix queries,
                     std::span<const float> query_weights, MutableMatrix out) {
  check_replay(layer, keys, values, queries, query_weights, out);
  require(scores_.use_count() == 1,
          "layer {}: a fork or clone shares the scores of this reading, which nothing may change",
          layer);
  std::optional<OwnChunk> own;
  if (const std::size_t chunk = own_chunk(cache_.options); chunk > 0) {
    const std::size_t all = cache_.layers[layer]->chunk_tokens(), first = scores_->read(layer);
    own = {first, std::min(chunk, all - std::min(first, all))};
    require(own->count > 0 && own->count <= keys.rows,
            "layer {}: {} tokens read again, where the next chunk has {}", layer, keys.rows,
            own->count);
    scores_->read(layer) += own->count;
  }
  run_replay(*cache_.layers[layer], {keys, values, queries, query_weights, out},
             wanted_score(cache_.options), own, scores_->layer(layer));
}

void Scoring::replay_question(std::size_t layer, ConstMatrix keys, ConstMatrix values,
                              ConstMatrix queries, std::span<const float> query_weights,
                              MutableMatrix out) {
  require(cache_.options.policy.needs().question,
          "method {} takes no question into account: question=known",
          cache_.options.policy.to_string());
  check_replay(layer, keys, values, queries, query_weights, out);
  // Forks that share the scores have not been asked.
  if (scores_.use_count() > 1) scores_ = std::make_shared<ReplayScores>(scores_->copy());
  std::vector<ReplayHead>& heads = scores_->layer(layer);
  std::vector<ReplayHead> asked(heads.size());
  for (std::size_t h = 0; h < heads.size(); ++h) {
    asked[h].scores.assign(heads[h].scores.size(), 0.0f);
    asked[h].value_norms = heads[h].value_norms;
  }
  run_replay(*cache_.layers[layer], {keys, values, queries, query_weights, out},
             wanted_score(cache_.options), {}, asked);
  constexpr std::size_t kSide = 3;
  for (std::size_t h = 0; h < heads.size(); ++h) {
    const VectorInOwnPages<float>& from = asked[h].scores;
    for (std::size_t j = 0; j < from.size(); ++j) {
      const std::size_t end = std::min(j + kSide + 1, from.size());
      for (std::size_t i = j - std::min(j, kSide); i < end; ++i) {
        heads[h].scores[j] = std::max(heads[h].scores[j], from[i]);
      }
    }
  }
}

std::span<const float> Scoring::scores(std::size_t layer, std::size_t head) const {
  require(head < cache_.shape.kv_heads, "KV head {} of {}", head, cache_.shape.kv_heads);
  if (!scores_) return {};
  return scores_->layer(layer)[head].scores;
}

bool Scoring::streams() const { return cache_.global && cache_.global->streams(); }

std::size_t Scoring::chunk_room() const { return cache_.layers[0]->chunk_room(); }

std::size_t Scoring::chunk_tokens() const {
  return streams() ? cache_.layers[0]->chunk_tokens() : 0;
}

void Scoring::end_chunk() {
  require(chunk_tokens() > 0,
          "a chunk ends in stream, for methods with one budget, once it has tokens");
  cache_.global->end_chunk(cache_.global->bytes());
}

void Scoring::compact(std::size_t bytes) {
  require(streams() && cache_.tokens() > 0,
          "a cache of tokens is compacted in stream, by methods with one budget: calibrated or "
          "replay, not {} in {}",
          cache_.options.policy.info().name, to_string(cache_.options.protocol));
  cache_.global->end_chunk(bytes);
}

void Scoring::set_scores(std::size_t layer, std::size_t kv_head, std::span<const float> scores) {
  cache_.layer(layer, kv_head);
  const CacheOptions& options = cache_.options;
  require(
      options.policy.needs().replay != ReplayScore::none && options.protocol == Protocol::prefill,
      "method {} in {} has no use for scores", options.policy.info().name,
      to_string(options.protocol));
  const std::size_t tokens = cache_.layers[layer]->tokens();
  require(scores.size() == tokens, "{} scores for {} tokens", scores.size(), tokens);
  require(std::ranges::all_of(scores, [](float x) { return x >= 0 && std::isfinite(x); }),
          "layer {}, KV head {}: a score is negative or not finite", layer, kv_head);
  if (!scores_)
    scores_ = std::make_shared<ReplayScores>(cache_.shape.layers, cache_.shape.kv_heads);
  scores_->layer(layer)[kv_head].scores.assign(scores.begin(), scores.end());
}

void Scoring::discard_replay() {
  // What a stream holds keeps its scores.
  if (gives_scores() || (streams() && chunk_tokens() != cache_.tokens())) return;
  scores_.reset();
}

bool Scoring::needs_replay() const {
  if (streams()) {
    return chunk_tokens() > 0 &&
           (chunk_tokens() != cache_.tokens() || !cache_.global->fits_exactly());
  }
  const ReplayScore wanted = wanted_score(cache_.options);
  if (wanted == ReplayScore::none || gives_scores() || scores_ != nullptr || cache_.tokens() == 0) {
    return false;
  }
  return !cache_.global || !cache_.global->fits_exactly();
}

void Scoring::copy(const Scoring& other) {
  scores_ = other.scores_ && other.gives_scores()
                ? std::make_shared<ReplayScores>(other.scores_->copy())
                : other.scores_;
}

void Scoring::truncate() {
  if (!takes_scores() || !scores_) return;
  for (std::size_t l = 0; l < cache_.layers.size(); ++l) {
    for (std::size_t h = 0; h < cache_.shape.kv_heads; ++h) {
      VectorInOwnPages<float>& scores = scores_->layer(l)[h].scores;
      scores.resize(std::min(scores.size(), cache_.layers[l]->head(h).entries()));
    }
  }
}

std::size_t Scoring::bytes() const { return scores_ ? scores_->bytes() : 0; }

Scoring& scoring_of(Cache& cache) { return CacheParts::of(cache).scoring; }
const Scoring& scoring_of(const Cache& cache) { return CacheParts::of(cache).scoring; }

}  // namespace ballast
