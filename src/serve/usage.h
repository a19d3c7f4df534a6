// What requests cost.
#pragma once

#include <cstddef>

namespace ballast::serve {

/// What an answer took so far.
struct Usage {
  std::size_t prompt = 0, cached = 0;  ///< tokens of prompts; of these, found in a cache
  std::size_t made = 0, thoughts = 0;  ///< tokens of answers; of these, thoughts
  std::size_t prompt_cache_bytes = 0, cache_bytes = 0;
  double first_seconds = 0;  ///< from the request until the prompts were read
  double seconds = 0;        ///< from the request to the last token
};

}  // namespace ballast::serve
