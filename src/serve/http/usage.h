// What requests cost.
#pragma once

#include <chrono>
#include <cstddef>
#include <vector>

namespace ballast::serve {

/// A cache was made small while its text went on.
struct Compaction {
  std::size_t tokens = 0;        ///< of the text, then
  std::size_t bytes_before = 0;  ///< of the cache
  std::size_t bytes = 0;         ///< after it
  double seconds = 0;
};

/// What an answer took so far.
struct Usage {
  std::size_t prompt = 0, cached = 0;  ///< tokens of prompts; of these, found in a cache
  std::size_t kept = 0;                ///< of the others, marked to be kept: see CacheMarks
  std::chrono::seconds keep{};         ///< how long these are
  std::size_t made = 0, thoughts = 0;  ///< tokens of answers; of these, thoughts
  std::size_t prompt_cache_bytes = 0, cache_bytes = 0;
  double kl = -1;            ///< what the cache costs: GaugeReading::kl; -1: not known
  double first_seconds = 0;  ///< from the request until the prompts were read
  double seconds = 0;        ///< from the request to the last token
  std::vector<Compaction> compactions;
};

}  // namespace ballast::serve
