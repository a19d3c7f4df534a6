// Caches of answers that are over, for requests that begin alike.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "ballast/engine/model.h"
#include "serve/memory.h"
#include "serve/metrics.h"

namespace ballast::serve {

/// What has been read of a text.
struct Prefix {
  std::string kind;           ///< options of the cache; only caches of one kind are shared
  std::vector<Token> tokens;  ///< that the cache has read
  /// Tokens that the method summarized, at the beginning; 0: exact, so that any beginning of
  /// `tokens` can be gone on from.
  std::size_t compressed = 0;
  std::vector<float> logits;  ///< of the last of these
  Cache cache;
  Lease lease;

  std::size_t bytes() const;
};

/// Keeps the caches used last. Not thread-safe.
class Prefixes {
 public:
  Prefixes(Memory& memory, Metrics& metrics) : memory_(memory), metrics_(metrics) {}

  /// A beginning of a prompt, ready to be gone on from.
  struct Found {
    Cache cache;
    std::size_t tokens = 0;     ///< of the prompt that it has read
    std::vector<float> logits;  ///< of the last token that was compressed; empty: not known
  };
  /// The longest beginning of `prompt` in a cache of this kind that was compressed at the same
  /// token. At least one token of the prompt is left to read, or its logits are known.
  std::optional<Found> find(const std::string& kind, const std::vector<Token>& prompt,
                            std::size_t compressed);
  /// Keeps it if there is memory, evicting what was used longest ago.
  void keep(Prefix prefix);
  /// Evicts what was used longest ago. False: there is nothing.
  bool evict();

 private:
  static constexpr std::size_t kMost = 256;
  void count() const;

  Memory& memory_;
  Metrics& metrics_;
  std::list<Prefix> kept_;  ///< used last in front
};

}  // namespace ballast::serve
