// Asking for weights ahead, for products of one activation: included within regions of target
// attributes.
#pragma once

#include <xmmintrin.h>

#include <cstddef>
#include <type_traits>

#include "simd/inline.h"
#include "simd/unroll-inl.h"

namespace ballast {

/// Rows from here on are asked for one behind the other: four places a page and more apart make
/// memory and the processor's own prefetching slower. Shorter ones gain from being asked for in the
/// order in which they will be read.
inline constexpr std::size_t kLongRow = 4096;  ///< bytes

/// Calls run(std::bool_constant<whether rows `stride` bytes apart are long>()).
template <typename Run>
BALLAST_INLINE void for_row_length(std::size_t stride, const Run& run) {
  if (stride >= kLongRow) {
    run(std::true_type());
  } else {
    run(std::false_type());
  }
}

/// Asks for weights of four rows that are read side by side, before the processor sees where they
/// lead. Into the second-level cache: the first one cannot wait for as many lines as memory needs
/// to be busy.
template <bool kLong>
class Prefetch {
 public:
  static constexpr std::size_t kRows = 4;
  static constexpr std::size_t kAhead = 4096;  ///< bytes of a short row

  /// For rows `stride` bytes apart; 0, one row four times, asks for what will not be read.
  explicit BALLAST_INLINE Prefetch(std::size_t stride)
      : stride_(stride),
        beyond_(stride == 0 ? 0 : stride - kAhead % stride),
        ahead_(stride == 0 ? 0 : kAhead / stride * kRows * stride + kAhead % stride) {}

  /// Asks for as much as `bytes` bytes of the rows whose first is at p, which is byte `at` of its
  /// row: of short rows for what is read kAhead bytes of a row later, of long ones for the next
  /// part of the next four.
  template <std::size_t bytes, typename Byte>
  BALLAST_INLINE void rows(const Byte* p, std::size_t at) const {
    const Byte* next = kLong ? p + kRows * stride_ + (kRows - 1) * at
                             : p + ahead_ + (at < beyond_ ? 0 : (kRows - 1) * stride_);
    unroll<kRows>([&](auto r) BALLAST_INLINE_LAMBDA {
      // Only lines that begin here: asked for again, while it is on its way, one takes up a place
      // for as long. The last of a part of a line may be the one before it; those two merge.
      const auto* here = reinterpret_cast<const char*>(next + r * (kLong ? bytes : stride_));
      unroll<bytes / 64>([&](auto i) BALLAST_INLINE_LAMBDA { ask(here + 63 + 64 * i); });
      if constexpr (bytes % 64 != 0) ask(here + bytes - 1);
    });
  }

 private:
  BALLAST_INLINE static void ask(const char* line) { _mm_prefetch(line, _MM_HINT_T1); }

  std::size_t stride_;
  std::size_t beyond_;  ///< where in a row the place ahead is in one of the next four rows
  std::size_t ahead_;
};

}  // namespace ballast
