// Which tokens of the text a query looks at, through whatever entries are kept of them.
#pragma once

#include <cstddef>
#include <span>

#include "ballast/cache.h"

namespace ballast {

/// Adds to sums[p] the attention that the query gives the entries of token p, of one KV head.
/// `query`: of query head `query_head`, as it came to Cache::forward for token `position`; entries
/// that have come since are hidden from it. Tokens without an entry, or of unknown position, and
/// those from sums.size() on get nothing. Throws Error if there is no such layer or head.
void add_attention_by_token(const Cache& cache, std::size_t layer, std::size_t query_head,
                            std::span<const float> query, Position position, std::span<float> sums);

}  // namespace ballast
