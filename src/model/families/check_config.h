// Plausibility checks of a model's configuration.
#pragma once

#include <string>

#include "ballast/engine/model_config.h"

namespace ballast {

/// Throws Error, beginning with `file`, on sizes that are 0 or implausible, query heads that are no
/// multiple of KV heads, and values that are not finite. Afterwards products of sizes cannot
/// overflow.
void check_config(const ModelConfig& config, const std::string& file);

/// The check that must precede lists of layers, which take memory.
void check_layers(const ModelConfig& config, const std::string& file);

/// Experts that tokens choose by groups are refused.
void check_groups(std::size_t groups, const std::string& file);

/// The checks that must precede the rotary divisors, which take memory.
void check_rope_dimension(std::size_t dimension, std::size_t key_dim, const std::string& file);

}  // namespace ballast
