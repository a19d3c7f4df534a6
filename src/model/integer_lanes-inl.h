// Weights of sixteen rows side by side, a row in each lane. Included inside regions of
// BALLAST_INTEGERS_TARGET.
#pragma once

#include "model/integer_types-inl.h"

namespace ballast::integers {

constexpr int kLanes = kLaneRows;

/// Sixteen bytes of sixteen rows: vector d has bytes 4d to 4d + 3 of each.
BALLAST_INLINE Bytes64<4> transposed(const Bytes (&p)[kLanes], std::size_t at) {
  __m512i v[4];
  times<4>([&](auto a) BALLAST_HERE {
    v[a] = in_quarters(p[a] + at, p[a + 4] + at, p[a + 8] + at, p[a + 12] + at);
  });
  const __m512i a = _mm512_unpacklo_epi32(v[0], v[1]), b = _mm512_unpackhi_epi32(v[0], v[1]);
  const __m512i c = _mm512_unpacklo_epi32(v[2], v[3]), d = _mm512_unpackhi_epi32(v[2], v[3]);
  return {{_mm512_unpacklo_epi64(a, c), _mm512_unpackhi_epi64(a, c), _mm512_unpacklo_epi64(b, d),
           _mm512_unpackhi_epi64(b, d)}};
}

BALLAST_INLINE __m512 f16_of_lanes(const Bytes (&p)[kLanes], std::size_t at) {
  alignas(32) std::uint16_t bits[kLanes];
  for (int r = 0; r < kLanes; ++r) bits[r] = load<std::uint16_t>(p[r] + at);
  return _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(bits)));
}

/// The fifth bits of a block of sixteen rows.
struct FifthOfLanes {
  __m512i bits;
  template <int h>
  BALLAST_INLINE Bytes64<4> at() const {
    Bytes64<4> out;
    times<4>([&](auto d) BALLAST_HERE {
      const __m512i four =
          _mm512_and_si512(_mm512_srli_epi32(bits, 16 * h + 4 * d), _mm512_set1_epi32(15));
      // Four copies of the four bits, 7 apart: bit i of copy i is bit 8i.
      const __m512i spread = _mm512_mullo_epi32(four, _mm512_set1_epi32(0x00204081));
      out.v[d] = _mm512_slli_epi32(_mm512_and_si512(spread, _mm512_set1_epi32(0x01010101)), 4);
    });
    return out;
  }
};

/// Those of the blocks at `at`; of types that have none, nothing.
template <typename Type>
BALLAST_INLINE FifthOfLanes fifth_of_lanes(const Bytes (&p)[kLanes], std::size_t at) {
  FifthOfLanes fifth;
  if constexpr (Type::kFifth != 0) {
    alignas(64) std::uint32_t bits[kLanes];
    for (int r = 0; r < kLanes; ++r) bits[r] = load<std::uint32_t>(p[r] + at + Type::kFifth);
    fifth.bits = _mm512_load_si512(bits);
  }
  return fifth;
}

}  // namespace ballast::integers
