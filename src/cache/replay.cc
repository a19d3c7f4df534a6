// Second readings, and the one budget that their scores are divided by.
#include <algorithm>
#include <cmath>

#include "ballast/memory_size.h"
#include "base/checks.h"
#include "base/fail.h"
#include "base/thread_pool.h"
#include "cache/byte_budget.h"
#include "cache/layer_cache.h"
#include "cache/replay_scores.h"
#include "simd/vector_math.h"
#include "summary/replay.h"

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

}  // namespace

void Cache::start_replay(std::size_t layer, ConstMatrix output_grams) {
  const CacheShape& s = shape();
  require(layer < layers_.size(), "layer {} of a cache of {} layers", layer, layers_.size());
  const ReplayScore score = wanted_score(options());
  require(score != ReplayScore::none, "method {} has no use for a second reading",
          options().policy.info().name);
  require(options().positions == Positions::absolute,
          "a second reading needs absolute positions, not rolling ones");
  const std::size_t group = s.queries_per_kv_head, dim = s.value_dim;
  require(output_grams.rows == 0 ||
              (output_grams.rows == s.kv_heads * group * dim && output_grams.cols == dim),
          "the output projections are {} × {}, expected {} × {}", output_grams.rows,
          output_grams.cols, s.kv_heads * group * dim, dim);
  // Scores that forks share stay as they are; this is another reading.
  if (!scores_ || scores_.use_count() > 1)
    scores_ = std::make_shared<ReplayScores>(s.layers, s.kv_heads);
  std::vector<ReplayHead>& heads = scores_->layer(layer);
  const PoolScope scope(options().pool.get());
  parallel_for(heads.size(), [&](std::size_t h) {
    heads[h].scores.assign(tokens(layer), 0.0f);
    if (score != ReplayScore::max) return;
    heads[h].value_norms = Matrix(group, tokens(layer));
    const ConstMatrix grams =
        output_grams.rows == 0 ? output_grams : output_grams.slice(h * group * dim, group * dim);
    value_norms(segments(layer, h), grams, heads[h].value_norms);
  });
}

void Cache::replay(std::size_t layer, ConstMatrix keys, ConstMatrix values, ConstMatrix queries,
                   std::span<const float> query_weights, MutableMatrix out) {
  const CacheShape& s = shape();
  require(layer < layers_.size(), "layer {} of a cache of {} layers", layer, layers_.size());
  require(scores_ != nullptr && scores_->layer(layer)[0].scores.size() == tokens(layer),
          "layer {}: a second reading follows start_replay(), with no token between", layer);
  require(scores_.use_count() == 1,
          "layer {}: a fork or clone shares the scores of this reading, which nothing may change",
          layer);
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
  layers_[layer]->replay(keys, values, queries, query_weights, out, wanted_score(options()),
                         scores_->layer(layer));
}

std::span<const float> Cache::replay_scores(std::size_t layer, std::size_t head) const {
  require(head < shape().kv_heads, "KV head {} of {}", head, shape().kv_heads);
  if (!scores_) return {};
  return scores_->layer(layer)[head].scores;
}

void LayerCache::replay(ConstMatrix keys, ConstMatrix values, ConstMatrix queries,
                        std::span<const float> query_weights, MutableMatrix out, ReplayScore score,
                        std::span<ReplayHead> heads) const {
  const PoolScope scope(options_.pool.get());
  const std::size_t tokens = keys.rows, group = shape_.queries_per_kv_head;
  const std::size_t key_dim = shape_.key_dim, value_dim = shape_.value_dim;
  // Of each KV head: what was read, then the tokens that read it again.
  struct Own {
    Rows keys, values;
    std::vector<Segment> segments;
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
    seen[q].assign(heads[q / group].scores.size() + tokens, 0.0f);
    std::vector<float> biases;
    if (!shape_.alibi_slopes.empty()) biases.assign(tokens, shape_.alibi_slopes[q]);
    const Queries asked{
        {queries.data + q * key_dim, tokens, key_dim, queries.stride}, positions, biases};
    attend_with_scores(
        asked, mine.segments, logits(), {out.data + q * value_dim, tokens, value_dim, out.stride},
        reduction, score == ReplayScore::max ? query_weights : std::span<const float>{}, seen[q]);
  });
  parallel_for(heads_.size(), [&](std::size_t h) {
    std::vector<float>& scores = heads[h].scores;
    for (std::size_t g = 0; g < group; ++g) {
      const std::vector<float>& from = seen[h * group + g];
      for (std::size_t j = 0; j < scores.size(); ++j) {
        if (score == ReplayScore::max) {
          scores[j] = std::max(scores[j], from[j] * heads[h].value_norms[g][j]);
        } else if (score == ReplayScore::plain) {
          scores[j] = std::max(scores[j], from[j]);
        } else {
          scores[j] += from[j];
        }
      }
    }
  });
}

