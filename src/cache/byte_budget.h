// Budgets in bytes of caches whose methods count entries.
#pragma once

#include <cstddef>

#include "ballast/cache.h"

namespace ballast {

/// Bytes of the exact bf16 cache of `tokens` tokens: what shares are of.
std::size_t exact_bf16_bytes(const CacheShape& shape, std::size_t tokens);

/// The policy with budget= in place of bytes=: the most entries of a head with which the whole
/// cache of a text of `tokens` tokens stays within them: rows, scales, positions, weights,
/// attention sums and queries, in all layers and heads. `tokens`: of the prompt; in stream all that
/// will be read, 0: unknown. A share that does not hold the fewest entries becomes the whole text
/// unless `strict`. Other policies are returned as they are. Throws Error with the least
/// bytes when these are too few, and when they depend on an unknown length.
Policy fit_bytes(const CacheShape& shape, const CacheOptions& options, std::size_t tokens,
                 bool strict = false);

/// bytes= for a text of so many tokens, for methods that divide one budget. A share that does not
/// hold the first and last tokens of every head becomes what the whole text takes: it is short, and
/// stays exact.
std::size_t global_budget_bytes(const CacheShape& shape, const CacheOptions& options,
                                std::size_t tokens);

/// Entries that a head holds at most, once its budget applies.
std::size_t most_entries(const Cache& cache);

/// For measurements at equal bytes. Throws Error with the least bytes if bytes= of the method, a
/// share too, does not hold what it keeps of a text of `tokens` tokens in any case.
void require_bytes(const CacheShape& shape, const CacheOptions& options, std::size_t tokens);
/// The same of the text that a cache has read, or in stream will have read.
void require_bytes(const Cache& cache);

}  // namespace ballast
