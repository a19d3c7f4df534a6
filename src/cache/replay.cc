// Second readings, and the one budget that their scores are divided by.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ballast/memory_size.h"
#include "ballast/serialize.h"
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

/// bytes= of the method for a text of so many tokens.
std::size_t budget_for(const CacheShape& s, const Policy& policy, std::size_t tokens) {
  return policy.memory("bytes").bytes(tokens, exact_bf16_bytes(s, tokens));
}

/// Of a token, in all layers, as it is read.
std::size_t token_bytes(const CacheShape& s, const CacheOptions& options) {
  return s.layers * s.kv_heads *
         (stored_row_bytes(options.key_type, s.key_dim) +
          stored_row_bytes(options.value_type, s.value_dim));
}

/// Of a head's means of rotated rows.
std::size_t mean_bytes(std::span<const Tier> tiers, const CacheShape& s) {
  const auto rotated = [&](StorageType Tier::*type) {
    return std::ranges::any_of(tiers, [&](const Tier& tier) { return is_rotated(tier.*type); });
  };
  return (rotated(&Tier::key_type) ? s.key_dim * sizeof(float) : 0) +
         (rotated(&Tier::value_type) ? s.value_dim * sizeof(float) : 0);
}

/// The entries of one head for the allocation, a run for each of its segments; `scores`: in their
/// order. The first `held` entries have a tier already.
void add_runs(const std::vector<Segment>& segments, std::span<const float> scores, std::size_t held,
              std::span<const Tier> tiers, ScoredRun run, std::vector<ScoredRun>& out) {
  std::size_t at = 0;
  for (const Segment& segment : segments) {
    const std::size_t count = segment.keys.rows;
    run.best = 0;
    while (at < held && (tiers[run.best].key_type != segment.keys.type ||
                         tiers[run.best].value_type != segment.values.type)) {
      ++run.best;
    }
    run.scores = scores.subspan(at, count);
    run.positions = {};
    if (segment.positions != nullptr) run.positions = {segment.positions, count};
    run.first_position = segment.first_position;
    out.push_back(run);
    at += count;
  }
}

/// What a method keeps in any case of a text of `n` tokens.
ScoredRun protected_run(const Policy& policy, std::size_t n, std::size_t head) {
  ScoredRun run;
  run.head = static_cast<std::uint32_t>(head);
  run.first = static_cast<Position>(policy.integer("sink"));
  const auto window = static_cast<std::size_t>(policy.integer("window"));
  run.last = static_cast<Position>(n - std::min(n, window));
  return run;
}

}  // namespace

ReplayHead ReplayHead::kept(std::span<const ScoredRun> runs, std::span<const std::uint8_t> given,
                            std::size_t tiers) const {
  ReplayHead out;
  const auto count = static_cast<std::size_t>(
      std::ranges::count_if(given, [&](std::uint8_t t) { return t < tiers; }));
  out.scores.reserve(count);
  if (!norms.empty()) out.norms.reserve(count);
  std::vector<std::pair<Position, std::uint32_t>> order;
  for (std::size_t t = 0; t < tiers; ++t) {
    order.clear();
    std::uint32_t at = 0;
    for (const ScoredRun& run : runs) {
      for (std::size_t i = 0; i < run.scores.size(); ++i, ++at) {
        if (given[at] == t) order.emplace_back(run.position(i), at);
      }
    }
    std::ranges::sort(order);
    for (const auto& [position, i] : order) {
      out.scores.push_back(scores[i]);
      if (!norms.empty()) out.norms.push_back(norms[i]);
    }
  }
  return out;
}

std::size_t exact_limit(const CacheShape& shape, const CacheOptions& options) {
  const auto chunk = static_cast<std::size_t>(options.policy.integer("chunk"));
  const MemorySize size = options.policy.memory("bytes");
  const std::size_t each = token_bytes(shape, options), known = options.expected_tokens;
  if (size.needs_length() && known == 0) {  // bytes a token
    return size.amount >= static_cast<double>(each) ? std::numeric_limits<std::size_t>::max()
                                                    : chunk;
  }
  const std::size_t fits = budget_for(shape, options.policy, known) / each;
  return std::max({chunk, fits / chunk * chunk, known <= fits ? known : 0});
}

bool Cache::works_in_chunks() const {
  return options().policy.info().whole_cache && options().protocol == Protocol::stream;
}

std::size_t Cache::chunk_room() const { return layers_[0]->chunk_room(); }

std::size_t Cache::chunk_tokens() const {
  return works_in_chunks() ? layers_[0]->chunk_tokens() : 0;
}

