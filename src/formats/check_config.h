// Plausibility of a model's description.
#pragma once

#include <string>

#include "ballast/engine/model_config.h"

namespace ballast {

/// Throws Error, beginning with `file`, on sizes of 0 or beyond reason, heads that do not share
/// evenly, numbers that are not finite: after this, products of sizes cannot overflow.
void check_config(const ModelConfig& config, const std::string& file);

/// Part of it that must hold before rotary divisors are computed: they take memory.
void check_rope_dimension(const ModelConfig& config, const std::string& file);

}  // namespace ballast
