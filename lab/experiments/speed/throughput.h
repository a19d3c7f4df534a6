// Tokens a second within a given memory: the experiment of H2O's tables 3 to 5.
#pragma once

#include <cstddef>
#include <vector>

#include "experiments/speed/speed.h"

namespace ballast {

struct ThroughputOptions {
  std::vector<std::size_t> prompts = {512, 2048};
  std::size_t generate = 512;
  std::vector<Policy> policies;
  CacheOptions cache;               ///< all but the policy and the length
  std::vector<std::size_t> memory;  ///< bytes for weights, caches and scratch together
  std::size_t most_batch = 256;
  /// Reads one prompt and counts its time for each sequence, all of which go on from copies of it.
  bool read_once = false;
  std::size_t repeat = 1;  ///< runs of each, methods in turn; the least times count
};

/// One method at one prompt length and memory size, with the largest batch that fits. Times in
/// seconds.
struct ThroughputRow {
  std::string method;
  std::size_t memory = 0;
  std::size_t prompt = 0;
  std::size_t generated = 0;       ///< tokens of each sequence
  std::size_t batch = 0;           ///< 0: not even one sequence fits
  std::size_t entries = 0;         ///< kept of the prompt, per KV head
  std::size_t sequence_bytes = 0;  ///< a cache, with room for what is generated
  std::size_t reading_bytes = 0;   ///< the most that a cache takes while its prompt is read
  double prompt_seconds = 0;       ///< of the whole batch, summaries included
  std::size_t prompts_read = 0;    ///< fewer than the batch: prompt_seconds are extrapolated
  bool capped = false;             ///< more would fit than most_batch
  double decode_seconds = 0;

  bool extrapolated() const { return prompts_read < batch; }
  /// Tokens generated a second including the prefill time, as in the paper.
  double rate() const;
  double decode_rate() const;
};

/// In the order memory, prompt, policy. Sequences read prompts of their own one after another, so
/// that one at a time is uncompressed, and are continued together.
std::vector<ThroughputRow> measure_throughput(const Model& model, const ThroughputOptions& options,
                                              const Advance& advance = {});

}  // namespace ballast
