// How vectors and tiles of bfloat16 make the same sums. Included within a target's attributes.
//
// A step is 32 elements, in 32-bit words of two. Vectors add up words 0 to 7 and words 8 to 15,
// from zero on each, the second element of a word first: what vdpbf16ps does. Then both are added,
// and that to the sum. A tile does the same where row k has element k of the first eight words, in
// that order, beside element k of the others.
#pragma once

#include <immintrin.h>

#include "simd/inline.h"

namespace ballast {
namespace {

constexpr int kTileStepWords = 16;

/// A step of a row, for the first operand of tiles.
BALLAST_INLINE __m512i tile_order(__m512i row) {
  const auto k = _mm512_xor_si512(
      _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0), _mm512_set1_epi32(1));
  const auto order =
      _mm512_or_si512(_mm512_slli_epi32(k, 16), _mm512_or_si512(k, _mm512_set1_epi32(16 << 16)));
  return _mm512_permutexvar_epi16(order, row);
}

/// Words i and 8 + i of sixteen rows each become rows 2i and 2i + 1 of the second operand.
BALLAST_INLINE void tile_rows(__m512i word, __m512i other, __m512i& first, __m512i& second) {
  constexpr __mmask32 kUpper = 0xAAAAAAAA;
  first = _mm512_mask_blend_epi16(kUpper, _mm512_srli_epi32(word, 16), other);
  second = _mm512_mask_blend_epi16(kUpper, word, _mm512_slli_epi32(other, 16));
}

/// While it lives, this thread's vectors round as tiles and vdpbf16ps do, whatever the thread is
/// set to: to the nearest, ties to even; subnormal operands and results become zeros; nothing
/// traps.
class RoundingOfTiles {
 public:
  BALLAST_INLINE RoundingOfTiles() : before_(_mm_getcsr()) {
    constexpr unsigned kTrapsNothing = 0x3Fu << 7, kZeroOperands = 1u << 6, kZeroResults = 1u << 15;
    set(kTrapsNothing | kZeroOperands | kZeroResults);  // bits 13 and 14, the direction, are clear
  }
  BALLAST_INLINE ~RoundingOfTiles() { set(before_); }
  RoundingOfTiles(const RoundingOfTiles&) = delete;
  RoundingOfTiles& operator=(const RoundingOfTiles&) = delete;

 private:
  // Assembly: the compiler moves stores across the intrinsic.
  BALLAST_INLINE static void set(unsigned state) {
    asm volatile("ldmxcsr %0" : : "m"(state) : "memory");
  }
  unsigned before_;
};

/// The sum after a step whose halves are these. Needs RoundingOfTiles.
BALLAST_INLINE __m512 add_tile_step(__m512 sum, __m512 half, __m512 other) {
  return _mm512_add_ps(sum, _mm512_add_ps(half, other));
}

}  // namespace
}  // namespace ballast
