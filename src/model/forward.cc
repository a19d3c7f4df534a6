#include "model/forward.h"

#include <algorithm>
#include <cmath>

#include "attention/rotary.h"
#include "base/fail.h"
#include "model/layer_pages.h"
#include "model/row_ops.h"
#include "simd/vector_math.h"

namespace ballast {
namespace {

void clamp(float limit, std::span<float> row) {
  for (float& x : row) x = std::clamp(x, -limit, limit);
}

/// What the query at a position is multiplied by.
float growth(const ModelConfig& c, std::size_t position) {
  const std::size_t spans = position / std::max<std::size_t>(c.rope.original_positions, 1);
  return 1.0f + c.query_growth * std::log(static_cast<float>(1 + spans));
}

}  // namespace

Forward::Forward(const Model& model, std::size_t depth, OnNeurons on_neurons)
    : model_(model),
      config_(model_.config()),
      weights_(model_.weights()),
      share_(model_.layer_share()),
      depth_(std::min(depth, config_.layers)),
      x_(config_, 1),
      feed_forward_(model_, std::move(on_neurons)),
      recurrent_layers_(model_) {}

void Forward::run(std::span<const Run> runs, Attention& attention, std::size_t wanted) {
  embed(runs);
  if (share_ != nullptr) share_->receive_states(x_.rows(x_.residual));
  find_rotations();
  std::size_t attending = 0;  // layers before this one that do
  for (std::size_t l = 0; l < depth_; ++l) {
    const LayerWeights& w = weights_.layers[l];
    if (model_.pages() != nullptr) model_.pages()->enter(l);
    const bool last = l + 1 == depth_ && (share_ == nullptr || share_->ends());
    const std::size_t first = last ? x_.tokens - std::min(wanted, x_.tokens) : 0;
    normalise(w.attention_norm, x_.residual, x_.normed);
    if (config_.kind(l) == LayerKind::attention) {
      attend(l, attending++, attention, first);
    } else {
      recurrent_layers_.run(l, l - attending, runs, first, x_);
    }
    normalise(w.post_attention_norm, x_.block, x_.block);
    // In a parallel block the feed-forward reads the input of attention, before the sum.
    if (!config_.parallel_residual) add_block();
    if (!config_.parallel_residual || w.ffn_norm.there()) {
      normalise(w.ffn_norm, x_.residual, x_.normed);
    }
    if (config_.parallel_residual) add_block();
    feed_forward_.run(l, x_);
    normalise(w.post_ffn_norm, x_.block, x_.block);
    add_block();
    if (model_.pages() != nullptr) model_.pages()->leave(l);
  }
  if (share_ != nullptr) share_->send_states(x_.rows(x_.residual));
}

void Forward::attend(std::size_t layer, std::size_t cache_layer, Attention& attention,
                     std::size_t first) {
  const LayerWeights& w = weights_.layers[layer];
  project_qkv(layer, first, attention.wants_all_queries());
  place_heads(layer, cache_layer);
  attention.run({cache_layer, x_.all(x_.residual), x_.all(x_.normed), x_.all(x_.key),
                 x_.all(x_.value), x_.rows(x_.query), x_.rows(x_.attended)});
  x_.first = first;
  if (config_.gated_attention) gate_attention(w);
  multiply(x_.rows(x_.attended), w.attention_output, x_.rows(x_.block));
}

void Forward::project_qkv(std::size_t layer, std::size_t first, bool all_queries) {
  const LayerWeights& w = weights_.layers[layer];
  const Product keys_values[] = {{&w.key, x_.all(x_.key)}, {&w.value, x_.all(x_.value)}};
  if (first == 0 || all_queries) {
    const Product products[] = {{&w.query, x_.rows(x_.query)}, keys_values[0], keys_values[1]};
    return multiply(x_.rows(x_.normed), products);
  }
  multiply(x_.rows(x_.normed), keys_values);
  x_.first = first;
  multiply(x_.rows(x_.normed), w.query, x_.rows(x_.query));
}

void Forward::gate_attention(const LayerWeights& w) {
  multiply(x_.rows(x_.normed), w.attention_gate, x_.rows(x_.attention_gate));
  x_.for_rows(x_.first, x_.attended.cols(), [&](std::size_t i) {
    const std::span<float> row = x_.attended[i], gate = x_.attention_gate[i];
    for (std::size_t c = 0; c < row.size(); ++c) row[c] /= 1.0f + std::exp(-gate[c]);
  });
}

void Forward::add_block() {
  for (std::size_t i = x_.first; i < x_.tokens; ++i) {
    kernels::axpy(config_.residual_scale, x_.block[i], x_.residual[i]);
  }
}

void Forward::check(Token token) const {
  const bool known = token < 0 ? weights_.pictures->holder(token) != nullptr
                               : static_cast<std::size_t>(token) < config_.vocabulary;
  require(known, "token id {} is outside the model's vocabulary of {}{}", token, config_.vocabulary,
          token < kNoToken ? ", and of no picture that is in memory" : "");
}

void Forward::embed(std::span<const Run> runs) {
  x_.tokens = x_.first = 0;
  positions_.clear();
  shapes_.clear();
  for (const Run& run : runs) {
    std::ranges::for_each(run.tokens, [&](Token token) { check(token); });
    x_.tokens += run.tokens.size();
  }
  const std::size_t tokens = x_.tokens;
  if (tokens > x_.capacity) x_ = Activations(config_, tokens);
  x_.tokens = tokens;
  for (const Run& run : runs) {
    for (std::size_t t = 0; t < run.tokens.size(); ++t) {
      positions_.push_back(run.position(t));
      shapes_.push_back(run.shape);
      embed(run.tokens[t], positions_.back(), positions_.size() - 1);
    }
  }
}

void Forward::embed(Token token, std::size_t position, std::size_t at) {
  if (share_ != nullptr && !share_->begins()) return;
  const std::span<float> row = x_.residual[at];
  if (const auto picture = token < 0 ? weights_.pictures->holder(token) : nullptr) {
    std::ranges::copy(picture->rows[static_cast<std::size_t>(token - picture->first)], row.begin());
  } else {
    weights_.token_embedding.decode_row(static_cast<std::size_t>(token), row);
    if (config_.embedding_scale != 1.0f) {
      for (float& x : row) x *= config_.embedding_scale;
    }
  }
  if (config_.learned_positions) {
    const std::span<float> place = x_.block[at];
    weights_.position_embedding.decode_row(position + config_.position_offset, place);
    for (std::size_t i = 0; i < row.size(); ++i) row[i] += place[i];
  }
}

void Forward::find_rotations() {
  const std::vector<bool>& second = config_.takes_second_rope;
  for (const bool other : {false, true}) {
    const auto found = std::ranges::find_if(
        weights_.attending, [&](std::size_t l) { return (!second.empty() && second[l]) == other; });
    if (found == weights_.attending.end()) continue;
    const auto layer = static_cast<std::size_t>(found - weights_.attending.begin());
    Matrix& table = x_.rotations[other];
    x_.for_rows(0, 32 * table.cols(), [&](std::size_t i) {  // sines take their time
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
  const Matrix& rotations = x_.rotations[other];
  const auto norms = [&](const Norm& norm, std::span<float> heads) {
    const std::size_t dim = norm.weight.size();  // a head's, or that of all
    for (std::size_t h = 0; norm.there() && h < heads.size(); h += dim) {
      const std::span<float> head = heads.subspan(h, dim);
      ballast::normalise(NormKind::rms, norm, config_.norm_epsilon, head, head);
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
  x_.for_rows(0, config_.heads * config_.key_dim, [&](std::size_t i) {
    if (i >= x_.first) {
      place(i, w.query_norm, x_.query[i]);
      if (config_.query_growth > 0.0f) {
        const float scale = growth(config_, positions_[i]);
        for (float& x : x_.query[i]) x *= scale;
      }
    }
    place(i, w.key_norm, x_.key[i]);
    if (config_.clamp_qkv > 0.0f) clamp(config_.clamp_qkv, x_.value[i]);
  });
}

ConstMatrix Forward::states() {
  normalise(weights_.output_norm, x_.residual, x_.normed);
  return x_.rows(x_.normed);
}

void Forward::logits(std::size_t first, MutableMatrix out) {
  if (share_ != nullptr && !share_->ends()) return share_->share_logits(out);
  const std::size_t count = out.rows;
  for (std::size_t i = 0; i < count; ++i) {
    ballast::normalise(config_.norm, weights_.output_norm, config_.norm_epsilon,
                       x_.residual[first + i], x_.normed[first + i]);
  }
  multiply(x_.normed.view().slice(first, count), weights_.output, out);
  for (std::size_t i = 0; i < count; ++i) {
    if (config_.output_scale != 1.0f) {
      for (float& x : out[i]) x *= config_.output_scale;
    }
    if (config_.output_softcap > 0.0f) soft_cap(config_.output_softcap, out[i]);
  }
  if (share_ != nullptr) share_->share_logits(out);
}

}  // namespace ballast
