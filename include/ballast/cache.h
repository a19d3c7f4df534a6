// The cache of a sequence: every layer, every KV head, each head's cache being
//
//   sink: first tokens, exact | summary of the middle | window: last tokens, exact
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ballast/attention.h"
#include "ballast/heads.h"
#include "ballast/matrix.h"
#include "ballast/method.h"
#include "ballast/recording.h"
#include "ballast/recurrent_states.h"
#include "ballast/rotary.h"
#include "ballast/storage.h"
#include "ballast/summary.h"
#include "ballast/threads.h"

namespace ballast {

struct CacheParts;

/// The dimensions of a model's cache.
struct CacheShape {
  std::size_t layers = 1;
  std::size_t kv_heads = 1;
  std::size_t queries_per_kv_head = 1;  ///< query heads that share a KV head
  std::size_t key_dim = 0;
  std::size_t value_dim = 0;
  Logits logits;
  /// Sliding windows of the layers (0: none), for models that have them; empty: none anywhere.
  std::vector<Position> sliding_windows;
  /// ALiBi slopes of the kv_heads·group query heads; empty: none.
  std::vector<float> alibi_slopes;
  /// Attention sinks of the layers·kv_heads·group query heads (see Queries); empty: none.
  std::vector<float> sink_logits;
  /// Of keys and queries. The cache applies it when positions are rolling; when they are absolute
  /// keys come turned by it, and keys of few bits (is_low_bit()) are stored relative to their mean
  /// before it. Where none is given they are relative to their plain mean.
  Rotary rotary;
  /// Of the layers, where they differ (absolute positions only); empty: `rotary` for all.
  std::vector<Rotary> rotations;
  const Rotary& rotary_of(std::size_t layer) const {
    return rotations.empty() ? rotary : rotations[layer];
  }
  /// Of a model with recurrent layers beside those that attend, which alone `layers` counts: the
  /// float32 elements of each one's state.
  std::vector<std::size_t> recurrent;
};

/// Where entries stand.
/// absolute: where they stood in the text; keys and queries come rotated accordingly.
/// rolling: at their index among the entries that are kept, anew at every step; keys and queries
/// come before rotation. Texts may then be longer than the model's positions.
enum class Positions : std::uint8_t { absolute, rolling };

std::string_view to_string(Positions positions);
/// Throws Error that lists the known names.
Positions parse_positions(std::string_view name);

struct CacheOptions {
  Policy policy;
  Protocol protocol = Protocol::prefill;
  Positions positions = Positions::absolute;
  /// Types of few bits (is_low_bit()) round relative to a mean that is taken from tokens 4 to 259,
  /// and never round tokens 0 to 3, which those methods keep in their sink. The rows before token
  /// 260 are bf16 until then, or until the prompt ends or tokens leave; an exact cache whose prompt
  /// ends before token 20 waits for that one. Methods with one budget in bytes take bf16 in their
  /// place: their tiers decide.
  StorageType key_type = StorageType::f32;
  StorageType value_type = StorageType::f32;
  std::uint64_t seed = 0;
  /// Tokens that the sequence will have. stream with a rate needs it; otherwise it only saves
  /// allocations. 0: unknown.
  std::size_t expected_tokens = 0;
  /// Threads of the cache's loops over heads. Null: the pool of the engine that runs the cache, or
  /// else ThreadPool::shared(). Not part of a saved cache: see set_host().
  std::shared_ptr<ThreadPool> pool;
  /// For methods with Needs::value_norms; null: they take |v|_1. Not part of a saved
  /// cache: see set_host().
  std::shared_ptr<const ValueNorms> value_norms;
  /// What forks of an exact cache need beside its tokens: see recording.h.
  Recording recording;

  /// Whether forward() checks that keys, values and queries are finite. Without the check an
  /// element that is not finite has no defined result. Not part of a saved cache.
  bool check_finite = true;

  /// Whether the cache wants the queries of all tokens, for its method or for its notes.
  bool needs_queries() const;
};

/// Bytes held, by part.
struct CacheBytes {
  std::size_t sink = 0;  ///< and the means of rows of few bits
  std::size_t summary = 0;
  std::size_t window = 0;
  std::size_t attention_stats = 0;  ///< attention sum and queries remembered for the method
  std::size_t rotary = 0;           ///< cosines and sines, with rolling positions
  std::size_t room = 0;             ///< of the window: reserved for tokens to come
  std::size_t recurrent = 0;        ///< states of recurrent layers, and their checkpoint
  std::size_t total() const {
    return sink + summary + window + attention_stats + rotary + recurrent;
  }
  /// What the entries take: a budget in bytes is compared with this.
  std::size_t used() const { return total() - room - recurrent; }
  CacheBytes& operator+=(const CacheBytes& other);
};

/// A sequence's cache. Not thread-safe, except that different layers may be used at once; a call
/// runs its heads on the threads of options().pool.
class Cache {
 public:
  /// Throws Error on a bad shape or option (see Policy::budget).
  Cache(const CacheShape& shape, const CacheOptions& options);
  Cache(Cache&&) noexcept;
  Cache& operator=(Cache&&) noexcept;
  ~Cache();

