// Caches of answers that are over, for requests that begin alike.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "ballast/engine/gauge.h"
#include "ballast/engine/model.h"
#include "ballast/pack.h"
#include "serve/http/memory.h"
#include "serve/http/metrics.h"
#include "serve/texts/row_ledger.h"

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
  std::optional<Cache> cache;  ///< none: packed, or on disk alone
  Lease lease;
  std::string id;                      ///< of its file
  std::vector<std::byte> packed = {};  ///< in place of `cache`: see PrefixPacker
  std::size_t unpacked_bytes = 0;      ///< of the cache that is packed
  /// Packed, too: its first `base_tokens` tokens come before those of `packed`. Null: there are
  /// none.
  std::shared_ptr<const Prefix> base = {};
  std::size_t base_tokens = 0;
  RowLedger::Hold rows = {};               ///< of the cache; `lease` is for the rest
  std::optional<GaugeReading> gauge = {};  ///< where its size was chosen for the text

  /// Of memory, without that of `base`.
  std::size_t bytes() const;
  bool in_memory() const { return cache.has_value() || !packed.empty(); }
};

/// Packs what rests: see ballast/pack.h.
class PrefixPacker {
 public:
  /// `preset`: with step 0 nothing is packed. The model must outlive the packer.
  explicit PrefixPacker(const Model& model, PackPreset preset) : model_(model), preset_(preset) {}

  /// Whether it has a cache that can be packed: one of every token.
  bool can(const Prefix& prefix) const;
  /// The same prefix packed, as the content of its file with this note, and without a lease; with
  /// a base (see Prefix) the tokens behind it. Null: it cannot be packed.
  std::shared_ptr<Prefix> packed(const Prefix& prefix, std::string_view note,
                                 std::shared_ptr<const Prefix> base = {},
                                 std::size_t base_tokens = 0) const;
  /// The cache that was packed. `begun`: what there is of its base, or none. Throws Error.
  Cache unpack(const Prefix& packed, std::optional<Cache> begun = {}) const;

 private:
  std::shared_ptr<const PackCodec> codec() const;

  const Model& model_;
  PackPreset preset_;
};

class PrefixFiles;

/// Keeps caches, and finds those on disk. Where memory is short, those that are cheap to read again
/// for their bytes and were used long ago go first: they are packed, then dropped. Once less than a
/// quarter of the memory is left a thread packs those that rest, so that seldom anyone waits for
/// it. Safe to use from many threads.
class Prefixes {
 public:
  using Clock = std::chrono::steady_clock;

  static constexpr std::chrono::seconds kRest{10};

  /// `files`: where they survive the process; null: nowhere. `packer`: none packs nothing. `rest`:
  /// how long after its last use a cache rests.
  Prefixes(Memory& memory, Metrics& metrics, std::unique_ptr<PrefixFiles> files,
           std::optional<PrefixPacker> packer = {}, std::chrono::seconds rest = kRest);
  ~Prefixes();

  /// A beginning of a prompt, ready to be gone on from.
  struct Found {
    Cache cache;
    std::size_t tokens = 0;     ///< of the prompt that it has read
    std::vector<float> logits;  ///< Prefix::logits
    RowLedger::Hold rows;       ///< of memory that is paid for already
    std::optional<GaugeReading> gauge;
    std::size_t paid = 0;  ///< bytes of its tokens in `rows`
  };
  /// The longest beginning of `prompt` in a cache of this kind that was compressed at the same
  /// token. At least one token of the prompt is left to read, or its logits are known. `loads`:
  /// one that is packed or on disk is brought back; otherwise it is not found.
  std::optional<Found> find(const std::string& kind, const std::vector<Token>& prompt,
                            std::size_t compressed, bool loads = true);
  /// Keeps it if there is memory. For the time `keep` after its last use those without one go
  /// before it.
  /// `session`: that it was read for; see remove().
  void keep(Prefix prefix, std::chrono::seconds keep = {}, std::string session = {});
  /// Packs or drops from memory what is worth least, but for so many of those used last. False:
  /// there is nothing.
  bool evict(std::size_t but_first = 0);

