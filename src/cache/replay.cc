// Second readings of a text: what each entry scores.
#include <algorithm>
#include <cmath>
#include <optional>

#include "base/checks.h"
#include "base/fail.h"
#include "base/thread_pool.h"
#include "cache/cache_parts.h"
#include "methods/refit.h"
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
  const ReplayScore wanted = options.policy.attention_stats().replay;
  return wanted != ReplayScore::none ? wanted : options.recording.replay;
}

/// Tokens of a chunk that scores its own entries alone; 0: chunks score all entries.
std::size_t own_chunk(const CacheOptions& options) {
  if (options.policy.attention_stats().replay_own)
    return static_cast<std::size_t>(options.policy.integer("chunk"));
  return options.recording.replay_own ? options.recording.replay_chunk : 0;
}

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

/// Whether a second reading notes queries.
bool notes_queries(const CacheOptions& options) {
  return options.policy.attention_stats().refit || options.recording.replay_queries;
}

/// log Σ e^logit of a query over the first `count` keys, the last of which is its own token's.
float log_sum(std::span<const float> query, const RowsView& keys, std::size_t count,
              const Logits& logits) {
  const auto window = static_cast<std::size_t>(logits.sliding_window);
  std::vector<float> key(keys.dim), all;
  for (std::size_t i = window > 0 ? count - std::min(window, count) : 0; i < count; ++i) {
    keys.decode(i, key);
    all.push_back(logit_of(kernels::dot(query, key), logits));
  }
  const float most = *std::ranges::max_element(all);
  float sum = 0;
  for (float x : all) sum += std::exp(x - most);
  return most + std::log(sum);
}

}  // namespace

bool CacheParts::gives_scores() const { return wanted_score(options) == ReplayScore::given; }

bool Scoring::takes_scores() const {
  return cache_.gives_scores() && (cache_.works_in_chunks() || !cache_.layers[0]->prompt_ended());
}