  const CacheShape& shape() const;
  const CacheOptions& options() const;

  /// Takes in m tokens of one layer and answers their queries, causally.
  /// keys: m × kv_heads × key_dim, values: m × kv_heads × value_dim; queries: m × (kv_heads ·
  /// queries_per_kv_head) × key_dim, out: the same with value_dim; query heads of a KV head side by
  /// side. Each may have its own element type and strides; nothing is converted by the caller. A
  /// matrix, rows of tokens in float32, has heads side by side.
  /// How a text is cut into calls does not change the result. Tokens that need no output come with
  /// queries and out of 0 tokens, unless the method uses attention (options().needs_queries()).
  /// Layers are fed in order: none may be ahead of the one before it.
  /// Throws Error on a shape that does not fit, a layer out of order, or an element that is not
  /// finite; the cache is then as it was.
  void forward(std::size_t layer, const HeadsView& keys, const HeadsView& values,
               const HeadsView& queries, const MutableHeadsView& out);

  /// The prompt has ended: prefill summarises its middle. Call once, for each layer or for all
  /// (no `layer`). Throws Error if the layers have read different numbers of tokens.
  void finish_prompt(std::optional<std::size_t> layer = {});

  /// A copy that goes on by itself, in whatever state. Once the prompt has ended it shares what
  /// stays as it is, to the bit, and takes little memory. It has no spare room: see reserve().
  Cache clone() const;

  /// Forgets all tokens but the first `tokens`, as if the others had never come: rejected drafts,
  /// or a step that failed in one of its layers. Exact caches can, others as long as no token has
  /// left the window since; a method that uses attention cannot; one with recurrent layers can go
  /// back to RecurrentStates::keep() alone. A prompt that was finished stays so. Throws Error
  /// that says why it is impossible; the cache is then as it was.
  void truncate(std::size_t tokens);

  /// The states of the recurrent layers; null where shape().recurrent is empty.
  RecurrentStates* recurrent();
  const RecurrentStates* recurrent() const;

  /// Makes room for a text of that many tokens at once. A new cache has it for
  /// options().expected_tokens; one that was loaded grows otherwise, by half whenever it is full.
  void reserve(std::size_t tokens);

  std::size_t tokens(std::size_t layer = 0) const;   ///< seen
  std::size_t entries(std::size_t layer = 0) const;  ///< kept, per KV head (the largest)
  CacheBytes bytes() const;

  /// The parts of one head, for a caller who runs attention: sink, summary, window. Of a joined
  /// cache those behind the documents. Keys are as
  /// they were given, positions those in the text. Summaries of methods with one budget for the
  /// whole cache have positions only where SummarySetup::asks_positions; kept() always has them.
  std::vector<Segment> segments(std::size_t layer, std::size_t head) const;
  /// Every kept entry of one head, in order of position.
  std::vector<KeptEntry> kept(std::size_t layer, std::size_t head) const;

  /// Writes a versioned, checksummed file, beside and renamed. `note` is kept with it (what the
  /// cache is of). Throws Error if it cannot be written.
  void save(const std::filesystem::path& path, std::string_view note = {}) const;
  /// The content of that file, for parse(): a copy of the cache that others can go on from.
  std::vector<std::byte> to_bytes(std::string_view note = {}) const;
  /// Throws Error naming what is wrong with a damaged or foreign file.
  static Cache load(const std::filesystem::path& path, std::string* note = nullptr);
  /// The same from memory; errors say `name`.
  static Cache parse(std::span<const std::byte> bytes, const std::string& name,
                     std::string* note = nullptr);

 private:
  friend struct CacheParts;
  explicit Cache(std::unique_ptr<CacheParts> parts);

  std::unique_ptr<CacheParts> parts_;
};

/// Sets options().pool and options().value_norms, for caches that were loaded. No other call may be
/// running.
void set_host(Cache& cache, std::shared_ptr<ThreadPool> pool,
              std::shared_ptr<const ValueNorms> value_norms);

/// What the methods have to say of how it went (ClusterGen's radius, failed halvings).
std::vector<std::string> reports_of(const Cache& cache);

/// One sequence's part of forward_batch(): see Cache::forward for the shapes.
struct BatchItem {
  Cache* cache = nullptr;
  HeadsView keys, values, queries;
  MutableHeadsView out;
};

/// Cache::forward of one layer for several sequences at once, on the pool of the first cache.
/// Results are those of a call each. Throws Error as forward() does, and if a cache is given twice;
/// all caches are then as they were.
void forward_batch(std::size_t layer, std::span<const BatchItem> items);

}  // namespace ballast
