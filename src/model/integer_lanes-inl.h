// Weights of sixteen rows side by side, a row in each lane. Included inside regions of
// BALLAST_INTEGERS_TARGET.
#pragma once

#include "model/integer_types-inl.h"

namespace ballast::integers {

constexpr int kLanes = kLaneRows;

/// Bytes 4d to 4d + 3 of each 16 in vector d.
BALLAST_INLINE Bytes64<4> transposed(const __m512i (&v)[4]) {
  const __m512i a = _mm512_unpacklo_epi32(v[0], v[1]), b = _mm512_unpackhi_epi32(v[0], v[1]);
  const __m512i c = _mm512_unpacklo_epi32(v[2], v[3]), d = _mm512_unpackhi_epi32(v[2], v[3]);
  return {{_mm512_unpacklo_epi64(a, c), _mm512_unpackhi_epi64(a, c), _mm512_unpacklo_epi64(b, d),
           _mm512_unpackhi_epi64(b, d)}};
}

/// Sixteen bytes of sixteen rows: vector d has bytes 4d to 4d + 3 of each.
BALLAST_INLINE Bytes64<4> transposed(const Bytes (&p)[kLanes], std::size_t at) {
  __m512i v[4];
  times<4>([&](auto a) BALLAST_HERE {
    v[a] = in_quarters(p[a] + at, p[a + 4] + at, p[a + 8] + at, p[a + 12] + at);
  });
  return transposed(v);
}

BALLAST_INLINE __m512 f16_of(const std::uint16_t (&bits)[kLanes]) {
  return _mm512_cvtph_ps(load_32(reinterpret_cast<Bytes>(bits)));
}
BALLAST_INLINE __m512 f16_of_lanes(const Bytes (&p)[kLanes], std::size_t at) {
  alignas(32) std::uint16_t bits[kLanes];
  for (int r = 0; r < kLanes; ++r) bits[r] = load<std::uint16_t>(p[r] + at);
  return f16_of(bits);
}

/// The fifth bits of a block of sixteen rows.
struct FifthOfLanes {
  __m512i bits;
  template <int h>
  BALLAST_INLINE Bytes64<4> at() const {
    Bytes64<4> out;
    times<4>([&](auto d) BALLAST_HERE {
      constexpr std::int64_t kFrom = from(16 * h + 4 * d);
      out.v[d] = _mm512_multishift_epi64_epi8(_mm512_set1_epi64(kFrom), bits);
    });
    return out;
  }

 private:
  /// For both lanes of 64 bits, where the eight bits begin of which bits first to first + 3 are the
  /// fifth.
  static constexpr std::int64_t from(int first) {
    std::uint64_t out = 0;
    for (int i = 0; i < 8; ++i) {
      const auto begin = static_cast<std::uint64_t>(first - 4 + i % 4 + i / 4 * 32);
      out |= (begin & 63) << (8 * i);
    }
    return static_cast<std::int64_t>(out);
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

/// The former chunks of a K type, or the latter.
template <typename Type, int half>
struct RawOfLanes {
  const Bytes64<4>* v;
  BALLAST_INLINE const Bytes64<4>& operator[](int i) const { return v[i]; }
  BALLAST_INLINE Bytes64<4> upper(int i) const {
    if constexpr (half == 0) return v[i];
    Bytes64<4> out;
    times<4>([&](auto d)
                 BALLAST_HERE { out.v[d] = _mm512_srli_epi16(v[i].v[d], Type::kDistance); });
    return out;
  }
};

}  // namespace ballast::integers
