// Divisors of rotary frequencies for each published context extension.
#pragma once

#include <cstddef>
#include <vector>

namespace ballast {

/// Llama 3.1: high frequencies stay, low ones are divided by `factor`, those between are blended.
struct Llama3Scaling {
  double factor, low_frequency_factor, high_frequency_factor, original_positions;
};
std::vector<float> llama3_divisors(std::size_t dimension, double base,
                                   const Llama3Scaling& scaling);

/// YaRN (Peng et al. 2023): blended between the rotations that turn beta_slow and beta_fast times
/// within the original context.
struct YarnScaling {
  double factor, original_positions, beta_fast = 32, beta_slow = 1;
  bool truncate = true;  ///< blend between whole rotations
};
std::vector<float> yarn_divisors(std::size_t dimension, double base, const YarnScaling& scaling);

/// YaRN's factor on rotated vectors. `scale`: DeepSeek's mscale.
double yarn_magnitude(double factor, double scale = 1.0);

/// LongRoPE's factor on rotated vectors, for a context stretched by `factor`.
double longrope_magnitude(double factor, double original_positions);

}  // namespace ballast
