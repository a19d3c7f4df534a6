// Replay passes: tokens that read a text again score what a layer holds of it.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "cache/global/replay_scores.h"
#include "cache/layer_cache.h"

namespace ballast {

/// Entries of the window that a pass scores alone; none: it scores all entries.
struct OwnChunk {
  std::size_t first = 0, count = 0;  ///< tokens, from the oldest of the window
};

/// See Scoring::replay.
struct ReplayRows {
  ConstMatrix keys, values, queries;
  std::span<const float> query_weights;
  MutableMatrix out;
};

/// Answers the queries, and adds to `heads`, the scores of this layer. The layer stays as it is.
void run_replay(const LayerCache& layer, const ReplayRows& rows, ReplayScore score,
                std::optional<OwnChunk> own, std::span<ReplayHead> heads);

}  // namespace ballast
