#include "cache/byte_budget.h"

#include <algorithm>
#include <limits>

#include "ballast/memory_size.h"
#include "base/fail.h"
#include "cache/cache_parts.h"
#include "cache/cache_size.h"

namespace ballast {
std::size_t exact_bf16_bytes(const CacheShape& shape, std::size_t tokens) {
  return tokens * shape.layers * shape.kv_heads * (shape.key_dim + shape.value_dim) *
         sizeof(std::uint16_t);
}

Policy fit_bytes(const CacheShape& shape, const CacheOptions& options, std::size_t tokens,
                 bool strict) {
  const Policy& policy = options.policy;
  if (!bytes_are_entries(policy)) return policy;
  constexpr std::size_t kAll = std::numeric_limits<Position>::max();
  if (tokens == 0 && options.protocol == Protocol::prefill) return with_entries(policy, kAll);
  const MemorySize size = policy.memory("bytes");
  require(tokens > 0 || !size.needs_length(),
          "method {}: a stream of unknown length has no share; say how many bytes: bytes=256M",
          policy.to_string());
  const std::size_t allowed = size.bytes(tokens, exact_bf16_bytes(shape, tokens));
  const std::size_t fewest = least_entries(policy, options.protocol);
  CacheOptions counted = options;
  counted.recording = {};  // of an experiment: no part of a budget
  CacheSize size_of(shape, counted);
  // The most entries of a text of `length` tokens, 0: without end. 0: not even the fewest fit.
  const auto most = [&](std::size_t length) -> std::size_t {
    const auto fits = [&](std::size_t entries) {
      return size_of.with_entries(entries, length) <= allowed;
    };
    const std::size_t heads = shape.layers * shape.kv_heads;
    std::size_t low = fewest;
    std::size_t high = length > 0 ? std::max(length, low) : std::min(kAll, low + allowed / heads);
    if (fits(high)) return high;
    if (!fits(low)) return 0;
    while (high - low > 1) {
      const std::size_t middle = low + (high - low) / 2;
      (fits(middle) ? low : high) = middle;
    }
    return low;
  };
  std::size_t entries = most(tokens);
  if (entries == 0 && size.unit == MemorySize::Unit::share && !strict) {
    entries = std::max(tokens, fewest);
  }
  require(
      entries > 0,
      "method {}: {} bytes for {} tokens, but the {} entries of a head that it keeps in any case "
      "take {}; give more memory, or a smaller sink= or window=",
      policy.to_string(), allowed, tokens, fewest, size_of.with_entries(fewest, tokens));
  // All fit; what comes later may take the rest.
  const bool slides = options.protocol == Protocol::stream || !policy.keeps_generated();
  if (entries == tokens && slides) entries = std::max(entries, most(0));
  return with_entries(policy, entries);
}

std::size_t most_entries(const Cache& cache) {
  return CacheParts::of(cache).layer(0, 0).budget().total();
}

}  // namespace ballast
