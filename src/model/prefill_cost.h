// The cost of reading a text, for the time left.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>

#include "ballast/engine/model_config.h"

namespace ballast {

/// Multiplications of a forward pass over tokens 0 to n of a text: weights grow with n, attention
/// with its square.
inline double prefill_cost(const ModelConfig& c, double n) {
  const auto count = [](std::size_t x) { return static_cast<double>(x); };
  const double attention_rows =
      count(c.heads * c.key_dim + c.kv_heads * (c.key_dim + c.value_dim) + c.heads * c.value_dim);
  const double weights =
      count(c.width) * (attention_rows + (c.gated_ffn ? 3.0 : 2.0) * count(c.ffn_width));
  const double attention = count(c.heads * (c.key_dim + c.value_dim)) / 2;
  return count(c.layers) * (weights * n + attention * n * n);
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
