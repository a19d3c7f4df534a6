// Time and memory against the length of the text, in the stream protocol.
#pragma once

#include <cstddef>
#include <vector>

#include "experiments/speed/speed.h"

namespace ballast {

struct ScaleOptions {
  std::size_t from = 1024;    ///< the shortest text; every doubling of it is measured
  std::size_t to = 65536;     ///< the longest
  std::size_t generate = 32;  ///< tokens of each decode measurement, part of the text
  std::vector<Policy> policies;
  CacheOptions cache;  ///< all but policy, protocol and length
  double seconds = 0;  ///< time limit of each method; 0: none
};

/// A method after so many tokens.
struct ScaleRow {
  std::string method;
  std::size_t tokens = 0;
  double prompt_rate = 0;    ///< tokens a second while the text grew to this length
  double token_seconds = 0;  ///< of one generated token
  std::size_t entries = 0;   ///< per KV head
  std::size_t cache_bytes = 0;
  std::size_t peak_memory = 0;  ///< of the process, since the method began; 0: unknown
};

/// Reads one text with each method. Throws Error if it exceeds the model's positions.
std::vector<ScaleRow> measure_scale(const Model& model, const ScaleOptions& options,
                                    const Advance& advance = {});

}  // namespace ballast
