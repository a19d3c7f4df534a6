// Prefetching. Types built on these two functions are called Prefetcher (what to fetch),
// PrefetchPacer (when) and PrefetchRange (from where to where).
#pragma once

#include "simd/inline.h"

namespace ballast {

/// Prefetches the cache line at p into L2. L1 has too few miss buffers to keep memory busy.
BALLAST_INLINE void prefetch(const void* p) { __builtin_prefetch(p, 0, 2); }

/// Prefetches the cache line at p into L1: for data that is used within a few hundred cycles.
BALLAST_INLINE void prefetch_to_l1(const void* p) { __builtin_prefetch(p, 0, 3); }

}  // namespace ballast
