#include "model/feed_forward.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/thread_pool.h"
#include "model/layer_pages.h"
#include "model/row_ops.h"
#include "simd/vector_math.h"

namespace ballast {
namespace {

/// Rows of a matrix that may be wider than a feed-forward block.
MutableMatrix neurons(Matrix& m, std::size_t first, std::size_t count, std::size_t width) {
  return {m[first].data(), count, width, m.cols()};
}

}  // namespace

FeedForward::FeedForward(const Model& model, OnNeurons on_neurons)
    : model_(model), config_(model.config()), on_neurons_(std::move(on_neurons)) {}

void FeedForward::choose_experts(std::size_t layer, Activations& x) {
  chosen_.resize(config_.experts);
  for (std::vector<Choice>& list : chosen_) list.clear();
  std::vector<std::size_t> order(config_.experts);
  const std::vector<float>& more = model_.weights().layers[layer].router_choice;
  const std::size_t used = config_.experts_used;
  for (std::size_t i = x.first; i < x.tokens; ++i) {
    const std::span<float> weights = x.router[i];
    float sum = 0.0f;
    if (config_.sigmoid_router) {
      for (float& w : weights) w = 1.0f / (1.0f + std::exp(-w));
      sum = 1.0f;
    } else {
      const float most = *std::ranges::max_element(weights);
      for (float& w : weights) sum += w = std::exp(w - most);
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

void FeedForward::mix_experts(std::size_t layer, Activations& x) {
  const LayerWeights& w = model_.weights().layers[layer];
  multiply(x.rows(x.normed), w.router, x.rows(x.router));
  choose_experts(layer, x);
  for (std::size_t e = 0; model_.pages() != nullptr && e < config_.experts; ++e) {
    if (!chosen_[e].empty()) model_.pages()->enter_expert(layer, e);
  }
  for (std::size_t i = x.first; i < x.tokens; ++i) std::ranges::fill(x.block[i], 0.0f);
  for (std::size_t e = 0; e < config_.experts; ++e) {
    const std::vector<Choice>& chosen = chosen_[e];
    if (chosen.empty()) continue;
    const auto part = [&](Matrix& m) { return m.view().slice(0, chosen.size()); };
    const std::size_t width = config_.expert_width;
    const MutableMatrix gate = neurons(x.gate, 0, chosen.size(), width);
    const MutableMatrix up = neurons(x.up, 0, chosen.size(), width);
    for (std::size_t k = 0; k < chosen.size(); ++k) {
      std::ranges::copy(x.normed[chosen[k].token], x.expert_in[k].begin());
    }
    const Product products[] = {{&w.experts[e].gate, gate}, {&w.experts[e].up, up}};
    multiply(part(x.expert_in), products);
    parallel_for(
        chosen.size(), [&](std::size_t k) { activate(config_.activation, gate[k], up[k]); },
        chosen.size() * width >= Activations::kParallelWork);
    multiply(up, w.experts[e].down, part(x.expert_out));
    for (std::size_t k = 0; k < chosen.size(); ++k) {
      kernels::axpy(chosen[k].weight, x.expert_out[k], x.block[chosen[k].token]);
    }
  }
}

void FeedForward::add_shared_expert(std::size_t layer, Activations& x) const {
  dense(layer, x, x.rows(x.expert_out));
  const Linear& gate = model_.weights().layers[layer].shared_gate;
  // A number a token, where the router's were.
  MutableMatrix gates = x.rows(x.router);
  gates.cols = 1;
  if (gate.rows > 0) multiply(x.rows(x.normed), gate, gates);
  for (std::size_t i = x.first; i < x.tokens; ++i) {
    const float weight = gate.rows > 0 ? 1.0f / (1.0f + std::exp(-x.router[i][0])) : 1.0f;
    kernels::axpy(weight, x.expert_out[i], x.block[i]);
  }
}

void FeedForward::run(std::size_t layer, Activations& x) {
  if (!config_.has_experts(layer)) return dense(layer, x, x.rows(x.block));
  mix_experts(layer, x);
  if (config_.dense_width(layer) > 0) add_shared_expert(layer, x);
}

void FeedForward::dense(std::size_t layer, Activations& x, MutableMatrix out) const {
  const LayerWeights& w = model_.weights().layers[layer];
  const std::size_t width = config_.dense_width(layer);
  const MutableMatrix gate = neurons(x.gate, x.first, x.tokens - x.first, width);
  const MutableMatrix up = neurons(x.up, x.first, x.tokens - x.first, width);
  if (config_.gated_ffn) {
    const Product products[] = {{&w.ffn_gate, gate}, {&w.ffn_up, up}};
    multiply(x.rows(x.normed), products);
  } else {
    multiply(x.rows(x.normed), w.ffn_up, up);
  }
  x.for_rows(x.first, width, [&](std::size_t i) {
    activate(config_.activation, config_.gated_ffn ? gate[i - x.first] : std::span<float>{},
             up[i - x.first]);
  });
  if (on_neurons_) on_neurons_(layer, up);
  multiply(up, w.ffn_down, out);
}

}  // namespace ballast
