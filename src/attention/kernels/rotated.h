// What the kernels of q4, q3 and q2 share: how codes lie in a row, and packed queries.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "ballast/storage.h"
#include "storage/rotated.h"

namespace ballast::kernels {

/// Bytes of a row that are read together: an element of a field each.
inline constexpr std::size_t kCodeChunk = 16;

template <StorageType type>
inline constexpr std::size_t kFields = type == StorageType::q4 ? 2 : 4;

/// Sizes of a row.
template <StorageType type>
struct RowLayout {
  std::size_t dim, bytes, half, chunks;

  explicit RowLayout(std::size_t dim)
      : dim(dim),
        bytes(low_code_bytes(type, dim)),
        half((bytes + 1) / 2),
        chunks((bytes + kCodeChunk - 1) / kCodeChunk) {}
  /// Bytes from a row's begin to the end of what is loaded of it.
  std::size_t extent() const { return chunks * kCodeChunk + (type == StorageType::q3 ? bytes : 0); }
  /// Elements of a chunk's fields.
  std::size_t elements(std::size_t chunk) const {
    return std::min(kCodeChunk, bytes - chunk * kCodeChunk);
  }
  /// Of q3: how many of a chunk's bytes have their high bits in the lower bit of two.
  std::size_t lower(std::size_t chunk) const {
    return std::min(half - std::min(half, chunk * kCodeChunk), kCodeChunk);
  }
};

/// A packed query: the rotated query, rounded to signed bytes with one unit: rotation makes all
/// elements alike, so this rounds a query by 0.7% of a key's own loss at q4, and less elsewhere.
/// Codes of each field and chunk, 16 bytes each with zeros behind the field's end, and in the last
/// two floats −128 Σ q and the unit, which is NaN unless all is finite.
struct PackedQuery {
  const float* packed;
  std::size_t size;  ///< packed_size()

  std::int32_t start() const {
    std::int32_t sum;
    std::memcpy(&sum, packed + size - 2, sizeof(sum));
    return sum;
  }
  float unit() const { return packed[size - 1]; }
};

void pack_rotated(StorageType type, std::span<const float> row, float* out);

}  // namespace ballast::kernels
