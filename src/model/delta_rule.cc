#include "model/delta_rule.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "model/row_ops.h"
#include "simd/vector_math.h"

namespace ballast {
namespace {

/// ln(1 + e^x)
float softplus(float x) { return x > 20.0f ? x : std::log1p(std::exp(x)); }
float sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }

}  // namespace

void DeltaRule::normalise_heads(std::span<float> row) const {
  const std::size_t dim = config_.delta_key_dim, heads = 2 * config_.delta_key_heads;
  for (std::size_t h = 0; h < heads; ++h) {
    const std::span<float> head = row.subspan(h * dim, dim);
    float factor = 1.0f / std::sqrt(kernels::dot(head, head) + 1e-6f);
    if (h < config_.delta_key_heads) factor /= std::sqrt(static_cast<float>(dim));
    for (float& x : head) x *= factor;
  }
}

void DeltaRule::run(std::size_t h, ConstMatrix mixed, ConstMatrix beta, ConstMatrix decay,
                    std::span<float> states, MutableMatrix gate) const {
  const std::size_t key_dim = config_.delta_key_dim, dim = config_.delta_value_dim;
  const std::size_t key_heads = config_.delta_key_heads;
  const std::size_t key_head =
      config_.delta_heads_in_turn ? h % key_heads : h / (config_.delta_value_heads / key_heads);
  const MutableMatrix state(states.data() + h * key_dim * dim, key_dim, dim);
  std::vector<float> change(dim), out(dim);
  for (std::size_t t = 0; t < mixed.rows; ++t) {
    const std::span<const float> query = mixed[t].subspan(key_head * key_dim, key_dim);
    const std::span<const float> key = mixed[t].subspan((key_heads + key_head) * key_dim, key_dim);
    const std::span<const float> value = mixed[t].subspan(2 * key_heads * key_dim + h * dim, dim);
    const float stays =
        std::exp(-weights_.delta_rate[h] * softplus(decay[t][h] + weights_.delta_decay_bias[h]));
    std::ranges::fill(change, 0.0f);
    for (std::size_t k = 0; k < key_dim; ++k) {
      for (float& x : state[k]) x *= stays;
      kernels::axpy(key[k], state[k], change);
    }
    const float part = sigmoid(beta[t][h]);
    for (std::size_t i = 0; i < dim; ++i) change[i] = part * (value[i] - change[i]);
    std::ranges::fill(out, 0.0f);
    for (std::size_t k = 0; k < key_dim; ++k) {
      kernels::axpy(key[k], change, state[k]);
      kernels::axpy(query[k], state[k], out);
    }
    normalise(NormKind::rms, weights_.delta_norm, config_.norm_epsilon, out, out);
    const std::span<float> gated = gate[t].subspan(h * dim, dim);
    for (std::size_t i = 0; i < dim; ++i) gated[i] = out[i] * gated[i] * sigmoid(gated[i]);
  }
}

}  // namespace ballast
