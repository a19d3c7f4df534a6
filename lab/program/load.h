// Clients that all ask at once, for measurements.
#pragma once

#include <cstddef>
#include <vector>

namespace ballast::serve {

struct LoadOptions {
  std::size_t streams = 1;    ///< at once, each with a prompt of its own
  std::size_t prompt = 512;   ///< tokens
  std::size_t generate = 64;  ///< tokens
  /// Prompts of other numbers have no common beginning.
  std::size_t number = 0;
};

struct LoadResult {
  std::vector<double> first;     ///< seconds to the first token, ascending; one of each stream
  std::vector<double> between;   ///< seconds between two tokens of a stream, ascending
  double seconds = 0;            ///< until all had all their tokens
  std::size_t cache_bytes = 0;   ///< of all streams, after their prompts
  double tokens_per_second = 0;  ///< generated, prompts included in the time
};

/// Asks the server on this machine's `port` by HTTP, as other clients do. Throws Error if an answer
/// fails or has another number of tokens.
LoadResult measure_load(int port, const LoadOptions& options);

/// The value at that share of an ascending list, which is not empty (nearest rank).
double quantile(const std::vector<double>& ascending, double share);

}  // namespace ballast::serve
