// The body of a chunk with a preset "fast-…". For each layer, for each block of up to 256 tokens,
// first keys, then values:
//
//   for each KV head   the mean (bf16, dim), scales (bf16, tokens), codes (row_bytes(), tokens)
//
// then for each of these how many tokens are far from the mean (u8), for each of them which of the
// block (u8), and for each its rows (bf16, KV heads · dim), which take the place of the decoded.
#pragma once

#include <cstddef>
#include <span>

#include "ballast/cache.h"
#include "ballast/heads.h"

namespace ballast {

/// Tokens of a block.
inline constexpr std::size_t kFastBlock = 256;

class FastCoder {
 public:
  /// Keeps a reference to the shape.
  FastCoder(const CacheShape& shape, StorageType keys, StorageType values)
      : shape_(shape), types_{keys, values} {}

  std::size_t bound(std::size_t tokens) const;
  /// The views fit the shape. Returns the bytes written; `out` has bound() bytes.
  std::size_t encode(std::span<const HeadsView> keys, std::span<const HeadsView> values,
                     std::span<std::byte> out) const;
  /// Throws Error with ErrorCode::bad_file where the body does not fit the views.
  void decode(std::span<const std::byte> body, std::span<const MutableHeadsView> keys,
              std::span<const MutableHeadsView> values) const;

 private:
  struct Section;
  std::size_t dim(int side) const { return side == 0 ? shape_.key_dim : shape_.value_dim; }
  std::size_t section_bytes(int side, std::size_t tokens) const;
  Section section(std::size_t index, std::size_t tokens) const;

  const CacheShape& shape_;
  StorageType types_[2];
};

}  // namespace ballast
