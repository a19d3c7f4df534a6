#include "model/activations.h"

#include <algorithm>

#include "model/row_ops.h"

namespace ballast {
namespace {

/// What a recurrent layer's convolution is given.
std::size_t conv_columns(const ModelConfig& c) {
  std::size_t most = 0;
  for (std::size_t l = 0; l < c.layers; ++l) {
    if (c.kind(l) == LayerKind::short_conv) most = std::max(most, 3 * c.width);
    if (c.kind(l) == LayerKind::delta_rule) most = std::max(most, c.conv_channels(l));
  }
  return most;
}

/// Neurons of the widest feed-forward block.
std::size_t widest_block(const ModelConfig& c) {
  return std::max({c.ffn_width, c.expert_width, c.shared_width});
}

}  // namespace

Activations::Activations(const ModelConfig& c, std::size_t capacity)
    : residual(capacity, c.width),
      normed(capacity, c.width),
      query(capacity, c.heads * c.key_dim),
      key(capacity, c.kv_heads * c.key_dim),
      value(capacity, c.kv_heads * c.value_dim),
      attended(capacity, c.heads * c.value_dim),
      block(capacity, c.width),
      gate(c.gated_ffn ? capacity : 0, widest_block(c)),
      up(capacity, widest_block(c)),
      conv(c.kinds.empty() ? 0 : capacity, conv_columns(c)),
      attention_gate(c.gated_attention ? capacity : 0, c.heads * c.value_dim),
      delta_gate(c.delta_value_heads > 0 ? capacity : 0, c.delta_value_heads * c.delta_value_dim),
      delta_beta(c.delta_value_heads > 0 ? capacity : 0, c.delta_value_heads),
      delta_decay(c.delta_value_heads > 0 ? capacity : 0, c.delta_value_heads),
      router(c.experts > 0 ? capacity : 0, c.experts),
      expert_in(c.experts > 0 ? capacity : 0, c.width),
      expert_out(c.experts > 0 ? capacity : 0, c.width),
      rotations{{capacity, c.rope.dimension}, {capacity, c.second_rope.dimension}},
      capacity(capacity) {}

std::size_t Activations::bytes(const ModelConfig& c, std::size_t tokens) {
  const std::size_t elements =
      3 * c.width + c.heads * (c.key_dim + c.value_dim) + c.kv_heads * (c.key_dim + c.value_dim) +
      (c.gated_ffn ? 2 : 1) * widest_block(c) +
      (c.kinds.empty() ? 0 : (c.delta_value_heads > 0 ? 2 : 1) * conv_columns(c)) +
      (c.gated_attention ? c.heads * c.value_dim : 0) +
      c.delta_value_heads * (c.delta_value_dim + 2) + c.rope.dimension + c.second_rope.dimension +
      c.kv_heads +  // scores of a calibration
      (c.experts > 0 ? c.experts + 2 * c.width : 0);
  return elements * tokens * sizeof(float);
}

void Activations::normalise(const ModelConfig& config, const Norm& norm, const Matrix& x,
                            Matrix& out) const {
  if (!norm.there() && &x == &out) return;
  for_rows(first, config.width, [&](std::size_t i) {
    if (norm.there()) {
      ballast::normalise(config.norm, norm, config.norm_epsilon, x[i], out[i]);
    } else {
      std::ranges::copy(x[i], out[i].begin());
    }
  });
}

}  // namespace ballast
