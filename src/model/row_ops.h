// What a forward pass does to single rows, beside products and attention.
#pragma once

#include <cstddef>
#include <span>

#include "ballast/model_config.h"
#include "model/weights.h"

namespace ballast {

/// out = norm of x; the two may be the same.
void normalise(NormKind kind, const Norm& norm, float epsilon, std::span<const float> x,
               std::span<float> out);

/// up = act(gate) · up, or up = act(up) when gate is empty. gate is used as scratch.
void activate(Activation activation, std::span<float> gate, std::span<float> up);

/// x = c · tanh(x / c)
void soft_cap(float cap, std::span<float> x);

/// Cosines and sines of the rotations of one position: pairs, frequencies.size() of them.
void rotation_at(std::span<const float> frequencies, float magnitude, double position,
                 std::span<float> table);

/// Turns the first numbers of each head of `head_dim` in the row.
void rotate(RopeStyle style, std::span<const float> table, std::size_t head_dim,
            std::span<float> row);

}  // namespace ballast
