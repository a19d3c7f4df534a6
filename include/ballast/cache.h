// The cache of a sequence: every layer, every KV head, each head's cache being
//
//   sink: first tokens, exact | summary of the middle | window: last tokens, exact
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ballast/attention.h"
#include "ballast/experiments.h"
#include "ballast/heads.h"
#include "ballast/matrix.h"
#include "ballast/method.h"
#include "ballast/rotary.h"
#include "ballast/storage.h"
#include "ballast/summary.h"
#include "ballast/threads.h"

namespace ballast {

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
  /// else ThreadPool::shared(). Not part of a saved cache: see Cache::set_pool().
  std::shared_ptr<ThreadPool> pool;
  /// For methods with AttentionStats::value_norms; null: they take |v|_1. Not part of a saved
  /// cache: see Cache::set_value_norms().
  std::shared_ptr<const ValueNorms> value_norms;
  /// What forks of an exact cache need beside its tokens: see experiments.h.
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

class ByteReader;
class ByteWriter;
class JoinedDocuments;
class LayerCache;
class RecurrentStates;
class ReplayScores;
class RotaryTable;
struct Allocation;
struct BatchItem;
struct ScoredRun;
class SharedState;
struct Tier;

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
  /// Sets options().pool, for caches that were loaded. No other call may be running.
  void set_pool(std::shared_ptr<ThreadPool> pool);
  /// Sets options().value_norms, likewise.
  void set_value_norms(std::shared_ptr<const ValueNorms> norms);

  /// Takes in m tokens of one layer and answers their queries, causally.
  /// keys: m × kv_heads × key_dim, values: m × kv_heads × value_dim; queries: m × (kv_heads ·
  /// queries_per_kv_head) × key_dim, out: the same with value_dim; query heads of a KV head side by
  /// side. Each may have its own element type and strides; nothing is converted by the caller.
  /// How a text is cut into calls does not change the result. Tokens that need no output come with
  /// queries and out of 0 tokens, unless the method uses attention (options().needs_queries()).
  /// Layers are fed in order: none may be ahead of the one before it.
  /// Throws Error on a shape that does not fit, a layer out of order, or an element that is not
  /// finite; the cache is then as it was.
  void forward(std::size_t layer, const HeadsView& keys, const HeadsView& values,
               const HeadsView& queries, const MutableHeadsView& out);
  /// The same for float32 rows of tokens, heads side by side.
  void forward(std::size_t layer, ConstMatrix keys, ConstMatrix values, ConstMatrix queries,
               MutableMatrix out);

  /// Whether the tokens that forward() takes come with scores: the method has ReplayScore::given,
  /// and may still choose among them.
  bool takes_scores() const;
  /// Scores of the tokens that forward() has just taken in this layer, tokens × kv_heads, from 0:
  /// how much answers would lose without each entry. Throws Error if the method takes none, on
  /// another number of tokens, and if a score is negative or not finite.
  void note_scores(std::size_t layer, ConstMatrix scores);