  /// What there is of a text: the cache that has most of its tokens.
  struct Held {
    std::size_t tokens = 0;         ///< of the text
    std::size_t bytes = 0;          ///< of memory
    std::size_t shared = 0;         ///< of these, what others hold, too
    const char* where = "nowhere";  ///< "memory", "packed", "disk"
  };
  Held held(const std::string& kind, const std::vector<Token>& text) const;
  /// Packs that cache now; where it cannot be, it is the next to go.
  void release(const std::string& kind, const std::vector<Token>& text);
  /// Keeps that cache for so long after its last use.
  void hold(const std::string& kind, const std::vector<Token>& text, std::chrono::seconds keep);
  /// Makes that cache small where it is: see Cache::compact. False: there is none. Throws Error
  /// where it cannot be, or there is no memory for a copy.
  bool compact(const std::string& kind, const std::vector<Token>& text, std::size_t bytes);
  /// What a session still needs of a cache.
  struct Needed {
    std::size_t tokens = 0;  ///< of its first ones
    std::string session;
  };
  /// Drops caches that have this text or a beginning of it, and those that were read for `session`,
  /// from disk too, but for what `needed` says of each. Those that others have gone on with stay.
  void remove(const std::string& kind, const std::vector<Token>& text,
              const std::string& session = {},
              const std::function<Needed(const Prefix&)>& needed = {});

 private:
  static constexpr std::size_t kMost = 1024;
  /// Loading so many tokens takes as long as reading one.
  static constexpr std::size_t kWorth = 32;
  /// Fewer tokens in common are packed again: a pack has tables of its own.
  static constexpr std::size_t kLeastShared = 512;
  struct Kept {
    std::shared_ptr<const Prefix> prefix;
    double worth = 0;
    std::chrono::seconds keep{};
    Clock::time_point used{};
    std::string session = {};  ///< that it was read for, or that needs it
    bool stays = false;        ///< it could not be packed
    bool held(Clock::time_point now) const { return used + keep > now; }
  };
  using List = std::list<Kept>;

  /// It has been used now.
  void use(List::iterator at);
  /// The cache that has most of a text, and how much.
  List::const_iterator longest(const std::string& kind, const std::vector<Token>& text,
                               std::size_t& tokens) const;
  /// Brings its cache back into memory. False: there is no memory, or no such file that is whole;
  /// it may be gone.
  bool load(List::iterator at);
  /// Takes memory for a cache that is there, evicting others if need be. False: there is none.
  bool pay(Prefix& prefix);
  /// Takes memory, evicting all but the first if need be.
  bool take_beside_first(std::size_t bytes, Lease& lease);
  bool evict_one(std::size_t but_first);
  /// The one to be packed or dropped next that `fits`, but for so many used last; end(): none.
  template <typename Fits>
  List::iterator least(std::size_t but_first, const Fits& fits);
  /// Whether it may be packed: what has a file lies there packed.
  bool can_pack(const Kept& one) const;
  bool pack(List::iterator at);
  /// What is packed already of its tokens, as Prefix::base and base_tokens.
  std::pair<std::shared_ptr<const Prefix>, std::size_t> packed_beginning(
      const Prefix& prefix) const;
  /// The same of what is not packed: a copy; none: there is no such cache.
  std::optional<Cache> live_beginning(const Prefix& packed) const;
  /// Drops its tokens but the first; all, where it cannot go back so far or another has these.
  void cut(List::iterator at, std::size_t tokens);
  /// `packed` takes its place.
  void replace(List::iterator at, std::shared_ptr<Prefix> packed);
  void pack_resting();
  void count() const;

  Memory& memory_;
  Metrics& metrics_;
  RowLedger ledger_;
  std::unique_ptr<PrefixFiles> files_;
  std::optional<PrefixPacker> packer_;
  mutable std::mutex mutex_;
  List kept_;  ///< used last in front
  double age_ = 0;
  std::chrono::seconds rest_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::thread thread_;  ///< of pack_resting(); only where there is a packer
};

}  // namespace ballast::serve
