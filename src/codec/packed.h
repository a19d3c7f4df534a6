// The body of a chunk with a preset "pack-…":
//
//   u8    1: PackedRows::save() follows; 0: rows in bf16, keys then values, a layer after the
//         other, of each [token][head][element]
//
// Rows stand as they are where packing would not make them smaller, as in chunks of a few tokens.
#pragma once

#include <memory>

#include "ballast/cache.h"
#include "ballast/pack.h"
#include "codec/chunk_coder.h"
#include "pack/key_turner.h"

namespace ballast {

class PackedCoder final : public ChunkCoder {
 public:
  /// Throws Error where the shape is not the basis', or the basis has no preset of 1/divisor.
  PackedCoder(const CacheShape& shape, std::shared_ptr<const PackBasis> basis,
              std::uint32_t divisor);

  std::size_t bound(std::size_t tokens) const override;
  /// A position that is not known is taken for the multiple of the chunk's tokens at which the keys
  /// are nearest to the basis' mean.
  std::size_t encode(Views keys, Views values, std::int64_t& position,
                     std::span<std::byte> out) const override;
  void decode(std::span<const std::byte> body, std::int64_t position, MutableViews keys,
              MutableViews values) const override;

 private:
  /// Rows of x of tokens [first, first + out.rows), keys as they are turned.
  void read(Views keys, Views values, std::size_t group, std::size_t first,
            MutableMatrix out) const;
  std::int64_t find_position(Views keys, Views values) const;

  CacheShape shape_;
  std::shared_ptr<const PackBasis> basis_;
  PackCodec codec_;
  float step_ = 0;
  KeyTurner back_, forth_;
};

}  // namespace ballast