void Cache::note_text(std::span<const std::int32_t> tokens) {
  if (works_in_chunks()) notes().insert(notes().end(), tokens.begin(), tokens.end());
}

void Cache::end_chunk() {
  require(works_in_chunks() && chunk_tokens() > 0,
          "a chunk ends in stream, for methods with one budget, once it has tokens");
  const CacheShape& s = shape();
  const Policy& policy = options().policy;
  const std::size_t chunk = chunk_tokens();
  const std::vector<Tier> tiers = replay_tiers(policy, Protocol::stream, s.key_dim, s.value_dim);
  // A clone made since the second reading keeps its scores.
  if (scores_.use_count() > 1) scores_ = std::make_shared<ReplayScores>(scores_->copy());
  std::vector<ScoredRun> runs;
  std::vector<std::size_t> first_run;  // of each head
  for (std::size_t l = 0; l < s.layers; ++l) {
    require(tokens(l) == tokens() && layers_[l]->chunk_tokens() == chunk,
            "layer {} has read {} tokens, layer 0 {}", l, tokens(l), tokens());
    for (std::size_t h = 0; h < s.kv_heads; ++h) {
      const std::size_t entries = layers_[l]->head(h).entries();
      require(scores_ != nullptr && replay_scores(l, h).size() == entries,
              "layer {}: start_replay() and replay() come before end_chunk()", l);
      first_run.push_back(runs.size());
      add_runs(segments(l, h), replay_scores(l, h), entries - chunk, tiers,
               protected_run(policy, tokens(), l * s.kv_heads + h), runs);
    }
  }
  first_run.push_back(runs.size());
  const Allocation allocation =
      allocate(runs, tiers, whole_budget(), s.layers * s.kv_heads * mean_bytes(tiers, s));
  const PoolScope scope(options().pool.get());
  std::vector<EntryTiers> given(s.kv_heads);
  for (std::size_t l = 0; l < s.layers; ++l) {
    for (std::size_t h = 0; h < s.kv_heads; ++h) {
      const std::size_t head = l * s.kv_heads + h;
      given[h].clear();
      for (std::size_t r = first_run[head]; r < first_run[head + 1]; ++r) {
        given[h].insert(given[h].end(), allocation.runs[r].begin(), allocation.runs[r].end());
      }
      ReplayHead& scored = scores_->layer(l)[h];
      scored = scored.kept(
          std::span(runs).subspan(first_run[head], first_run[head + 1] - first_run[head]), given[h],
          tiers.size());
    }
    layers_[l]->end_chunk(given);
  }
  const std::size_t rest = std::min(notes().size(), kOverlap);
  notes() =
      std::vector<std::int32_t>(notes().end() - static_cast<std::ptrdiff_t>(rest), notes().end());
}

void Cache::save_chunk(ByteWriter& out) const {
  out.put<std::uint64_t>(noted_text().size());
  out.put_all<std::int32_t>(noted_text());
  const bool weighs = options().policy.attention_stats().replay == ReplayScore::max;
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    for (std::size_t h = 0; h < shape().kv_heads; ++h) {
      const std::size_t held = layers_[l]->head(h).entries() - chunk_tokens();
      if (held == 0) continue;
      const ReplayHead& head = scores_->layer(l)[h];
      out.put_all<float>(std::span(head.scores).first(held));
      if (weighs) out.put_all<float>(std::span(head.norms).first(held));
    }
  }
}

void Cache::load_chunk(ByteReader& in) {
  notes().resize(
      in.get_count(std::min(in.left() / sizeof(std::int32_t), tokens()), "ids of tokens"));
  in.get_all<std::int32_t>(notes());
  bool holds = false;
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    for (std::size_t h = 0; h < shape().kv_heads; ++h) {
      const HeadCache& head = layers_[l]->head(h);
      require(tokens(l) == tokens() && head.window.size() == chunk_tokens() && head.sink == 0,
              "{}: layer {}, KV head {} has other tokens than the first", in.what(), l, h);
      holds = holds || head.entries() > chunk_tokens();
    }
  }
  if (!holds) return;
  const bool weighs = options().policy.attention_stats().replay == ReplayScore::max;
  scores_ = std::make_shared<ReplayScores>(layers_.size(), shape().kv_heads);
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    for (std::size_t h = 0; h < shape().kv_heads; ++h) {
      ReplayHead& head = scores_->layer(l)[h];
      for (std::vector<float>* part : {&head.scores, &head.norms}) {
        if (part == &head.norms && !weighs) continue;
        part->resize(layers_[l]->head(h).entries() - chunk_tokens());
        in.get_all<float>(*part);
        require(std::ranges::all_of(*part, [](float x) { return x >= 0 && std::isfinite(x); }),
                "{}: a score is negative or not finite", in.what());
      }
    }
  }
}

