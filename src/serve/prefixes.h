// Caches of answers that are over, for requests that begin alike.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
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
  /// Tokens that the method summarized, at the beginning; 0: exact.
  std::size_t compressed = 0;
  /// Whether it can be gone on from its end only (a stream's), not from any beginning of `tokens`
  /// that holds what was compressed.
  bool whole = false;
  /// Where `cache` is there: of the last token, if whole; else of the last that was compressed.
  std::vector<float> logits;
  std::optional<Cache> cache;  ///< none: on disk alone
  Lease lease;
  std::string id;  ///< of its file

  std::size_t bytes() const;
};

class PrefixFiles;

/// Keeps the caches used last, and finds those on disk. Not thread-safe.
class Prefixes {
 public:
  /// `files`: where they survive the process; null: nowhere.
  Prefixes(Memory& memory, Metrics& metrics, std::unique_ptr<PrefixFiles> files);
  ~Prefixes();

  /// A beginning of a prompt, ready to be gone on from.
  struct Found {
    Cache cache;
    std::size_t tokens = 0;     ///< of the prompt that it has read
    std::vector<float> logits;  ///< Prefix::logits
  };
  /// The longest beginning of `prompt` in a cache of this kind that was compressed at the same
  /// token. At least one token of the prompt is left to read, or its logits are known.
  std::optional<Found> find(const std::string& kind, const std::vector<Token>& prompt,
                            std::size_t compressed);
  /// Keeps it if there is memory, evicting what was used longest ago.
  void keep(Prefix prefix);
  /// Evicts from memory what was used longest ago, but for so many of those used last. False: there
  /// is nothing.
  bool evict(std::size_t but_first = 0);

 private:
  static constexpr std::size_t kMost = 1024;
  /// Loading so many tokens takes as long as reading one.
  static constexpr std::size_t kWorth = 32;
  using List = std::list<std::shared_ptr<const Prefix>>;

  /// Reads its file. Null: there is no memory, or no such file that is whole.
  std::shared_ptr<const Prefix> load(const Prefix& prefix);
  /// Takes memory, evicting all but the first if need be.
  bool take_beside_first(std::size_t bytes, Lease& lease);
  void count() const;

  Memory& memory_;
  Metrics& metrics_;
  std::unique_ptr<PrefixFiles> files_;
  List kept_;  ///< used last in front
};

}  // namespace ballast::serve