  /// What a second reading is scored with, for methods whose AttentionStats ask for one or for
  /// recording.replay. After the last token of the text, before replay(), once for each layer.
  /// `output_grams`: for each of the kv_heads·queries_per_kv_head query heads W_O W_O^T of its part
  /// of the output projection, value_dim × value_dim, one below the other; no rows: the identity.
  /// Scores take |W_O^T v| of every entry from it (KVzip+, arXiv:2601.07891).
  void start_replay(std::size_t layer, ConstMatrix output_grams);
  /// Second reading: m tokens that see everything read, and each other causally, as if they
  /// followed the text. Nothing of them is kept; every entry's score grows by what they look at.
  /// With AttentionStats::replay_own calls come chunk by chunk, from the start of what was read
  /// last: the end of a call is the next chunk= tokens, whose entries alone are scored.
  /// keys, values, queries, out: as for forward(). query_weights: 1/|x| of each token's residual
  /// stream where it enters the layer, from 0; empty: 1.
  void replay(std::size_t layer, ConstMatrix keys, ConstMatrix values, ConstMatrix queries,
              std::span<const float> query_weights, MutableMatrix out);
  /// A question that is known before the prompt ends, for methods whose AttentionStats want it.
  /// After the second reading, and like it: nothing is kept. An entry counts for what its
  /// neighbours get, three on each side (as SnapKV pools), where that is more than its score.
  void replay_question(std::size_t layer, ConstMatrix keys, ConstMatrix values, ConstMatrix queries,
                       std::span<const float> query_weights, MutableMatrix out);
  /// Drops the scores of a reading that was not completed.
  void forget_replay();
  /// Whether a second reading is due before the prompt ends: the method or the recording asks for
  /// one, it has not been, and the method's budget does not hold the exact cache.
  bool needs_replay() const;
  /// Scores of the entries of one KV head, in the order of segments(); empty: there was no second
  /// reading. In stream, norms are the largest of the query heads' |W_O^T v|.
  std::span<const float> replay_scores(std::size_t layer, std::size_t head) const;

  /// Methods with one budget for the whole cache, in stream: a chunk is read, scored
  /// (start_replay(), replay(), or note_scores() as it is read) and divides the budget anew
  /// (end_chunk()). While the exact cache of all that was read is within the budget, the chunk is
  /// all of it. Tokens that forward() takes before the chunk must end; unlimited for other caches.
  std::size_t chunk_room() const;
  /// Tokens of the chunk: the last of those read.
  std::size_t chunk_tokens() const;
  /// Divides the budget among all entries, held ones and the chunk's. Held ones only move to tiers
  /// of fewer bytes, or leave. Throws Error if the chunk was not read again or the budget does not
  /// hold what no head drops.
  void end_chunk();
  /// The same with `bytes` in place of the method's, at any time once a token has been read; an
  /// empty chunk needs no scores. Later chunks divide the method's own budget again: what was
  /// evicted or rounded stays so.
  void compact(std::size_t bytes);
  /// Ids of the tokens that forward() took last, which a second reading needs. Kept, and saved with
  /// the cache, as long as their chunk and kOverlap tokens more; other caches ignore them.
  void note_text(std::span<const std::int32_t> tokens);
  /// The ids noted: up to kOverlap before the chunk, then the chunk's.
  std::span<const std::int32_t> noted_text() const;
  /// Tokens before a chunk that its second reading begins with.
  static constexpr std::size_t kOverlap = 8;

  /// The prompt has ended: prefill summarises its middle. Call once, for each layer or for all.
  /// Throws Error if the layers have read different numbers of tokens.
  void finish_prompt(std::size_t layer);
  void finish_prompt();

  /// A copy whose prompt another method will summarise: many methods are compared on one reading of
  /// a text. The cache must be exact, in prefill, its prompt not finished; options().recording must
  /// cover what the policy uses. The fork is what it would be had the prompt been read with that
  /// policy. Throws Error otherwise.
  Cache fork(const Policy& policy, std::uint64_t seed) const;

  /// A copy that goes on by itself, in whatever state this cache is. It has no spare room: see
  /// reserve().
  Cache clone() const;

  /// A text that was read alone and is to stand among others.
  struct Document {
    std::shared_ptr<const Cache> cache;
    /// Tokens at its start that are left out: those that stand before the first document already.
    std::size_t left_out = 0;
  };
  /// An exact cache whose tokens follow those documents, as if they had been read one behind the
  /// other: none of their rows is changed or copied, queries are turned back by where each
  /// document stands. What documents say of each other's tokens is lost. All bytes of the documents
  /// count as its own. It cannot be saved. Throws Error unless all are of one model, at absolute
  /// positions, and hold a token that is not left out.
  static Cache join(std::vector<Document> documents);
  /// Tokens of the documents; 0 for any other cache.
  std::size_t joined_tokens() const;

