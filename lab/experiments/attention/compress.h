// Running queries, keys and values through a cache, and writing down what it keeps.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "ballast/cache.h"
#include "experiments/data/kv_source.h"

namespace ballast {

struct CompressedLayer {
  double seconds = 0;       ///< to read the layer, attention included where the method needs it
  std::size_t entries = 0;  ///< kept, per KV head (the largest)
  double error = 0;         ///< ‖Z − Z_exact‖_F / ‖Z_exact‖_F, mean over query heads
  double worst = 0;         ///< of a query head
};

struct Compressed {
  Cache cache;
  std::vector<CompressedLayer> layers;
  std::size_t queries = 0;  ///< last ones, asked again at the end for the error
  /// Methods with a replay pass: what tokens were scored by. score= where the source has such
  /// scores, else self-attention: the text's own queries, but for those of the error, see all of
  /// it. Empty: nothing was scored.
  std::string scores;
};

/// Reads every layer of the source, the prompt ending with its last token. The error is that of the
/// last `queries` tokens' queries when they are asked at the end of the text.
/// options.expected_tokens is set to the source's.
Compressed compress(const KvSource& source, CacheOptions options, std::size_t queries,
                    const Advance& advance = {});

/// What a cache keeps, as safetensors: for layer i and KV head h, in order of position,
///   layer.{i}.head.{h}.positions           [entries] i32, -1 where an entry is of no one token
///   layer.{i}.head.{h}.weights             [entries] f32, in the numerator; 0: not in it
///   layer.{i}.head.{h}.normaliser_weights  [entries] f32, in the normaliser; 0: not in it
///   layer.{i}.head.{h}.k                   [entries, dim] f32
///   layer.{i}.head.{h}.v                   [entries, dim] f32, zero where weights are 0
void write_kept(const Cache& cache, const KvSource& source, const std::filesystem::path& path);

}  // namespace ballast
