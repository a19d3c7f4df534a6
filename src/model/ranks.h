// How a text, or a model, is divided among ranks.
#pragma once

#include <cstddef>
#include <vector>

#include "ballast/cache.h"
#include "ballast/engine/model_config.h"
#include "ballast/engine/ranks.h"

namespace ballast {

class Model;

/// Where the shares of `ranks` ranks begin, and the end: ranks + 1 numbers. Later shares are
/// shorter, since their tokens attend to more. Throws Error if there is not a token for each.
std::vector<std::size_t> divide_text(const ModelConfig& config, std::size_t tokens,
                                     std::size_t ranks);

/// The options of this rank's part of a cache, given those of the whole, for a prompt of so many
/// tokens: what is counted in tokens or bytes, by its share of them.
CacheOptions options_of_share(const CacheOptions& whole, const ModelConfig& config,
                              const Ranks& ranks, std::size_t prompt);

/// The options of this rank's cache where the layers of `whole` are divided: what is counted in
/// bytes, by its share of those that attend.
CacheOptions options_of_layers(const CacheOptions& options, const ModelConfig& whole,
                               const ModelConfig& share);

/// Throws Error, on every rank, if one runs another model or version.
void require_same_model(const Model& model, Ranks& ranks);

}  // namespace ballast
