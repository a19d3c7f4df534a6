#include "model/forward.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "attention/rotary.h"
#include "ballast/engine/calibration.h"
#include "base/fail.h"
#include "base/thread_pool.h"
#include "model/row_ops.h"
#include "simd/vector_math.h"

namespace ballast {
namespace {

/// Elements from which on a parallel loop over rows pays.
constexpr std::size_t kParallelWork = 64 * 1024;

void clamp(float limit, std::span<float> row) {
  for (float& x : row) x = std::clamp(x, -limit, limit);
}

/// What the query at a position is multiplied by.
float growth(const ModelConfig& c, std::size_t position) {
  const std::size_t spans = position / std::max<std::size_t>(c.rope.original_positions, 1);
  return 1.0f + c.query_growth * std::log(static_cast<float>(1 + spans));
}

}  // namespace

ForwardScratch::ForwardScratch(const ModelConfig& c, std::size_t tokens)
    : residual(tokens, c.width),
      normed(tokens, c.width),
      query(tokens, c.heads * c.key_dim),
      key(tokens, c.kv_heads * c.key_dim),
      value(tokens, c.kv_heads * c.value_dim),
      attended(tokens, c.heads * c.value_dim),
      block(tokens, c.width),
      gate(c.gated_ffn ? tokens : 0, c.ffn_width),
      up(tokens, c.ffn_width),
      router(c.experts > 0 ? tokens : 0, c.experts),
      expert_in(c.experts > 0 ? tokens : 0, c.width),
      expert_out(c.experts > 0 ? tokens : 0, c.width),
      rotations{{tokens, c.rope.dimension}, {tokens, c.second_rope.dimension}},
      scores(tokens, c.kv_heads),
      tokens(tokens) {}

std::size_t ForwardScratch::bytes(const ModelConfig& c, std::size_t tokens) {
  const std::size_t elements =
      3 * c.width + c.heads * (c.key_dim + c.value_dim) + c.kv_heads * (c.key_dim + c.value_dim) +
      (c.gated_ffn ? 2 : 1) * c.ffn_width + c.rope.dimension + c.second_rope.dimension +
      c.kv_heads + (c.experts > 0 ? c.experts + 2 * c.width : 0);
  return elements * tokens * sizeof(float);
}

Forward::Forward(const Model& model)
    : model_(model), config_(model_.config()), weights_(model_.weights()), scratch_(config_, 1) {}

template <typename Body>
void Forward::for_rows(std::size_t from, std::size_t width, Body&& body) const {
  const std::size_t count = tokens_ - from;
  parallel_for(
      count, [&](std::size_t i) { body(from + i); }, count * width >= kParallelWork);
}

void Forward::normalise_rows(const Norm& norm, const Matrix& x, Matrix& out) const {
  if (!norm.there() && &x == &out) return;
  for_rows(from_, config_.width, [&](std::size_t i) {
    if (norm.there()) {
      normalise(config_.norm, norm, config_.norm_epsilon, x[i], out[i]);
    } else {
      std::ranges::copy(x[i], out[i].begin());
    }
  });
}

void Forward::add_block() {
  for (std::size_t i = from_; i < tokens_; ++i) {
    kernels::axpy(config_.residual_scale, scratch_.block[i], scratch_.residual[i]);
  }
}

void Forward::check(const Run& run) const {
  for (Token token : run.tokens) {
    const bool known = token < 0 ? weights_.pictures->holder(token) != nullptr
                                 : static_cast<std::size_t>(token) < config_.vocabulary;
    require(known, "token id {} is outside the model's vocabulary of {}{}", token,
            config_.vocabulary, token < kNoToken ? ", and of no picture that is in memory" : "");
  }
  const std::size_t end = run.replay_from ? *run.replay_from + run.tokens.size()
                                          : run.sequence->positions_after(run.tokens.size());
  require(end <= config_.max_positions, ErrorCode::over_limit,
          "{}: a sequence of {} tokens, but the model has {} positions",
          model_.file().path().string(), end, config_.max_positions);
}

void Forward::embed(Token token, std::span<float> row) const {
  if (const auto picture = token < 0 ? weights_.pictures->holder(token) : nullptr) {
    std::ranges::copy(picture->rows[static_cast<std::size_t>(token - picture->first)], row.begin());
    return;
  }
  weights_.token_embedding.decode_row(static_cast<std::size_t>(token), row);
  if (config_.embedding_scale != 1.0f) {
    for (float& x : row) x *= config_.embedding_scale;
  }
}

void Forward::embed(std::span<const Run> runs) {
  std::size_t at = 0;
  for (const Run& run : runs) {
    for (std::size_t t = 0; t < run.tokens.size(); ++t, ++at) {
      const std::span<float> row = scratch_.residual[at];
      embed(run.tokens[t], row);
      const std::size_t position = run.replay_from.value_or(run.sequence->tokens()) + t;
      if (config_.learned_positions) {
        const std::span<float> place = scratch_.block[at];
        weights_.position_embedding.decode_row(position + config_.position_offset, place);
        for (std::size_t i = 0; i < row.size(); ++i) row[i] += place[i];
      }
      positions_[at] = position;
    }
  }
}

void Forward::turn(std::span<const Run> runs) {
  std::size_t at = 0;
  for (const Run& run : runs) {
    const Cache& cache = run.sequence->cache();
    const bool rolls = cache.options().positions == Positions::rolling;
    for (std::size_t t = 0; t < run.tokens.size(); ++t) {
      shapes_[at++] = rolls ? nullptr : &cache.shape();
    }
  }
  const std::vector<bool>& second = config_.takes_second_rope;
  for (const bool other : {false, true}) {
    const auto found = std::ranges::find(second, other);
    if (found == second.end() && (other || !second.empty())) continue;
    const auto layer = static_cast<std::size_t>(found - second.begin());
    Matrix& table = scratch_.rotations[other];
    for_rows(0, 32 * table.cols(), [&](std::size_t i) {  // sines take their time
      if (shapes_[i] == nullptr) return;
      const Rotary& rotary = shapes_[i]->rotary_of(layer);
      if (!rotary.frequencies.empty()) {
        rotation_at(rotary, static_cast<double>(positions_[i]), table[i]);
      }
    });
  }
}

void Forward::place_heads(std::size_t layer) {
  const LayerWeights& w = weights_.layers[layer];
  const bool other = !config_.takes_second_rope.empty() && config_.takes_second_rope[layer];
  const Matrix& rotations = scratch_.rotations[other];
  const auto norms = [&](const Norm& norm, std::span<float> heads) {
    const std::size_t dim = norm.weight.size();  // a head's, or that of all
    for (std::size_t h = 0; norm.there() && h < heads.size(); h += dim) {
      const std::span<float> head = heads.subspan(h, dim);
      normalise(NormKind::rms, norm, config_.norm_epsilon, head, head);
    }
  };
  const auto place = [&](std::size_t i, const Norm& norm, std::span<float> heads) {
    if (config_.clamp_qkv > 0.0f) clamp(config_.clamp_qkv, heads);
    if (!config_.norms_after_rope) norms(norm, heads);
    const Rotary* rotary = shapes_[i] == nullptr ? nullptr : &shapes_[i]->rotary_of(layer);
    if (rotary != nullptr && !rotary->frequencies.empty()) {
      rotate(*rotary, rotations[i], config_.key_dim, heads);
    }
    if (config_.norms_after_rope) norms(norm, heads);
  };
  for_rows(0, config_.heads * config_.key_dim, [&](std::size_t i) {
    if (i >= from_) {
      place(i, w.query_norm, scratch_.query[i]);
      if (config_.query_growth > 0.0f) {
        const float scale = growth(config_, positions_[i]);
        for (float& x : scratch_.query[i]) x *= scale;
      }
    }
    place(i, w.key_norm, scratch_.key[i]);
    if (config_.clamp_qkv > 0.0f) clamp(config_.clamp_qkv, scratch_.value[i]);
  });
}

void Forward::attend(std::size_t layer, std::span<const Run> runs) {
  if (runs[0].replay_from) {
    const auto all = [&](Matrix& m) { return m.view().slice(0, tokens_); };
    const auto read = runs[0].question ? &Cache::replay_question : &Cache::replay;
    (runs[0].sequence->cache().*read)(layer, all(scratch_.key), all(scratch_.value),
                                      all(scratch_.query), query_weights_, all(scratch_.attended));
    return;
  }
  thread_local std::vector<BatchItem> items;
  // Tokens [begin, end) of all runs; their output is computed if `asked`.
  const auto forward = [&](std::size_t begin, std::size_t end, bool asked) {
    items.clear();
    std::size_t at = 0;
    for (const Run& run : runs) {
      const std::size_t first = std::max(begin, at);
      at += run.tokens.size();
      if (first >= std::min(end, at)) continue;
      const std::size_t count = std::min(end, at) - first, answers = asked ? count : 0;
      items.push_back(
          {&run.sequence->cache(),
           HeadsView::of(scratch_.key.view().slice(first, count), config_.kv_heads),
           HeadsView::of(scratch_.value.view().slice(first, count), config_.kv_heads),
           HeadsView::of(scratch_.query.view().slice(first, answers), config_.heads),
           MutableHeadsView::of(scratch_.attended.view().slice(first, answers), config_.heads)});
    }
    forward_batch(layer, items);
  };
  if (from_ > 0) forward(0, from_, false);
  forward(from_, tokens_, true);
  std::size_t at = 0;
  for (const Run& run : runs) {
    note_scores(layer, run.sequence->cache(), at, run.tokens.size());
    at += run.tokens.size();
  }
}

void Forward::note_scores(std::size_t layer, Cache& cache, std::size_t first, std::size_t count) {
  if (!cache.takes_scores()) return;
  require(model_.calibration() != nullptr,
          "{}: method {} needs a calibration of this model; make one with: ballast calibrate",
          model_.file().path().string(), cache.options().policy.info().name);
  const auto part = [&](const Matrix& m) { return m.view().slice(first, count); };
  const MutableMatrix scores = scratch_.scores.view().slice(first, count);
  model_.calibration()->score(layer, part(scratch_.normed), part(scratch_.key),
                              part(scratch_.value), scores);
  cache.note_scores(layer, scores);
}

void Forward::attention(std::size_t layer, std::span<const Run> runs, std::size_t first) {
  const LayerWeights& w = weights_.layers[layer];
  const Product keys_values[] = {{&w.key, scratch_.key.view().slice(0, tokens_)},
                                 {&w.value, scratch_.value.view().slice(0, tokens_)}};
  const Product products[] = {{&w.query, rows(scratch_.query)}, keys_values[0], keys_values[1]};
  // A method that watches attention sees the queries of all tokens.
  const bool watches = runs[0].replay_from || runs[0].sequence->cache().options().needs_queries();
  if (first == 0 || watches) {
    multiply(rows(scratch_.normed), products);
  } else {
    multiply(rows(scratch_.normed), keys_values);
    from_ = first;
    multiply(rows(scratch_.normed), w.query, rows(scratch_.query));
  }
  place_heads(layer);
  attend(layer, runs);
  from_ = first;
  multiply(rows(scratch_.attended), w.attention_output, rows(scratch_.block));
}

void Forward::choose_experts() {
  chosen_.resize(config_.experts);
  for (std::vector<Choice>& list : chosen_) list.clear();
  std::vector<std::size_t> order(config_.experts);
  for (std::size_t i = from_; i < tokens_; ++i) {
    const std::span<float> weights = scratch_.router[i];
    const float most = *std::ranges::max_element(weights);
    float sum = 0.0f;
    for (float& x : weights) sum += x = std::exp(x - most);
    std::iota(order.begin(), order.end(), std::size_t{0});
    const auto used = order.begin() + static_cast<std::ptrdiff_t>(config_.experts_used);
    std::partial_sort(order.begin(), used, order.end(), [&](std::size_t a, std::size_t b) {
      return weights[a] != weights[b] ? weights[a] > weights[b] : a < b;
    });
    if (config_.experts_share_weight) {
      sum = 0.0f;
      for (auto e = order.begin(); e != used; ++e) sum += weights[*e];
    }
    for (auto e = order.begin(); e != used; ++e) chosen_[*e].push_back({i, weights[*e] / sum});
  }
}

void Forward::mix_experts(std::size_t layer) {
  const LayerWeights& w = weights_.layers[layer];
  multiply(rows(scratch_.normed), w.router, rows(scratch_.router));
  choose_experts();
  for (std::size_t i = from_; i < tokens_; ++i) std::ranges::fill(scratch_.block[i], 0.0f);
  for (std::size_t e = 0; e < config_.experts; ++e) {
    const std::vector<Choice>& chosen = chosen_[e];
    if (chosen.empty()) continue;
    const auto part = [&](Matrix& m) { return m.view().slice(0, chosen.size()); };
    for (std::size_t k = 0; k < chosen.size(); ++k) {
      std::ranges::copy(scratch_.normed[chosen[k].token], scratch_.expert_in[k].begin());
    }
    const Product products[] = {{&w.experts[e].gate, part(scratch_.gate)},
                                {&w.experts[e].up, part(scratch_.up)}};
    multiply(part(scratch_.expert_in), products);
    parallel_for(
        chosen.size(),
        [&](std::size_t k) { activate(config_.activation, scratch_.gate[k], scratch_.up[k]); },
        chosen.size() * config_.ffn_width >= kParallelWork);
    multiply(part(scratch_.up), w.experts[e].down, part(scratch_.expert_out));
    for (std::size_t k = 0; k < chosen.size(); ++k) {
      kernels::axpy(chosen[k].weight, scratch_.expert_out[k], scratch_.block[chosen[k].token]);
    }
  }
}

void Forward::feed_forward(std::size_t layer) {
  if (config_.experts > 0) return mix_experts(layer);
  const LayerWeights& w = weights_.layers[layer];
  if (config_.gated_ffn) {
    const Product products[] = {{&w.ffn_gate, rows(scratch_.gate)}, {&w.ffn_up, rows(scratch_.up)}};
    multiply(rows(scratch_.normed), products);
  } else {
    multiply(rows(scratch_.normed), w.ffn_up, rows(scratch_.up));
  }
  for_rows(from_, config_.ffn_width, [&](std::size_t i) {
    const std::span<float> gate = config_.gated_ffn ? scratch_.gate[i] : std::span<float>{};
    activate(config_.activation, gate, scratch_.up[i]);
  });
  if (on_neurons) on_neurons(layer, rows(scratch_.up));
  multiply(rows(scratch_.up), w.ffn_down, rows(scratch_.block));
}

void Forward::weigh_queries() {
  query_weights_.resize(tokens_);
  for (std::size_t t = 0; t < tokens_; ++t) {
    const float square = kernels::dot(scratch_.residual[t], scratch_.residual[t]);
    query_weights_[t] = square > 0.0f ? 1.0f / std::sqrt(square) : 0.0f;
  }
}

void Forward::run(std::span<const Run> runs, std::size_t wanted, const OnAttention& on_attention) {
  for (const Run& run : runs) check(run);
  tokens_ = 0;
  for (const Run& run : runs) tokens_ += run.tokens.size();
  from_ = 0;
  if (tokens_ > scratch_.tokens) scratch_ = ForwardScratch(config_, tokens_);
  positions_.resize(tokens_);
  shapes_.resize(tokens_);
  embed(runs);
  turn(runs);
  for (std::size_t l = 0; l < config_.layers; ++l) {
    const LayerWeights& w = weights_.layers[l];
    if (runs[0].replay_from) weigh_queries();
    normalise_rows(w.attention_norm, scratch_.residual, scratch_.normed);
    const bool last = l + 1 == config_.layers;
    attention(l, runs, last ? tokens_ - std::min(wanted, tokens_) : 0);
    if (on_attention) {
      on_attention({l, 0, rows(scratch_.query), rows(scratch_.key), rows(scratch_.value),
                    rows(scratch_.attended), rows(scratch_.normed)});
    }
    normalise_rows(w.post_attention_norm, scratch_.block, scratch_.block);
    // In a parallel block the feed-forward reads the input of attention, before the sum.
    if (config_.parallel_residual) {
      if (w.ffn_norm.there()) normalise_rows(w.ffn_norm, scratch_.residual, scratch_.normed);
      add_block();
    } else {
      add_block();
      normalise_rows(w.ffn_norm, scratch_.residual, scratch_.normed);
    }
    feed_forward(l);
    normalise_rows(w.post_ffn_norm, scratch_.block, scratch_.block);
    add_block();
  }
}

ConstMatrix Forward::states() {
  normalise_rows(weights_.output_norm, scratch_.residual, scratch_.normed);
  return rows(scratch_.normed);
}

void Forward::logits(std::size_t first, MutableMatrix out) {
  const std::size_t count = out.rows;
  for (std::size_t i = 0; i < count; ++i) {
    normalise(config_.norm, weights_.output_norm, config_.norm_epsilon,
              scratch_.residual[first + i], scratch_.normed[first + i]);
  }
  multiply(scratch_.normed.view().slice(first, count), weights_.output, out);
  for (std::size_t i = 0; i < count; ++i) {
    if (config_.output_scale != 1.0f) {
      for (float& x : out[i]) x *= config_.output_scale;
    }
    if (config_.output_softcap > 0.0f) soft_cap(config_.output_softcap, out[i]);
  }
}

}  // namespace ballast
