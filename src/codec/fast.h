// The body of a chunk with a preset "fast-…". For each layer, for each block of up to 256 tokens,
// first keys, then values:
//
//   for each KV head   the mean (bf16, dim), scales (bf16, tokens), codes (row_bytes(), tokens)
//
// then for each of these how many tokens are far from the mean (u8), for each of them which of the
// block (u8), and for each its rows (bf16, KV heads · dim), which take the place of the decoded.
#pragma once

#include <cstddef>
#include <utility>

#include "ballast/cache.h"
#include "codec/chunk_coder.h"

namespace ballast {

/// Tokens of a block.
inline constexpr std::size_t kFastBlock = 256;

class FastCoder final : public ChunkCoder {
 public:
  FastCoder(CacheShape shape, StorageType keys, StorageType values)
      : shape_(std::move(shape)), types_{keys, values} {}

  std::size_t bound(std::size_t tokens) const override;
  std::size_t encode(Views keys, Views values, std::int64_t& position,
                     std::span<std::byte> out) const override;
  void decode(std::span<const std::byte> body, std::int64_t position, MutableViews keys,
              MutableViews values) const override;

 private:
  struct Section;
  std::size_t dim(int side) const { return side == 0 ? shape_.key_dim : shape_.value_dim; }
  std::size_t section_bytes(int side, std::size_t tokens) const;
  Section section(std::size_t index, std::size_t tokens) const;

  CacheShape shape_;
  StorageType types_[2];
};

}  // namespace ballast
