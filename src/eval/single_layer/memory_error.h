// Error against memory on long streams: how fast the error of a summary falls as it may hold more.
// Independent sampling needs 1/ε² entries for an error of ε, a slope of -1/2 in a plot of
// logarithms; BalanceKV's theorem 3.1 promises 1/ε, a slope of -1.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ballast/method.h"
#include "eval/data/kv_source.h"
#include "eval/results/result_log.h"

namespace ballast {

struct MemoryErrorOptions {
  /// Methods that summarise without watching attention; without rate, budget, sink or window.
  std::vector<Policy> policies;
  std::vector<std::size_t> lengths = {4096, 16384, 65536, 262144};  ///< tokens of the stream read
  std::vector<std::size_t> budgets = {256, 512, 1024, 2048, 4096};  ///< entries of the summary
  std::size_t seeds = 3;
  std::uint64_t first_seed = 0;
  std::size_t sink = 16;      ///< first tokens kept exactly beside the summary
  std::size_t queries = 128;  ///< asked once the stream is read: those of the tokens after it
};

/// A method on a stream of one length.
struct MemoryErrorRow {
  std::string method;
  std::size_t tokens = 0;
  /// A budget each, as far as it is smaller than the stream: entries held, bytes, relative error
  /// over all queries and heads, its deviation over seeds, seconds a token.
  std::vector<std::size_t> budgets;
  std::vector<double> entries, bytes, errors, deviations, seconds;
  /// Of ln(error) against ln(budget), by least squares; 0 with fewer than two budgets.
  double slope = 0;
};

/// Tokens that the source must have.
std::size_t needed_tokens(const MemoryErrorOptions& options);

/// All KV heads of layer 0. The same numbers (but for seconds) for any number of threads. Throws
/// Error on options that do not fit, before anything long is begun.
/// `log`: where the findings of each stream, method and seed are noted and looked for, or null.
std::vector<MemoryErrorRow> measure_memory_errors(const KvSource& source,
                                                  const MemoryErrorOptions& options,
                                                  const Advance& advance = {},
                                                  ResultLog* log = nullptr);

/// The slope of the least-squares line through (ln x, ln y); 0 for fewer than two points.
double log_slope(const std::vector<double>& x, const std::vector<double>& y);

}  // namespace ballast
