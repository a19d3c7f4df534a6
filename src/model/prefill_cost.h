// The cost of reading a text, for the time left.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>

#include "ballast/engine/model_config.h"

namespace ballast {

/// Multiplications of a forward pass over tokens 0 to n of a text: weights grow with n, attention
/// with its square up to a sliding window.
inline double prefill_cost(const ModelConfig& c, double n) {
  const auto count = [](std::size_t x) { return static_cast<double>(x); };
  const double attention_rows =
      count(c.heads * c.key_dim + c.kv_heads * (c.key_dim + c.value_dim) + c.heads * c.value_dim);
  double sum = 0;
  for (std::size_t l = 0; l < c.layers; ++l) {
    const std::size_t experts = c.has_experts(l) ? c.experts_used * c.expert_width : 0;
    double rows = (c.gated_ffn ? 3.0 : 2.0) * count(c.dense_width(l) + experts);
    switch (c.kind(l)) {
      case LayerKind::attention: {
        rows += attention_rows;
        const std::size_t window = c.sliding_windows.empty() ? 0 : c.sliding_windows[l];
        const double most = window == 0 ? n : std::min(n, count(window));
        sum += count(c.heads * (c.key_dim + c.value_dim)) * most * (n - most / 2);
        break;
      }
      case LayerKind::short_conv:
        rows += 4 * count(c.width);
        break;
      case LayerKind::delta_rule:
        rows += count(c.conv_channels(l) + 2 * c.delta_value_heads * c.delta_value_dim);
        sum += 3 * count(c.delta_value_heads * c.delta_key_dim * c.delta_value_dim) * n;
        break;
    }
    sum += count(c.width) * rows * n;
  }
  return sum;
}

/// The share of the work that is done when a fraction of `tokens` has been read, `before` of which
/// were in the cache.
inline std::function<double(double)> prefill_share(const ModelConfig& config, std::size_t tokens,
                                                   std::size_t before = 0) {
  const auto first = static_cast<double>(before), n = static_cast<double>(tokens);
  const double start = prefill_cost(config, first);
  const double all = std::max(prefill_cost(config, first + n) - start, 1e-300);
  return [=](double done) { return (prefill_cost(config, first + done * n) - start) / all; };
}

}  // namespace ballast