void LayerCache::finish_prompt(std::span<const std::vector<std::uint8_t>> tiers) {
  require(!prompt_ended_, "layer {}: the prompt was already finished", layer_);
  const PoolScope scope(options_.pool.get());
  prompt_ended_ = true;
  prompt_tokens_ = tokens();
  if (tiers.empty()) return;
  const std::size_t later =
      options_.expected_tokens > tokens_ ? options_.expected_tokens - tokens_ : 0;
  budget_ = {};
  parallel_for(heads_.size(), [&](std::size_t h) { heads_[h].summarize(tiers[h], later, now()); });
  for (const HeadCache& head : heads_) {
    budget_.summary = std::max(budget_.summary, head.summary->entries());
  }
  for (HeadCache& head : heads_) head.setup.capacity = head.summary->entries();
  state_ = State::growing;
}

std::size_t Cache::whole_budget() const {
  return options().policy.memory("bytes").bytes(tokens(), exact_bf16_bytes(shape(), tokens()));
}

bool Cache::fits_exactly() const {
  const CacheShape& s = shape();
  const auto stored = [](StorageType type, std::size_t dim) {
    return row_bytes(type, dim) + row_scales(type, dim) * sizeof(std::uint16_t);
  };
  const std::size_t row =
      stored(options().key_type, s.key_dim) + stored(options().value_type, s.value_dim);
  return tokens() * s.layers * s.kv_heads * row <= whole_budget();
}

void Cache::forget_replay() { scores_.reset(); }

bool Cache::needs_replay() const {
  if (wanted_score(options()) == ReplayScore::none || scores_ != nullptr || tokens() == 0) {
    return false;
  }
  return !options().policy.info().whole_cache || !fits_exactly();
}

void Cache::finish_whole_prompt() {
  const CacheShape& s = shape();
  const std::size_t n = tokens();
  for (std::size_t l = 1; l < s.layers; ++l) {
    require(tokens(l) == n, "layer {} has read {} tokens, layer 0 {}", l, tokens(l), n);
  }
  const Policy& policy = options().policy;
  if (fits_exactly()) {
    scores_.reset();
    for (auto& layer : layers_) layer->finish_prompt(std::span<const HeadTiers>{});
    return;
  }
  require(scores_ != nullptr, "method {} needs a second reading before the prompt ends",
          policy.info().name);
  std::vector<HeadScores> heads;
  for (std::size_t l = 0; l < s.layers; ++l) {
    for (std::size_t h = 0; h < s.kv_heads; ++h) {
      heads.push_back({replay_scores(l, h),
                       {},
                       static_cast<std::size_t>(policy.integer("sink")),
                       static_cast<std::size_t>(policy.integer("window"))});
      require(heads.back().scores.size() == n,
              "layer {}: tokens came after the second reading began", l);
    }
  }
  const std::vector<Tier> tiers = replay_tiers(policy, s.key_dim, s.value_dim);
  // Means of rotated rows, once a head.
  std::size_t means = 0;
  const auto rotated = [&](StorageType Tier::*type) {
    return std::ranges::any_of(tiers, [&](const Tier& tier) { return is_rotated(tier.*type); });
  };
  if (rotated(&Tier::key_type)) means += s.key_dim * sizeof(float);
  if (rotated(&Tier::value_type)) means += s.value_dim * sizeof(float);
  const Allocation allocation =
      allocate(heads, tiers, whole_budget(), s.layers * s.kv_heads * means);
  scores_.reset();
  for (std::size_t l = 0; l < s.layers; ++l) {
    layers_[l]->finish_prompt(std::span(allocation.heads).subspan(l * s.kv_heads, s.kv_heads));
  }
}

}  // namespace ballast
