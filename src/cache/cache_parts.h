// What a cache is made of, for the files of this folder.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "attention/rotary.h"
#include "ballast/cache.h"
#include "ballast/scoring.h"
#include "ballast/serialize.h"
#include "cache/global/global_budget.h"
#include "cache/global/replay_scores.h"
#include "cache/head_elements.h"
#include "cache/joined.h"
#include "cache/layer_cache.h"

namespace ballast {

/// Throws Error that names what is wrong with a shape.
void check_shape(const CacheShape& shape);

struct CacheParts {
  /// See Cache::Cache(). `reserve`: allocate at once what the options let expect.
  CacheParts(const CacheShape& shape, const CacheOptions& options, bool reserve);

  static CacheParts& of(Cache& cache) { return *cache.parts_; }
  static const CacheParts& of(const Cache& cache) { return *cache.parts_; }
  static Cache cache_of(std::unique_ptr<CacheParts> parts) { return Cache(std::move(parts)); }

  CacheShape shape;
  CacheOptions options;
  std::unique_ptr<SharedState> shared;       ///< null: the method has none
  std::unique_ptr<RotaryTable> rotations;    ///< null: absolute positions
  std::optional<RecurrentStates> recurrent;  ///< none: all layers attend
  std::shared_ptr<JoinedDocuments> joined;   ///< null: the cache has all its tokens itself
  std::unique_ptr<GlobalBudget> global;      ///< null: each head has a budget of its own
  std::vector<std::unique_ptr<LayerCache>> layers;

  Scoring scoring{*this};

  std::size_t tokens() const { return layers[0]->tokens(); }
  /// Throws Error if there is no such layer or head.
  const LayerCache& layer(std::size_t layer, std::size_t kv_head) const;
  /// Computes the rotations of as many positions as there are entries: Cache::bytes() counts them.
  void reach_rotations();
  /// The policy with bytes= in entries, for a prompt of so many tokens. Layers may ask at once.
  Policy counted(std::size_t tokens);
  void write(ByteWriter& out, std::string_view note) const;

 private:
  std::mutex mutex_;
  std::size_t counted_tokens_ = 0;
  Policy counted_;
};

}  // namespace ballast