  /// Forgets all tokens but the first `tokens`, as if the others had never come: rejected drafts,
  /// or a step that failed in one of its layers. Exact caches can, others as long as no token has
  /// left the window since; a method that uses attention cannot; one with recurrent layers can go
  /// back to the last keep_recurrent() alone. A prompt that was finished stays so. Throws Error
  /// that says why it is impossible; the cache is then as it was.
  void truncate(std::size_t tokens);

  /// The state of recurrent layer i, shape().recurrent[i] elements, all 0 before the first token.
  /// The model that reads `tokens` more changes it and calls advance_recurrent().
  std::span<float> recurrent(std::size_t i);
  void advance_recurrent(std::size_t i, std::size_t tokens);
  /// Remembers the states of the recurrent layers as they are, in the place of those remembered
  /// before: truncate() can go back to this token.
  void keep_recurrent();
  /// The most tokens, up to `tokens`, that truncate() can leave in the recurrent layers: without
  /// any all of them, else 0, those of keep_recurrent(), or all that were read.
  std::size_t reachable(std::size_t tokens) const;

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

  /// What the methods have to say of how it went (ClusterGen's radius, failed halvings).
  std::vector<std::string> reports() const;

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
  friend void forward_batch(std::size_t layer, std::span<const BatchItem> items);
  struct Settings;

  Cache(const CacheShape& shape, const CacheOptions& options, bool reserve);
  static Cache parse_body(ByteReader& in, std::string* note);
  /// Throws Error if forward() cannot take these. Elements are looked at by check_elements().
  void check(std::size_t layer, const HeadsView& keys, const HeadsView& values,
             const HeadsView& queries, const MutableHeadsView& out) const;
  /// Whether so many tokens come with queries.
  bool wants_queries(std::size_t tokens, std::size_t queries) const;
  void check_elements(const HeadsView& keys, const HeadsView& values,
                      const HeadsView& queries) const;
  void write(ByteWriter& out, std::string_view note) const;
  /// Computes the rotations of as many positions as there are entries: bytes() counts them.
  void reach_rotations();
  /// Throws Error if replay() cannot take these.
  void check_replay(std::size_t layer, ConstMatrix keys, ConstMatrix values, ConstMatrix queries,
                    std::span<const float> query_weights, MutableMatrix out) const;
  void finish_whole_prompt();
  /// Whether the cache works chunk by chunk: see chunk_room().
  bool works_in_chunks() const;
  std::vector<std::int32_t>& notes();
  void save_chunk(ByteWriter& out) const;
  void load_chunk(ByteReader& in);
  /// Entries of a head whose scores a saved cache has: those held, and with given scores the chunk.
  std::size_t saved_scores(std::size_t layer, std::size_t head) const;
  bool gives_scores() const;
  /// bytes= of the method, for the tokens read; in stream for those expected.
  std::size_t whole_budget() const;
  /// Divides `budget` among the entries of all heads; runs of head i begin at first_run[i].
  Allocation divide(std::span<ScoredRun> runs, std::span<const std::size_t> first_run,
                    std::span<const Tier> tiers, std::size_t budget) const;
  /// end_chunk() with a budget.
  void divide_chunk(std::size_t budget);
  /// Whether the exact cache is within it.
  bool fits_exactly() const;

  std::unique_ptr<Settings> settings_;
  std::unique_ptr<SharedState> shared_;
  std::shared_ptr<ReplayScores> scores_;           // forks share them; null: no second reading yet
  std::unique_ptr<RotaryTable> rotations_;         ///< null: absolute positions
  std::unique_ptr<RecurrentStates> recurrent_;     ///< null: all layers attend
  std::shared_ptr<const JoinedDocuments> joined_;  ///< null: the cache has all its tokens itself
  std::vector<std::unique_ptr<LayerCache>> layers_;
};

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
