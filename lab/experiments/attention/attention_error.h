// The single-layer experiment of BalanceKV (appendix B.1): how far attention from a compressed
// cache is from exact attention, for any list of methods at equal numbers of entries.  tokens:   [
// first `sink`, exact | middle, compressed | last `window`, exact, causal ]  The queries of the
// last `queries` tokens attend to everything before them. The middle is compressed first: methods
// that use attention statistics see the queries before the last `window` tokens only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ballast/method.h"
#include "ballast/storage.h"
#include "experiments/data/kv_source.h"
#include "experiments/parameters.h"
#include "experiments/result_log.h"

namespace ballast {

struct AttentionErrorOptions {
  /// Method strings without rate, budget or sink, which the experiment sets. A `window` counts
  /// towards the budget of the middle.
  std::vector<Policy> policies;
  std::vector<double> rates = {0.5, 0.25, 0.125, 0.0625};  ///< fractions of the middle
  std::size_t seeds = 10;
  std::uint64_t first_seed = 0;
  std::size_t sink = 256;
  std::size_t window = 256;
  std::size_t queries = 256;  ///< at most `window`
  StorageType key_type = StorageType::f32;
  StorageType value_type = StorageType::f32;
  std::vector<std::size_t> layers;    ///< counted from 0; empty: all
  std::vector<std::size_t> kv_heads;  ///< empty: all
  float scale = 0;                    ///< of logits; 0: 1/sqrt(key dimension)
};

/// rates, seeds, sink, window, queries.
void describe_ends(Parameters& parameters, AttentionErrorOptions& options);

/// The results of one method at one rate.
struct AttentionErrorCell {
  std::string method;
  double rate = 1;            ///< 1 for methods that keep everything
  double entries = 0;         ///< kept of the middle, per KV head, mean
  double bytes = 0;           ///< of the whole cache of a KV head, mean
  double seconds = 0;         ///< to compress one KV head, mean
  double error = 0;           ///< ‖Z − Z_exact‖_F / ‖Z_exact‖_F of a query head, mean
  double seed_deviation = 0;  ///< of the mean over heads, over seeds
  double head_deviation = 0;  ///< of the mean over seeds, over heads
  double worst = 0;           ///< the largest error of a head and a seed
  std::vector<double> layer_errors;  ///< mean, by layer as selected
  std::vector<std::string> reports;  ///< distinct reports of the summaries
};

struct AttentionErrors {
  KvShape shape;
  std::vector<std::size_t> layers;
  std::vector<std::size_t> kv_heads;
  std::size_t middle = 0;                 ///< tokens
  double exact_bytes = 0;                 ///< of the cache of a KV head in float32
  std::vector<AttentionErrorCell> cells;  ///< by method, then rate
};

/// Results do not depend on the number of threads, except seconds. Throws Error before long work if
/// the options do not fit the source. `log`: stores and restores the results of each layer; may be
/// null.
AttentionErrors measure_attention_errors(const KvSource& source,
                                         const AttentionErrorOptions& options,
                                         const Advance& advance = {}, ResultLog* log = nullptr);

/// Whether the method needs attention sums at most, and nothing of the other heads. Only such
/// methods are measured here.
bool summarises_heads_alone(const Policy& policy);

/// The policy that keeps the sink and `kept` entries of the middle. Throws Error if `policy` sets
/// rate, budget or sink itself.
Policy policy_for(const Policy& method, std::size_t sink, std::size_t kept);

}  // namespace ballast
