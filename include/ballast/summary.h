// What becomes of the tokens that leave the window: the interface that every method implements.
// docs/extending.md has a worked example.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ballast/attention.h"
#include "ballast/method.h"
#include "ballast/random.h"
#include "ballast/storage.h"

namespace ballast {

class ByteReader;
class ByteWriter;
class QueryMoments;
class RowMean;
class SharedState;

/// What a model does with values where they leave attention, for methods that weigh values by it
/// (Needs::value_norms). Any thread may ask.
class ValueNorms {
 public:
  virtual ~ValueNorms() = default;
  /// out[i] = mean over the query heads of a KV head of |W_O^T v_i|_1, the sum of the magnitudes of
  /// what value i writes into the residual stream. One number a row of `values`.
  virtual void measure(std::size_t layer, std::size_t kv_head, const RowsView& values,
                       std::span<float> out) const = 0;
};

/// What a summary knows when it is made.
struct SummarySetup {
  Policy policy;
  Protocol protocol = Protocol::prefill;
  std::size_t capacity = 0;  ///< entries it may hold (a key and a value each), never exceeded
  std::size_t tokens = 0;    ///< tokens expected to come in; 0: unknown
  std::size_t sink = 0;      ///< tokens before the first that comes in
  std::size_t step = 0;      ///< tokens that come in at a time (Budget::step); 0: all in one block
  std::size_t key_dim = 0;
  std::size_t value_dim = 0;
  std::size_t queries_per_kv_head = 1;
  StorageType key_type = StorageType::f32;
  StorageType value_type = StorageType::f32;
  /// Of the head: what its rows of few bits are relative to; null: nothing.
  std::shared_ptr<const RowMean> key_mean, value_mean;
  Logits logits;
  /// Attention asks where entries stand: with ALiBi, or a sliding window in any layer. Else methods
  /// with one budget for the whole cache need not give positions with their segments.
  bool asks_positions = false;
  RandomKey random;
  int layers = 1;                 ///< of the model; random.layer is this one
  SharedState* shared = nullptr;  ///< of the sequence; null unless the method has make_shared
};

/// What the cache of a head has seen, for methods that ask while tokens come in. It is computed
/// when it is first asked for: ask before the summary changes. Each answer is there where Needs
/// says so.
class Observed {
 public:
  virtual ~Observed() = default;
  /// Needs::recent_queries: what the entries held received from the last queries, summed, in the
  /// order of segments().
  virtual std::span<const float> held_attention() const { return {}; }
  /// The same of `count` tokens from `first` on, which come in.
  virtual std::span<const float> attention(Position first, std::size_t count) const;
  /// Needs::recent_queries: those of the last `observe` tokens, queries_per_kv_head rows a token.
  virtual ConstMatrix queries() const { return {}; }
  /// Where each stands.
  virtual std::span<const Position> query_positions() const { return {}; }
  /// Needs::query_moments: of the queries so far; null: unknown.
  virtual const QueryMoments* query_moments() const { return nullptr; }
  /// Needs::value_norms: the model's; null: |v|_1.
  virtual const ValueNorms* value_norms() const { return nullptr; }
  /// Nothing was seen.
  static const Observed& nothing();
};

/// Consecutive tokens that leave the window, oldest first.
struct Block {
  RowsView keys;
  RowsView values;
  Position first = 0;
  Position now = 0;  ///< tokens of the text seen so far, window included
  /// Needs::attention_sums: what each token has received; else empty.
  std::span<const float> attention_sum;
  /// Methods with one budget for the whole cache: what becomes of each entry held, in the order of
  /// segments(), then of each token; an index into the method's tiers or beyond them. Else empty.
  std::span<const std::uint8_t> tiers;
  /// Valid while the block comes in.
  const Observed* observed = &Observed::nothing();
  std::size_t size() const { return keys.rows; }
  /// What the last queries' attention gave each token: Observed::attention(). Throws Error if it is
  /// not known.
  std::span<const float> recent_attention() const;
  /// Tokens `begin` and on, `count` of them; attention sums of the same tokens where they are
  /// given.
  Block slice(std::size_t begin, std::size_t count) const {
    Block part = *this;
    part.keys = keys.slice(begin, count);
    part.values = values.slice(begin, count);
    part.first = first + static_cast<Position>(begin);
    if (!attention_sum.empty()) part.attention_sum = attention_sum.subspan(begin, count);
    return part;
  }
};

/// One entry of a summary, as reported.
struct KeptEntry {
  Position position = 0;        ///< of the token it was
  float weight = 1;             ///< in the numerator; 0: not in it
  float normaliser_weight = 1;  ///< in the normaliser; 0: not in it
};

/// A weighted summary of the tokens of one KV head.
class Summary {
 public:
  virtual ~Summary() = default;

  /// Takes in a block of any size. Memory that stays is allocated at construction only; scratch for
  /// the work on a block is free again when the call returns.
  virtual void absorb(const Block& block) = 0;

  /// Appends the runs of entries to `out`; valid until the next change.
  virtual void segments(std::vector<Segment>& out) const = 0;

  /// Needs::attention_sums: what the entries received in a step, in the order of segments(), to be
  /// added up.
  virtual void observe(std::span<const float> attention_sum);
  /// Needs::recent_queries: tokens are about to come in, and held_attention() replaces what was
  /// known of the entries.
  virtual void observe_recent(const Observed& observed);

  /// Methods that score tokens: what absorb() would choose by if this block came to a summary that
  /// is empty, as this one must be; a finite number a token, the higher stays. heads=adaptive
  /// divides a layer's budget by it. Throws Error if the method has no such scores.
  virtual void scores(const Block& block, std::span<float> out);

  /// Unites with a summary of other tokens of the same head, made with the same setup.
  /// Throws Error if the method's summaries do not unite or the setups differ.
  virtual void merge(const Summary& other);

  virtual std::size_t entries() const = 0;
  /// Bytes held: rows, weights, positions, scores, scratch. Constant once constructed in stream.
  virtual std::size_t bytes() const = 0;
  virtual std::vector<KeptEntry> kept() const = 0;
  /// One line that the user should know, such as failed halvings; empty: nothing.
  virtual std::string report() const { return {}; }

  virtual void save(ByteWriter& out) const = 0;
  /// Restores what save() wrote into a summary made with the same setup. Throws Error if it cannot
  /// be that.
  virtual void load(ByteReader& in) = 0;
};

/// The summary of a policy's method; null when the method summarises nothing (exact, local).
std::unique_ptr<Summary> make_summary(const SummarySetup& setup);

/// State of one sequence that summaries of different heads and layers share.
class SharedState {
 public:
  virtual ~SharedState() = default;
  virtual std::size_t bytes() const = 0;
  virtual void save(ByteWriter& out) const = 0;
  virtual void load(ByteReader& in) = 0;
};

}  // namespace ballast