void LayerCache::end_chunk(std::span<const EntryTiers> tiers) {
  const PoolScope scope(options_.pool.get());
  parallel_for(heads_.size(), [&](std::size_t h) { heads_[h].end_chunk(tiers[h], now()); });
  budget_ = {};
  for (const HeadCache& head : heads_) {
    budget_.summary = std::max(budget_.summary, head.summary->entries());
  }
  state_ = State::growing;
}

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
  if (!scores_ || (scores_.use_count() > 1 && !works_in_chunks())) {
    scores_ = std::make_shared<ReplayScores>(s.layers, s.kv_heads);
  } else if (scores_.use_count() > 1) {
    scores_ = std::make_shared<ReplayScores>(scores_->copy());
  }
  std::vector<ReplayHead>& heads = scores_->layer(layer);
  const PoolScope scope(options().pool.get());
  parallel_for(heads.size(), [&](std::size_t h) {
    ReplayHead& head = heads[h];
    const std::vector<Segment> entries = segments(layer, h);
    // What a stream holds has its scores; the chunk's tokens come last.
    const std::size_t chunk = works_in_chunks() ? chunk_tokens() : tokens(layer);
    const std::size_t held = layers_[layer]->head(h).entries() - chunk;
    // Without room to spare, which growing by resize() would take.
    head.scores.resize(held);
    head.scores.reserve(held + chunk);
    head.scores.resize(held + chunk, 0.0f);
    if (score != ReplayScore::max) return;
    Matrix norms(group, chunk);
    const ConstMatrix grams =
        output_grams.rows == 0 ? output_grams : output_grams.slice(h * group * dim, group * dim);
    value_norms(held == 0 ? entries : std::vector<Segment>{entries.back()}, grams, norms);
    if (!works_in_chunks()) {
      head.value_norms = std::move(norms);
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

void Cache::replay(std::size_t layer, ConstMatrix keys, ConstMatrix values, ConstMatrix queries,
                   std::span<const float> query_weights, MutableMatrix out) {
  const CacheShape& s = shape();
  require(layer < layers_.size(), "layer {} of a cache of {} layers", layer, layers_.size());
  require(scores_ != nullptr &&
              scores_->layer(layer)[0].scores.size() == layers_[layer]->head(0).entries(),
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
        if (!heads[h].norms.empty()) {
          scores[j] = std::max(scores[j], from[j] * heads[h].norms[j]);
        } else if (score == ReplayScore::max) {
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
  const std::size_t known = works_in_chunks() ? options().expected_tokens : 0;
  return budget_for(shape(), options().policy, known != 0 ? known : tokens());
}

bool Cache::fits_exactly() const {
  return tokens() * token_bytes(shape(), options()) <= whole_budget();
}

void Cache::forget_replay() {
  // What a stream holds keeps its scores.
  if (works_in_chunks() && chunk_tokens() != tokens()) return;
  scores_.reset();
}

bool Cache::needs_replay() const {
  if (works_in_chunks()) {
    return chunk_tokens() > 0 && (chunk_tokens() != tokens() || !fits_exactly());
  }
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
  if (works_in_chunks()) {
    require(!needs_replay(), "method {} needs a second reading before the prompt ends",
            policy.info().name);
    for (auto& layer : layers_) layer->finish_prompt(std::span<const EntryTiers>{});
    return;
  }
  if (fits_exactly()) {
    scores_.reset();
    for (auto& layer : layers_) layer->finish_prompt(std::span<const EntryTiers>{});
    return;
  }
  require(scores_ != nullptr, "method {} needs a second reading before the prompt ends",
          policy.info().name);
  std::vector<ScoredRun> runs;
  for (std::size_t l = 0; l < s.layers; ++l) {
    for (std::size_t h = 0; h < s.kv_heads; ++h) {
      runs.push_back(protected_run(policy, n, l * s.kv_heads + h));
      runs.back().scores = replay_scores(l, h);
      require(runs.back().scores.size() == n,
              "layer {}: tokens came after the second reading began", l);
    }
  }
  const std::vector<Tier> tiers = replay_tiers(policy, Protocol::prefill, s.key_dim, s.value_dim);
  const Allocation allocation =
      allocate(runs, tiers, whole_budget(), s.layers * s.kv_heads * mean_bytes(tiers, s));
  scores_.reset();
  for (std::size_t l = 0; l < s.layers; ++l) {
    layers_[l]->finish_prompt(std::span(allocation.runs).subspan(l * s.kv_heads, s.kv_heads));
  }
}

}  // namespace ballast
