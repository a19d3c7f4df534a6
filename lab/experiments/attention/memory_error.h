// Error against memory on long streams: how fast the error of a summary falls as it may hold more.
// Independent sampling needs 1/ε² entries for an error of ε, a slope of -1/2 in a plot of
// logarithms; BalanceKV's theorem 3.1 promises 1/ε, a slope of -1.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ballast/method.h"
#include "experiments/data/kv_source.h"
#include "experiments/result_log.h"

namespace ballast {

struct MemoryErrorOptions {
  /// Methods that summarize without attention statistics, without rate, budget, sink or window.
  std::vector<Policy> policies;
  std::vector<std::size_t> lengths = {4096, 16384, 65536, 262144};  ///< tokens of the stream read
  std::vector<std::size_t> budgets = {256, 512, 1024, 2048, 4096};  ///< entries of the summary
  std::size_t seeds = 3;
  std::uint64_t first_seed = 0;
  std::size_t sink = 16;      ///< first tokens kept exactly beside the summary
  std::size_t queries = 128;  ///< the queries of the tokens after the stream
};

/// A method on a stream of one length.
struct MemoryErrorRow {
  std::string method;
  std::size_t tokens = 0;
  /// One value for each budget below the stream's length: entries held, bytes, relative error over
  /// all queries and heads, its deviation over seeds, seconds a token.
  std::vector<std::size_t> budgets;
  std::vector<double> entries, bytes, errors, deviations, seconds;
  /// The least-squares slope of ln(error) over ln(budget); 0 with fewer than two budgets.
  double slope = 0;
};

/// Tokens that the source must have.
std::size_t needed_tokens(const MemoryErrorOptions& options);

/// All KV heads of layer 0. Results do not depend on the number of threads, except seconds. Throws
/// Error before long work if the options do not fit. `log`: stores and restores the results of each
/// stream, method and seed; may be null.
std::vector<MemoryErrorRow> measure_memory_errors(const KvSource& source,
                                                  const MemoryErrorOptions& options,
                                                  const Advance& advance = {},
                                                  ResultLog* log = nullptr);

/// The slope of the least-squares line through (ln x, ln y); 0 for fewer than two points.
double log_slope(const std::vector<double>& x, const std::vector<double>& y);

}  // namespace ballast
