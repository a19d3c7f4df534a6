#include "model/forward.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "attention/rotary.h"
#include "ballast/engine/calibration.h"
#include "base/fail.h"
#include "base/thread_pool.h"
#include "cache/cache_parts.h"
#include "model/delta_rule.h"
#include "model/layer_pages.h"
#include "model/row_ops.h"
#include "simd/vector_math.h"

namespace ballast {
namespace {

/// Elements from which on a parallel loop over rows pays.
constexpr std::size_t kParallelWork = 64 * 1024;

/// What a recurrent layer's convolution is given.
std::size_t conv_columns(const ModelConfig& c) {
  std::size_t most = 0;
  for (std::size_t l = 0; l < c.layers; ++l) {
    if (c.kind(l) == LayerKind::short_conv) most = std::max(most, 3 * c.width);
    if (c.kind(l) == LayerKind::delta_rule) most = std::max(most, c.conv_channels(l));
  }
  return most;
}

void clamp(float limit, std::span<float> row) {
  for (float& x : row) x = std::clamp(x, -limit, limit);
}

/// Rows of a matrix that may be wider than a feed-forward block.
MutableMatrix neurons(Matrix& m, std::size_t first, std::size_t count, std::size_t width) {
  return {m[first].data(), count, width, m.cols()};
}

/// Neurons of the widest feed-forward block.
std::size_t widest_block(const ModelConfig& c) {
  return std::max({c.ffn_width, c.expert_width, c.shared_width});
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
      gate(c.gated_ffn ? tokens : 0, widest_block(c)),
      up(tokens, widest_block(c)),
      conv(c.kinds.empty() ? 0 : tokens, conv_columns(c)),
      attention_gate(c.gated_attention ? tokens : 0, c.heads * c.value_dim),
      delta_gate(c.delta_value_heads > 0 ? tokens : 0, c.delta_value_heads * c.delta_value_dim),
      delta_beta(c.delta_value_heads > 0 ? tokens : 0, c.delta_value_heads),
      delta_decay(c.delta_value_heads > 0 ? tokens : 0, c.delta_value_heads),
      router(c.experts > 0 ? tokens : 0, c.experts),
      expert_in(c.experts > 0 ? tokens : 0, c.width),
      expert_out(c.experts > 0 ? tokens : 0, c.width),
      rotations{{tokens, c.rope.dimension}, {tokens, c.second_rope.dimension}},
      scores(tokens, c.kv_heads),
      tokens(tokens) {}

std::size_t ForwardScratch::bytes(const ModelConfig& c, std::size_t tokens) {
  const std::size_t elements =
      3 * c.width + c.heads * (c.key_dim + c.value_dim) + c.kv_heads * (c.key_dim + c.value_dim) +
      (c.gated_ffn ? 2 : 1) * widest_block(c) +
      (c.kinds.empty() ? 0 : (c.delta_value_heads > 0 ? 2 : 1) * conv_columns(c)) +
      (c.gated_attention ? c.heads * c.value_dim : 0) +
      c.delta_value_heads * (c.delta_value_dim + 2) + c.rope.dimension + c.second_rope.dimension +
      c.kv_heads + (c.experts > 0 ? c.experts + 2 * c.width : 0);
  return elements * tokens * sizeof(float);
}

Forward::Forward(const Model& model)
    : depth(model.config().layers),
      model_(model),
      config_(model_.config()),
      weights_(model_.weights()),
      share_(model_.layer_share()),
      scratch_(config_, 1) {}

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
  const std::size_t end = run.replay_from      ? *run.replay_from + run.tokens.size()
                          : run.places.empty() ? run.sequence->positions_after(run.tokens.size())
                                               : static_cast<std::size_t>(run.places.back()) + 1;
  require(end <= config_.max_positions, ErrorCode::over_limit,
          "{}: a sequence of {} tokens, but the model has {} positions",
          model_.file().path().string(), end, config_.max_positions);
}

void Forward::embed(Token token, std::size_t position, std::size_t at) {
  const std::span<float> row = scratch_.residual[at];
  positions_[at] = position;
  if (share_ != nullptr && !share_->begins()) return;
  if (const auto picture = token < 0 ? weights_.pictures->holder(token) : nullptr) {
    std::ranges::copy(picture->rows[static_cast<std::size_t>(token - picture->first)], row.begin());
  } else {
    weights_.token_embedding.decode_row(static_cast<std::size_t>(token), row);
    if (config_.embedding_scale != 1.0f) {
      for (float& x : row) x *= config_.embedding_scale;
    }
  }
  if (config_.learned_positions) {
    const std::span<float> place = scratch_.block[at];
    weights_.position_embedding.decode_row(position + config_.position_offset, place);
    for (std::size_t i = 0; i < row.size(); ++i) row[i] += place[i];
  }
}

void Forward::embed(std::span<const Run> runs) {
  std::size_t at = 0;
  for (const Run& run : runs) {
    const std::size_t first = run.replay_from.value_or(run.sequence->tokens());
    for (std::size_t t = 0; t < run.tokens.size(); ++t) {
      const auto again = run.places.empty() ? first + t : static_cast<std::size_t>(run.places[t]);
      embed(run.tokens[t], again, at++);
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
  find_rotations();
}

void Forward::find_rotations() {
  const std::vector<bool>& second = config_.takes_second_rope;
  for (const bool other : {false, true}) {
    const auto found = std::ranges::find_if(
        weights_.attending, [&](std::size_t l) { return (!second.empty() && second[l]) == other; });
    if (found == weights_.attending.end()) continue;
    const auto layer = static_cast<std::size_t>(found - weights_.attending.begin());
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

void Forward::place_heads(std::size_t layer, std::size_t cache_layer) {
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
    const Rotary* rotary = shapes_[i] == nullptr ? nullptr : &shapes_[i]->rotary_of(cache_layer);
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

void Forward::attend(std::size_t cache_layer, std::span<const Run> runs) {
  if (model_.ranks() != nullptr) return attend_over_ranks(cache_layer, runs[0]);
  if (runs[0].replay_from) {
    const auto all = [&](Matrix& m) { return m.view().slice(0, tokens_); };
    const auto read = runs[0].question ? &Scoring::replay_question : &Scoring::replay;
    (runs[0].sequence->cache().scoring().*read)(cache_layer, all(scratch_.key), all(scratch_.value),
                                                all(scratch_.query), query_weights_,
                                                all(scratch_.attended));
    return;
  }
  if (!runs[0].places.empty()) {
    const auto all = [&](Matrix& m) { return m.view().slice(0, tokens_); };
    runs[0].sequence->cache().parts().joined->read_again(
        cache_layer, runs[0].places, all(scratch_.key), all(scratch_.value), all(scratch_.query),
        all(scratch_.attended));
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
    forward_batch(cache_layer, items);
  };
  if (from_ > 0) forward(0, from_, false);
  forward(from_, tokens_, true);
  std::size_t at = 0;
  for (const Run& run : runs) {
    note_scores(cache_layer, run.sequence->cache(), at, run.tokens.size());
    at += run.tokens.size();
  }
}

void Forward::note_scores(std::size_t cache_layer, Cache& cache, std::size_t first,
                          std::size_t count) {
  if (!cache.scoring().takes_scores()) return;
  require(model_.calibration() != nullptr,
          "{}: method {} needs a calibration of this model; make one with: ballast calibrate",
          model_.file().path().string(), cache.options().policy.info().name);
  const auto part = [&](const Matrix& m) { return m.view().slice(first, count); };
  const MutableMatrix scores = scratch_.scores.view().slice(first, count);
  model_.calibration()->score(cache_layer, part(scratch_.normed), part(scratch_.key),
                              part(scratch_.value), scores);
  cache.scoring().note_scores(cache_layer, scores);
}

void Forward::attention(std::size_t layer, std::size_t cache_layer, std::span<const Run> runs,
                        std::size_t first) {
  const LayerWeights& w = weights_.layers[layer];
  const Product keys_values[] = {{&w.key, scratch_.key.view().slice(0, tokens_)},
                                 {&w.value, scratch_.value.view().slice(0, tokens_)}};
  const Product products[] = {{&w.query, rows(scratch_.query)}, keys_values[0], keys_values[1]};
  // A method that watches attention sees the queries of all tokens.
  const bool watches = runs[0].replay_from || !runs[0].places.empty() ||
                       runs[0].sequence->cache().options().needs_queries();
  if (first == 0 || watches) {
    multiply(rows(scratch_.normed), products);
  } else {
    multiply(rows(scratch_.normed), keys_values);
    from_ = first;
    multiply(rows(scratch_.normed), w.query, rows(scratch_.query));
  }
  place_heads(layer, cache_layer);
  attend(cache_layer, runs);
  from_ = first;
  if (config_.gated_attention) {
    multiply(rows(scratch_.normed), w.attention_gate, rows(scratch_.attention_gate));
    for_rows(from_, scratch_.attended.cols(), [&](std::size_t i) {
      const std::span<float> row = scratch_.attended[i], gate = scratch_.attention_gate[i];
      for (std::size_t c = 0; c < row.size(); ++c) row[c] /= 1.0f + std::exp(-gate[c]);
    });
  }
  multiply(rows(scratch_.attended), w.attention_output, rows(scratch_.block));
}

void Forward::short_conv(std::size_t layer, std::size_t state, std::span<const Run> runs,
                         std::size_t first) {
  const LayerWeights& w = weights_.layers[layer];
  const std::size_t width = config_.width, before = config_.conv_width - 1;
  multiply(rows(scratch_.normed), w.conv_in, rows(scratch_.conv));
  // Three parts: a gate before, in whose place the convolution's input comes; one behind; the
  // input, in whose place the output comes.
  for_rows(0, width, [&](std::size_t i) {
    const std::span<float> row = scratch_.conv[i];
    for (std::size_t c = 0; c < width; ++c) row[c] *= row[2 * width + c];
  });
  std::size_t begin = 0;
  for (const Run& run : runs) {
    const std::span<float> kept = run.sequence->cache().recurrent()->state(state);
    state_.assign(kept.begin(), kept.end());
    const std::size_t count = run.tokens.size();
    // What was the input `back` tokens before token t of the run, 0 for t itself.
    const auto input = [&](std::size_t t, std::size_t back) -> const float* {
      return t >= back ? scratch_.conv[begin + t - back].data()
                       : state_.data() + (before + t - back) * width;
    };
    parallel_for(
        count,
        [&](std::size_t t) {
          const std::span<float> row = scratch_.conv[begin + t];
          float* const out = row.data() + 2 * width;
          if (w.conv_bias.empty()) {
            std::fill_n(out, width, 0.0f);
          } else {
            std::ranges::copy(w.conv_bias, out);
          }
          for (std::size_t tap = 0; tap <= before; ++tap) {
            const float* const x = input(t, before - tap);
            const float* const weight = w.conv.data() + tap * width;
            for (std::size_t c = 0; c < width; ++c) out[c] += weight[c] * x[c];
          }
          for (std::size_t c = 0; c < width; ++c) out[c] *= row[width + c];
        },
        count * width >= kParallelWork);
    if (!run.replay_from) {  // tokens that read again leave nothing behind
      for (std::size_t i = 0; i < before; ++i)
        std::copy_n(input(count, before - i), width, kept.data() + i * width);
      run.sequence->cache().recurrent()->advance(state, count);
    }
    begin += count;
  }
  from_ = first;
  const MutableMatrix all = rows(scratch_.conv);
  multiply(ConstMatrix(all.data + 2 * width, all.rows, width, all.stride), w.conv_out,
           rows(scratch_.block));
}

void Forward::delta_rule(std::size_t layer, std::size_t state, std::span<const Run> runs,
                         std::size_t first) {
  const LayerWeights& w = weights_.layers[layer];
  const std::size_t channels = config_.conv_channels(layer), before = config_.conv_width - 1;
  const DeltaRule rule(config_, w);
  const Product products[] = {{&w.conv_in, rows(scratch_.conv)},
                              {&w.delta_gate, rows(scratch_.delta_gate)},
                              {&w.delta_beta, rows(scratch_.delta_beta)},
                              {&w.delta_decay, rows(scratch_.delta_decay)}};
  multiply(rows(scratch_.normed), products);
  std::size_t begin = 0;
  for (const Run& run : runs) {
    const std::span<float> kept = run.sequence->cache().recurrent()->state(state);
    const bool stays = !run.replay_from;  // tokens that read again leave nothing behind
    const std::span<float> found = stays ? kept.first(before * channels) : kept;
    state_.assign(found.begin(), found.end());
    const std::size_t count = run.tokens.size();
    const auto input = [&](std::size_t t, std::size_t back) -> const float* {
      return t >= back ? scratch_.conv[begin + t - back].data()
                       : state_.data() + (before + t - back) * channels;
    };
    mixed_.resize(count * channels);
    parallel_for(
        count,
        [&](std::size_t t) {
          const std::span<float> row = std::span(mixed_).subspan(t * channels, channels);
          std::ranges::fill(row, 0.0f);
          for (std::size_t tap = 0; tap <= before; ++tap) {
            const float* const x = input(t, before - tap);
            const float* const weight = w.conv.data() + tap * channels;
            for (std::size_t c = 0; c < channels; ++c) row[c] += weight[c] * x[c];
          }
          kernels::silu_in_place(row);
          rule.normalise_heads(row);
        },
        count * channels >= kParallelWork);
    if (stays) {
      for (std::size_t i = 0; i < before; ++i)
        std::copy_n(input(count, before - i), channels, kept.data() + i * channels);
    }
    const std::span<float> heads = (stays ? kept : std::span(state_)).subspan(before * channels);
    const auto part = [&](Matrix& m) { return m.view().slice(begin, count); };
    parallel_for(config_.delta_value_heads, [&](std::size_t h) {
      rule.run(h, {mixed_.data(), count, channels}, part(scratch_.delta_beta),
               part(scratch_.delta_decay), heads, part(scratch_.delta_gate));
    });
    if (stays) run.sequence->cache().recurrent()->advance(state, count);
    begin += count;
  }
  from_ = first;
  multiply(rows(scratch_.delta_gate), w.conv_out, rows(scratch_.block));
}

void Forward::choose_experts(std::size_t layer) {
  chosen_.resize(config_.experts);
  for (std::vector<Choice>& list : chosen_) list.clear();
  std::vector<std::size_t> order(config_.experts);
  const std::vector<float>& more = weights_.layers[layer].router_choice;
  const std::size_t used = config_.experts_used;
  for (std::size_t i = from_; i < tokens_; ++i) {
    const std::span<float> weights = scratch_.router[i];
    float sum = 0.0f;
    if (config_.sigmoid_router) {
      for (float& x : weights) x = 1.0f / (1.0f + std::exp(-x));
      sum = 1.0f;
    } else {
      const float most = *std::ranges::max_element(weights);
      for (float& x : weights) sum += x = std::exp(x - most);
    }
    const auto rank = [&](std::size_t e) {
      return more.empty() ? weights[e] : weights[e] + more[e];
    };
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::partial_sort(order, order.begin() + static_cast<std::ptrdiff_t>(used),
                              [&](std::size_t a, std::size_t b) {
                                return rank(a) != rank(b) ? rank(a) > rank(b) : a < b;
                              });
    const auto taken = std::span(order).first(used);
    if (config_.experts_share_weight) {
      sum = 0.0f;
      for (std::size_t e : taken) sum += weights[e];
    }
    for (std::size_t e : taken) chosen_[e].push_back({i, weights[e] / sum * config_.experts_scale});
  }
}

void Forward::mix_experts(std::size_t layer) {
  const LayerWeights& w = weights_.layers[layer];
  multiply(rows(scratch_.normed), w.router, rows(scratch_.router));
  choose_experts(layer);
  for (std::size_t e = 0; model_.pages() != nullptr && e < config_.experts; ++e) {
    if (!chosen_[e].empty()) model_.pages()->enter_expert(layer, e);
  }
  for (std::size_t i = from_; i < tokens_; ++i) std::ranges::fill(scratch_.block[i], 0.0f);
  for (std::size_t e = 0; e < config_.experts; ++e) {
    const std::vector<Choice>& chosen = chosen_[e];
    if (chosen.empty()) continue;
    const auto part = [&](Matrix& m) { return m.view().slice(0, chosen.size()); };
    const std::size_t width = config_.expert_width;
    const MutableMatrix gate = neurons(scratch_.gate, 0, chosen.size(), width);
    const MutableMatrix up = neurons(scratch_.up, 0, chosen.size(), width);
    for (std::size_t k = 0; k < chosen.size(); ++k) {
      std::ranges::copy(scratch_.normed[chosen[k].token], scratch_.expert_in[k].begin());
    }
    const Product products[] = {{&w.experts[e].gate, gate}, {&w.experts[e].up, up}};
    multiply(part(scratch_.expert_in), products);
    parallel_for(
        chosen.size(), [&](std::size_t k) { activate(config_.activation, gate[k], up[k]); },
        chosen.size() * width >= kParallelWork);
    multiply(up, w.experts[e].down, part(scratch_.expert_out));
    for (std::size_t k = 0; k < chosen.size(); ++k) {
      kernels::axpy(chosen[k].weight, scratch_.expert_out[k], scratch_.block[chosen[k].token]);
    }
  }
}

void Forward::add_shared_expert(std::size_t layer) {
  dense_feed_forward(layer, rows(scratch_.expert_out));
  const Linear& gate = weights_.layers[layer].shared_gate;
  // A number a token, where the router's were.
  MutableMatrix gates = rows(scratch_.router);
  gates.cols = 1;
  if (gate.rows > 0) multiply(rows(scratch_.normed), gate, gates);
  for (std::size_t i = from_; i < tokens_; ++i) {
    const float weight = gate.rows > 0 ? 1.0f / (1.0f + std::exp(-scratch_.router[i][0])) : 1.0f;
    kernels::axpy(weight, scratch_.expert_out[i], scratch_.block[i]);
  }
}

void Forward::feed_forward(std::size_t layer) {
  if (!config_.has_experts(layer)) return dense_feed_forward(layer, rows(scratch_.block));
  mix_experts(layer);
  if (config_.dense_width(layer) > 0) add_shared_expert(layer);
}

void Forward::dense_feed_forward(std::size_t layer, MutableMatrix out) {
  const LayerWeights& w = weights_.layers[layer];
  const std::size_t width = config_.dense_width(layer);
  const MutableMatrix gate = neurons(scratch_.gate, from_, tokens_ - from_, width);
  const MutableMatrix up = neurons(scratch_.up, from_, tokens_ - from_, width);
  if (config_.gated_ffn) {
    const Product products[] = {{&w.ffn_gate, gate}, {&w.ffn_up, up}};
    multiply(rows(scratch_.normed), products);
  } else {
    multiply(rows(scratch_.normed), w.ffn_up, up);
  }
  for_rows(from_, width, [&](std::size_t i) {
    activate(config_.activation, config_.gated_ffn ? gate[i - from_] : std::span<float>{},
             up[i - from_]);
  });
  if (on_neurons) on_neurons(layer, up);
  multiply(up, w.ffn_down, out);
}

void Forward::weigh_queries() {
  query_weights_.resize(tokens_);
  for (std::size_t t = 0; t < tokens_; ++t) {
    const float square = kernels::dot(scratch_.residual[t], scratch_.residual[t]);
    query_weights_[t] = square > 0.0f ? 1.0f / std::sqrt(square) : 0.0f;
  }
}

void Forward::finish_layer(std::size_t layer) {
  const LayerWeights& w = weights_.layers[layer];
  normalise_rows(w.post_attention_norm, scratch_.block, scratch_.block);
  // In a parallel block the feed-forward reads the input of attention, before the sum.
  if (config_.parallel_residual) {
    if (w.ffn_norm.there()) normalise_rows(w.ffn_norm, scratch_.residual, scratch_.normed);
    add_block();
  } else {
    add_block();
    normalise_rows(w.ffn_norm, scratch_.residual, scratch_.normed);
  }
  feed_forward(layer);
  normalise_rows(w.post_ffn_norm, scratch_.block, scratch_.block);
  add_block();
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
  if (share_ != nullptr) share_->receive_states(rows(scratch_.residual));
  turn(runs);
  std::size_t attending = 0;  // layers before this one that do
  for (std::size_t l = 0; l < depth; ++l) {
    const LayerWeights& w = weights_.layers[l];
    if (model_.pages() != nullptr) model_.pages()->enter(l);
    if (runs[0].replay_from) weigh_queries();
    normalise_rows(w.attention_norm, scratch_.residual, scratch_.normed);
    const bool last = l + 1 == depth && (share_ == nullptr || share_->ends());
    const std::size_t first = last ? tokens_ - std::min(wanted, tokens_) : 0;
    if (config_.kind(l) == LayerKind::attention) {
      attention(l, attending, runs, first);
      if (on_attention) {
        on_attention({attending, 0, rows(scratch_.query), rows(scratch_.key), rows(scratch_.value),
                      rows(scratch_.attended), rows(scratch_.normed)});
      }
      ++attending;
    } else if (config_.kind(l) == LayerKind::short_conv) {
      short_conv(l, l - attending, runs, first);
    } else {
      delta_rule(l, l - attending, runs, first);
    }
    finish_layer(l);
    if (model_.pages() != nullptr) model_.pages()->leave(l);
  }
  if (share_ != nullptr) share_->send_states(rows(scratch_.residual));
}

ConstMatrix Forward::states() {
  normalise_rows(weights_.output_norm, scratch_.residual, scratch_.normed);
  return rows(scratch_.normed);
}

void Forward::logits(std::size_t first, MutableMatrix out) {
  if (share_ != nullptr && !share_->ends()) return share_->share_logits(out);
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
  if (share_ != nullptr) share_->share_logits(out);
}

}  // namespace ballast
