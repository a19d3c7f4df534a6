// Chunks of a cache as bytes, for servers that keep caches elsewhere: on disk, in other machines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ballast/cache.h"
#include "ballast/heads.h"

namespace ballast {

class ChunkCoder;
struct PackBasis;

/// What the head of a chunk says.
struct ChunkInfo {
  std::uint64_t model = 0;  ///< Codec::fingerprint() of the codec that wrote it
  std::size_t layers = 0, kv_heads = 0, key_dim = 0, value_dim = 0;
  std::size_t tokens = 0;
  /// Of the first token in its text, or what packing took for it; negative: not known.
  std::int64_t position = -1;
  std::string preset;
  std::size_t bytes = 0;  ///< of the whole chunk
};

/// Encodes and decodes chunks of any number of tokens.
///
/// Preset "fast-4", "fast-3" or "fast-2": keys in 4 bits, values in 4, 3 or 2 (the rows of q4, q3
/// and q2), relative to the mean of up to 256 tokens. The mean of keys is taken before rotary
/// positions, by the index in these tokens: of R(n + j) k_j it is R(n) mean(k), whatever n is. So
/// positions need not be known. Tokens far from the mean are kept as bf16, 4 of 256 at most.
///
/// Preset "pack-16" or "pack-32": packed with a basis of the model (ballast/pack.h), by its step of
/// that name. All layers and heads are packed together. Chunks of 1,000 tokens or more come near a
/// 16th and a 32nd of bf16; shorter ones take more, but never more than bf16. Keys are turned back
/// by their positions: where these are not known, by those that fit the basis best.
///
/// Any thread may call. Loops run on the pool of the scope; bytes do not depend on threads or the
/// processor.
class Codec {
 public:
  /// The views of the layers: keys and values of the same tokens, heads as in the shape.
  using Views = std::span<const HeadsView>;
  using MutableViews = std::span<const MutableHeadsView>;

  /// Of `shape`, layers, kv_heads (those of a rank, where heads are divided), dimensions and
  /// rotations count. Without rotations the mean of keys is the plain one. `model` names the model:
  /// chunks of another name or of other rotations are refused. Throws Error on a bad shape or an
  /// unknown preset, and for "pack-…" without a basis of this shape and preset.
  Codec(CacheShape shape, std::string_view preset, std::string_view model = {},
        std::shared_ptr<const PackBasis> basis = nullptr);

  const CacheShape& shape() const { return shape_; }
  const std::string& preset() const { return preset_; }
  /// A hash of the model's name, the rotations and the basis.
  std::uint64_t fingerprint() const { return fingerprint_; }

  /// The most bytes that a chunk of so many tokens can take.
  std::size_t bound(std::size_t tokens) const;
  /// Writes a chunk to the front of `out`, bound() bytes or more, and returns its bytes.
  /// `position`: of the first token, if known. Throws Error on views that do not fit, or an element
  /// that is not finite or above 1e15.
  std::size_t encode(Views keys, Views values, std::span<std::byte> out,
                     std::int64_t position = -1) const;
  /// Writes a chunk's rows. Bytes beyond the chunk are ignored. Throws Error with
  /// ErrorCode::bad_file for a chunk that is damaged, cut, or of another model, shape, preset or
  /// number of tokens; what `keys` and `values` then hold is not defined.
  void decode(std::span<const std::byte> chunk, MutableViews keys, MutableViews values) const;

  /// The head of a chunk, once its checksum is right. Throws Error as decode() does.
  static ChunkInfo inspect(std::span<const std::byte> chunk);

 private:
  CacheShape shape_;
  std::string preset_;
  std::shared_ptr<const ChunkCoder> coder_;
  std::uint64_t fingerprint_;
};

}  // namespace ballast