void Scoring::note_scores(std::size_t layer, ConstMatrix scores) {
  const CacheShape& s = cache_.shape;
  require(takes_scores(), "method {} takes no scores with its tokens",
          cache_.options.policy.info().name);
  require(layer < cache_.layers.size(), "layer {} of a cache of {} layers", layer,
          cache_.layers.size());
  require(scores.cols == s.kv_heads, "scores of {} KV heads, expected {}", scores.cols, s.kv_heads);
  std::vector<ReplayHead>& heads = cache_.scores->layer(layer);
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
          "method {} has no use for a second reading", cache_.options.policy.info().name);
  require(cache_.options.positions == Positions::absolute,
          "a second reading needs absolute positions, not rolling ones");
  const std::size_t group = s.queries_per_kv_head, dim = s.value_dim;
  require(output_grams.rows == 0 ||
              (output_grams.rows == s.kv_heads * group * dim && output_grams.cols == dim),
          "the output projections are {} × {}, expected {} × {}", output_grams.rows,
          output_grams.cols, s.kv_heads * group * dim, dim);
  // Scores that forks share stay as they are; this is another reading.
  if (!cache_.scores || (cache_.scores.use_count() > 1 && !cache_.works_in_chunks())) {
    cache_.scores = std::make_shared<ReplayScores>(s.layers, s.kv_heads);
  } else if (cache_.scores.use_count() > 1) {
    cache_.scores = std::make_shared<ReplayScores>(cache_.scores->copy());
  }
  cache_.scores->read(layer) = 0;
  std::vector<ReplayHead>& heads = cache_.scores->layer(layer);
  const PoolScope scope(cache_.options.pool.get());
  parallel_for(heads.size(), [&](std::size_t h) {
    ReplayHead& head = heads[h];
    const std::vector<Segment> entries = cache_.layers[layer]->segments(h);
    // What a stream holds has its scores; the chunk's tokens come last.
    const std::size_t chunk =
        cache_.works_in_chunks() ? chunk_tokens() : cache_.layers[layer]->tokens();
    const std::size_t held = cache_.layers[layer]->head(h).entries() - chunk;
    // Without room to spare, which growing by resize() would take.
    head.scores.resize(held);
    head.scores.reserve(held + chunk);
    head.scores.resize(held + chunk, 0.0f);
    if (notes_queries(cache_.options)) head.queries = std::make_shared<ReplayQueries>();
    if (score != ReplayScore::max) return;
    Matrix norms(group, chunk);
    const ConstMatrix grams =
        output_grams.rows == 0 ? output_grams : output_grams.slice(h * group * dim, group * dim);
    value_norms(held == 0 ? entries : std::vector<Segment>{entries.back()}, grams, norms);
    if (!cache_.works_in_chunks()) {
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
  require(cache_.scores != nullptr && cache_.scores->layer(layer)[0].scores.size() ==
                                          cache_.layers[layer]->head(0).entries(),
          "layer {}: a second reading follows start_replay(), with no token between", layer);
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
  require(cache_.scores.use_count() == 1,
          "layer {}: a fork or clone shares the scores of this reading, which nothing may change",
          layer);
  std::optional<LayerCache::OwnChunk> own;
  if (const std::size_t chunk = own_chunk(cache_.options); chunk > 0) {
    const std::size_t all = cache_.layers[layer]->chunk_tokens(),
                      first = cache_.scores->read(layer);
    own = {first, std::min(chunk, all - std::min(first, all))};
    require(own->count > 0 && own->count <= keys.rows,
            "layer {}: {} tokens read again, where the next chunk has {}", layer, keys.rows,
            own->count);
    cache_.scores->read(layer) += own->count;
  }
  cache_.layers[layer]->replay(keys, values, queries, query_weights, out,
                               wanted_score(cache_.options), own, cache_.scores->layer(layer));
}

void Scoring::replay_question(std::size_t layer, ConstMatrix keys, ConstMatrix values,
                              ConstMatrix queries, std::span<const float> query_weights,
                              MutableMatrix out) {
  require(cache_.options.policy.attention_stats().question,
          "method {} takes no question into account: question=known",
          cache_.options.policy.to_string());
  check_replay(layer, keys, values, queries, query_weights, out);
  // Forks that share the scores have not been asked.
  if (cache_.scores.use_count() > 1)
    cache_.scores = std::make_shared<ReplayScores>(cache_.scores->copy());
  std::vector<ReplayHead>& heads = cache_.scores->layer(layer);
  std::vector<ReplayHead> asked(heads.size());
  for (std::size_t h = 0; h < heads.size(); ++h) {
    asked[h].scores.assign(heads[h].scores.size(), 0.0f);
    asked[h].value_norms = heads[h].value_norms;
  }
  cache_.layers[layer]->replay(keys, values, queries, query_weights, out,
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
  if (!cache_.scores) return {};
  return cache_.scores->layer(layer)[head].scores;
}

void LayerCache::replay(ConstMatrix keys, ConstMatrix values, ConstMatrix queries,
                        std::span<const float> query_weights, MutableMatrix out, ReplayScore score,
                        std::optional<OwnChunk> chunk, std::span<ReplayHead> heads) const {
  const PoolScope scope(options_.pool.get());
  const std::size_t tokens = keys.rows, group = shape_.queries_per_kv_head;
  const std::size_t key_dim = shape_.key_dim, value_dim = shape_.value_dim;
  // Of each KV head: what was read, then the tokens that read it again.
  struct Own {
    Rows keys, values;
    std::vector<Segment> segments;
    std::vector<Segment> scored;  ///< where a chunk scores its own entries: first tokens, it, these
  };
  std::vector<Own> own(heads_.size());
  std::vector<Position> positions(tokens);
  for (std::size_t t = 0; t < tokens; ++t) positions[t] = now() + static_cast<Position>(t);
  parallel_for(heads_.size(), [&](std::size_t h) {
    Own& mine = own[h];
    mine.keys = Rows(options_.key_type, key_dim, tokens);
    mine.values = Rows(options_.value_type, value_dim, tokens);
    for (std::size_t t = 0; t < tokens; ++t) {
      mine.keys.set(t, {keys.row(t) + h * key_dim, key_dim});
      mine.values.set(t, {values.row(t) + h * value_dim, value_dim});
    }
    heads_[h].segments(now(), mine.segments);
    Segment segment;
    segment.keys = mine.keys.view(0, tokens);
    segment.values = mine.values.view(0, tokens);
    segment.first_position = now();
    if (chunk) {
      constexpr Position kFirst = 4;
      const Segment window = mine.segments.back();
      const auto begin = static_cast<Position>(chunk->first) + window.first_position;
      add_before(mine.segments, heads_[h].summary_positions(), std::min(kFirst, begin),
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
  std::vector<std::vector<float>> seen(heads_.size() * group);
  parallel_for(seen.size(), [&](std::size_t q) {
    const Own& mine = own[q / group];
    const std::vector<Segment>& scored = chunk ? mine.scored : mine.segments;
    seen[q].assign(rows_of(scored), 0.0f);
    const auto each = [&](std::span<const float> of) {
      return of.empty() ? std::vector<float>() : std::vector<float>(tokens, of[q % group]);
    };
    const std::vector<float> biases = each(slopes(q / group)), sinks = each(this->sinks(q / group));
    const Queries asked{
        {queries.data + q * key_dim, tokens, key_dim, queries.stride}, positions, biases, sinks};
    const MutableMatrix answers{out.data + q * value_dim, tokens, value_dim, out.stride};
    Matrix unused;
    if (chunk) {
      attend(asked, mine.segments, logits(), answers);
      unused = Matrix(tokens, value_dim);
    }
    attend_with_scores(asked, scored, logits(), chunk ? unused.view() : answers, reduction,
                       score == ReplayScore::max ? query_weights : std::span<const float>{},
                       seen[q]);
  });
  parallel_for(heads_.size(), [&](std::size_t h) {
    if (heads[h].queries) note_queries(h, queries, own[h].keys.view(0, tokens), *heads[h].queries);
  });
  parallel_for(heads_.size(), [&](std::size_t h) {
    const std::span<float> scores = heads[h].scores;
    // Where the entries scored stand: the tokens that read again come last, the chunk before them.
    const std::size_t before = chunk ? scores.size() - chunk_tokens() + chunk->first : 0;
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

void LayerCache::note_queries(std::size_t h, ConstMatrix queries, const RowsView& keys,
                              ReplayQueries& noted) const {
  constexpr std::size_t kMost = 1536;
  const std::size_t group = shape_.queries_per_kv_head, dim = shape_.key_dim;
  // A little less than would fill it, since wordings are read between the chunks of the text.
  const double part = 0.9 * static_cast<double>(kMost / group) / static_cast<double>(tokens_);
  for (std::size_t t = 0; t < queries.rows; ++t) {
    if (random_unit(heads_[h].setup.random, noted.read++) >= part ||
        noted.positions.size() + group > kMost)
      continue;
    for (std::size_t g = 0; g < group; ++g) {
      const std::span<const float> query = queries[t].subspan((h * group + g) * dim, dim);
      noted.rows.insert(noted.rows.end(), query.begin(), query.end());
      noted.positions.push_back(now() + static_cast<Position>(t));
      float outside = log_sum(query, keys, t + 1, logits());
      if (const std::span<const float> sinks = this->sinks(h); !sinks.empty()) {
        const float most = std::max(outside, sinks[g]);
        outside = most + std::log(std::exp(outside - most) + std::exp(sinks[g] - most));
      }
      noted.outside_logits.push_back(outside);
    }
  }
}

void Scoring::discard_replay() {
  // What a stream holds keeps its scores.
  if (cache_.gives_scores() || (cache_.works_in_chunks() && chunk_tokens() != cache_.tokens()))
    return;
  cache_.scores.reset();
}

bool Scoring::needs_replay() const {
  if (cache_.works_in_chunks()) {
    return chunk_tokens() > 0 && (chunk_tokens() != cache_.tokens() || !cache_.fits_exactly());
  }
  const ReplayScore wanted = wanted_score(cache_.options);
  if (wanted == ReplayScore::none || cache_.gives_scores() || cache_.scores != nullptr ||
      cache_.tokens() == 0) {
    return false;
  }
  return !cache_.options.policy.info().whole_cache || !cache_.fits_exactly();
}

}  // namespace ballast
