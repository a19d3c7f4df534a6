// What going on from a saved cache relies on.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "cache/layer_cache.h"

namespace ballast {

/// Throws Error, which begins with `what`, unless all of this holds of a cache that was loaded:
///
///   numbers of the shape  finite; windows, the soft cap and slopes from 0
///   layers                have read the same tokens, and have all finished the prompt or none
///   a whole layer         window: all tokens; no sink, no summary; within the budget where one
///                         holds already. The only state of an exact cache
///   a growing layer       prefill, prompt finished, no step; window: budget.window tokens or more
///   a sliding layer       a step; stream, or a finished prompt; window: a ring of budget.window +
///                         budget.step rows, budget.window tokens or more
///   both of these         sink: budget.sink; the summary has room for budget.summary (with one
///                         budget for the whole cache: for what it holds; heads=adaptive: all
///                         heads' together have that room)
///   heads of a layer      sinks and windows of the same size; a summary each, if the method has
///                         any; its positions lie between the sink and the window
void check_invariants(const CacheShape& shape, const CacheOptions& options,
                      std::span<const std::unique_ptr<LayerCache>> layers, std::string_view what);

/// Bytes, or somewhat more, that a summary of `capacity` entries takes before it holds any.
std::size_t summary_bytes(const SummarySetup& setup, std::size_t capacity);
/// Those that a saved cache of `size` bytes may make a reader allocate.
constexpr std::size_t load_limit(std::size_t size) { return 4 * size + (std::size_t{48} << 20); }

}  // namespace ballast
