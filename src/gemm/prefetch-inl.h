// Prefetching weight rows for GEMV. Included inside regions of target attributes.
#pragma once

#include <cstddef>
#include <type_traits>

#include "simd/inline.h"
#include "simd/prefetch.h"
#include "simd/unroll-inl.h"

namespace ballast::gemm {

/// Rows of so many bytes and more are prefetched sequentially: four streams over a page apart
/// defeat the hardware prefetcher. Shorter rows are prefetched in the order in which they are read.
inline constexpr std::size_t kLongRow = 4096;

/// Calls run(std::bool_constant<whether rows `stride` bytes apart are long>()).
template <typename Run>
BALLAST_INLINE void for_row_length(std::size_t stride, const Run& run) {
  if (stride >= kLongRow) {
    run(std::true_type());
  } else {
    run(std::false_type());
  }
}

/// Prefetches the weights that a tile of four rows reads next. The hardware prefetcher does not see
/// where a row continues in the next tile.
template <bool kLong>
class Prefetcher {
 public:
  static constexpr std::size_t kTileN = 4;
  static constexpr std::size_t kAhead = 4096;  ///< bytes of a short row

  /// stride: bytes from a row to the next. 0 means one row repeated four times, whose prefetches
  /// have no effect.
  explicit BALLAST_INLINE Prefetcher(std::size_t stride)
      : stride_(stride),
        wrap_(stride == 0 ? 0 : stride - kAhead % stride),
        ahead_(stride == 0 ? 0 : kAhead / stride * kTileN * stride + kAhead % stride) {}

  /// Prefetches as many bytes as the tile reads now: `bytes` of each of four rows, the first at p,
  /// which is byte `at` of its row. Of short rows it prefetches what is read kAhead bytes of a row
  /// later, of long ones the next part of the next four rows.
  template <std::size_t bytes, typename Byte>
  BALLAST_INLINE void prefetch_tile(const Byte* p, std::size_t at) const {
    const Byte* next = kLong ? p + kTileN * stride_ + (kTileN - 1) * at
                             : p + ahead_ + (at < wrap_ ? 0 : (kTileN - 1) * stride_);
    unroll<kTileN>([&](auto r) BALLAST_INLINE_LAMBDA {
      // Only lines that begin here: a repeated prefetch of a line in flight takes a miss buffer,
      // too. The last line of a partial one may be the line before; the two merge.
      const auto* here = reinterpret_cast<const char*>(next + r * (kLong ? bytes : stride_));
      unroll<bytes / 64>([&](auto i) BALLAST_INLINE_LAMBDA { prefetch(here + 63 + 64 * i); });
      if constexpr (bytes % 64 != 0) prefetch(here + bytes - 1);
    });
  }

 private:
  std::size_t stride_;
  std::size_t wrap_;  ///< from this byte of a row on, the prefetched place is in the next tile
  std::size_t ahead_;
};

}  // namespace ballast::gemm
