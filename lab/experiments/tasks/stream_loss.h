// The loss of a model over an endless text with a cache of bounded size (H2O, figure 5).
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "ballast/engine/model.h"
#include "ballast/engine/tokenizer.h"
#include "experiments/data/kv_source.h"

namespace ballast {

struct StreamLoss {
  std::vector<double> nats;    ///< mean loss a token of each part; the last part may be shorter
  std::size_t tokens = 0;      ///< scored in all
  bool whole = true;           ///< false: the model's positions ended first
  double mean = 0;             ///< nats a token over all
  std::size_t entries = 0;     ///< held at the end, per KV head
  std::size_t most_bytes = 0;  ///< of the cache, at its largest between parts
  double seconds = 0;
};

/// Reads a text token by token, as in decode, and scores each token with the entries that the cache
/// keeps. `part`: tokens of a part, at least 1. Needs protocol stream; with rolling positions the
/// text may exceed the model's. Throws Error on an empty text.
StreamLoss measure_stream_loss(Engine& engine, const CacheOptions& options,
                               std::span<const Token> tokens, std::size_t part,
                               const Advance& advance = {});

}  // namespace ballast
