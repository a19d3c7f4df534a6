// The speed of a model with a method, beside the machine's floors.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "ballast/cache.h"
#include "ballast/engine/model.h"
#include "experiments/data/kv_source.h"
#include "experiments/speed/machine.h"

namespace ballast {

/// The minimal cost of a pass over a model: bytes read from memory, and multiply-adds (two
/// operations each).
struct ModelCost {
  double weight_bytes = 0;  ///< read for a token, or for a batch of tokens
  double layer_flops = 0;   ///< of a token in the layers' matrices
  double tile_flops = 0;    ///< of these, those in matrices that tiles can multiply
  double int8_flops = 0;    ///< by tiles, in place of tile_flops
  double output_flops = 0;  ///< of a token's logits
  double key_flops = 0;     ///< of a query and a key, over all layers and heads
  double value_flops = 0;   ///< of a weight and a value, likewise
  /// Operations of a causal prefill of `tokens` tokens with the logits of the last.
  double prompt_flops(std::size_t tokens) const;
  /// Seconds of these at the machine's peaks: of tiles for the weights, and for the keys and values
  /// of these types, that they multiply.
  double prompt_floor(std::size_t tokens, const Machine& machine, StorageType keys,
                      StorageType values) const;
};

ModelCost cost_of(const Model& model);

/// Bytes of the entries that one more token would attend to, over all layers and KV heads.
double attended_bytes(const Cache& cache);

struct SpeedOptions {
  std::vector<std::size_t> prompts = {512, 4096, 16384};
  std::size_t generate = 64;  ///< tokens after the prompt
  std::size_t batch = 1;      ///< sequences decoded together
  std::vector<Policy> policies;
  CacheOptions cache;  ///< all but the policy and the length
};

/// One method at one length of prompt. Times in seconds.
struct SpeedRow {
  std::string method;
  std::size_t prompt = 0;
  std::size_t generated = 0;
  std::size_t batch = 1;
  double prompt_seconds = 0;    ///< one prompt, to its last logits: the time to the first token
  double compress_seconds = 0;  ///< summarizing at the end of one prompt
  double decode_seconds = 0;    ///< all generated tokens of the batch
  double prompt_floor = 0;      ///< multiply-adds of the prompt / the machine's peak
  double decode_floor = 0;      ///< bytes of weights and caches of all steps / read bandwidth
  std::size_t entries = 0;      ///< kept per KV head, at the end
  std::size_t cache_bytes = 0;  ///< of one sequence, at the end
  std::size_t exact_bytes = 0;  ///< the same without a method
  std::size_t peak_memory = 0;  ///< of the process while this was measured; 0: unknown

  double prompt_rate() const { return static_cast<double>(prompt) / prompt_seconds; }
  double token_seconds() const { return decode_seconds / static_cast<double>(generated); }
  double decode_rate() const { return static_cast<double>(generated * batch) / decode_seconds; }
};

/// Keeps the smaller of each time. `more`: another run of the same measurement.
void keep_least(std::span<SpeedRow> best, std::span<const SpeedRow> more);

/// Throws Error if a prompt plus its generated tokens exceeds the model's positions.
void check_lengths(const Model& model, const CacheOptions& options,
                   const std::vector<std::size_t>& prompts, std::size_t generate);

/// Measures every method at every length once; rows are ordered by method. Throws Error before any
/// measurement if a prompt plus its generated tokens exceeds the model's positions.
std::vector<SpeedRow> measure_speed(const Model& model, const SpeedOptions& options,
                                    const Machine& machine, const Advance& advance = {});

}  // namespace ballast
