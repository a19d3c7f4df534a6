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
/// will be read, 0: unknown. Other policies are returned as they are. Throws Error with the least
/// bytes when these are too few, and when they depend on an unknown length.
Policy fit_bytes(const CacheShape& shape, const CacheOptions& options, std::size_t tokens);

}  // namespace ballast
