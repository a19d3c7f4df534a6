// What the ranks of a model whose layers are divided agree on.
#pragma once

#include "ballast/cache.h"
#include "ballast/engine/model_config.h"
#include "ballast/engine/ranks.h"

namespace ballast {

class Model;

/// The options of this rank's cache where the layers of `whole` are divided: what is counted in
/// bytes, by its share of those that attend.
CacheOptions options_of_layers(const CacheOptions& options, const ModelConfig& whole,
                               const ModelConfig& share);

/// Throws Error, on every rank, if one runs another model or version.
void require_same_model(const Model& model, Ranks& ranks);

}  // namespace ballast
