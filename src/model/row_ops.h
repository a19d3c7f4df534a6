// Row operations of the forward pass: norms, activations, soft-capping.
#pragma once

#include <cstddef>
#include <span>

#include "ballast/engine/model_config.h"
#include "model/weights.h"

namespace ballast {

/// out = norm of x; the two may be the same.
void normalise(NormKind kind, const Norm& norm, float epsilon, std::span<const float> x,
               std::span<float> out);

/// Of Activation::clamped_silu: up = g·σ(slope·g) · (u + 1), g and u being cut off at the limit, g
/// above alone.
inline constexpr float kSiluLimit = 7.0f, kSiluSlope = 1.702f;

/// up = act(gate) · up, or up = act(up) when gate is empty. gate is overwritten.
void activate(Activation activation, std::span<float> gate, std::span<float> up);

/// x = c · tanh(x / c)
void soft_cap(float cap, std::span<float> x);

}  // namespace ballast
