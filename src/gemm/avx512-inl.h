// The vectors that products of integers are made of, with AVX-512 VNNI. Included inside regions of
// BALLAST_AVX512_VNNI_TARGET; integer_avx2-inl.h has the same for AVX2.
#pragma once

#define BALLAST_VECTORS avx512
#include "gemm/loads-inl.h"

namespace ballast::gemm::avx512 {

using Vector = __m512i;
using Floats = __m512;
constexpr int kLanes = 16;  ///< of 32 bits
constexpr bool kSixteenRegisters = false;

BALLAST_INLINE Vector all_8(int byte) { return _mm512_set1_epi8(static_cast<char>(byte)); }
BALLAST_INLINE Vector all_32(int number) { return _mm512_set1_epi32(number); }
BALLAST_INLINE Vector zeros() { return _mm512_setzero_si512(); }
/// The same 16 bytes in each 128 bits.
BALLAST_INLINE Vector all_16_bytes(__m128i v) { return _mm512_broadcast_i32x4(v); }
BALLAST_INLINE Vector load_lanes(const void* p) { return _mm512_load_si512(p); }
BALLAST_INLINE void store_lanes(void* p, Vector v) { _mm512_store_si512(p, v); }

BALLAST_INLINE Vector and_bits(Vector a, Vector b) { return _mm512_and_si512(a, b); }
BALLAST_INLINE Vector xor_bits(Vector a, Vector b) { return _mm512_xor_si512(a, b); }
/// a | (b & mask)
BALLAST_INLINE Vector with_masked(Vector a, Vector b, Vector mask) {
  return _mm512_ternarylogic_epi32(a, b, mask, 0xf8);
}

template <int bits>
BALLAST_INLINE Vector left_16(Vector v) {
  if constexpr (bits == 0) return v;
  return _mm512_slli_epi16(v, bits);
}
template <int bits>
BALLAST_INLINE Vector right_16(Vector v) {
  if constexpr (bits == 0) return v;
  return _mm512_srli_epi16(v, bits);
}
/// With copies of the sign.
template <int bits>
BALLAST_INLINE Vector signed_right_16(Vector v) {
  return _mm512_srai_epi16(v, bits);
}
BALLAST_INLINE Vector subtract_8(Vector a, Vector b) { return _mm512_sub_epi8(a, b); }
BALLAST_INLINE Vector multiply_16(Vector a, Vector b) { return _mm512_mullo_epi16(a, b); }
BALLAST_INLINE Vector add_32(Vector a, Vector b) { return _mm512_add_epi32(a, b); }

/// Bytes of each 128 bits, by index; zero where its upper bit is set.
BALLAST_INLINE Vector shuffle_8(Vector v, Vector index) { return _mm512_shuffle_epi8(v, index); }
BALLAST_INLINE Vector low_32(Vector a, Vector b) { return _mm512_unpacklo_epi32(a, b); }
BALLAST_INLINE Vector high_32(Vector a, Vector b) { return _mm512_unpackhi_epi32(a, b); }
BALLAST_INLINE Vector low_64(Vector a, Vector b) { return _mm512_unpacklo_epi64(a, b); }
BALLAST_INLINE Vector high_64(Vector a, Vector b) { return _mm512_unpackhi_epi64(a, b); }

BALLAST_INLINE Floats all_floats(float number) { return _mm512_set1_ps(number); }
BALLAST_INLINE Floats load_floats(const void* p) { return _mm512_loadu_ps(p); }
BALLAST_INLINE void store_floats(void* p, Floats v) { _mm512_storeu_ps(p, v); }
BALLAST_INLINE Floats to_floats(Vector v) { return _mm512_cvtepi32_ps(v); }
BALLAST_INLINE Vector bits_of(Floats v) { return _mm512_castps_si512(v); }
BALLAST_INLINE Floats multiply(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
BALLAST_INLINE Floats negative(Floats v) { return _mm512_sub_ps(_mm512_setzero_ps(), v); }
/// a · b + c
BALLAST_INLINE Floats multiply_add(Floats a, Floats b, Floats c) {
  return _mm512_fmadd_ps(a, b, c);
}
BALLAST_INLINE Floats f16_of(const std::uint16_t (&bits)[kLanes]) {
  return _mm512_cvtph_ps(load_32(reinterpret_cast<Bytes>(bits)));
}

/// kLanes numbers of 16-bit floating point.
BALLAST_INLINE Floats f16_at(Bytes p) { return _mm512_cvtph_ps(load_32(p)); }
BALLAST_INLINE Floats bf16_at(Bytes p) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(load_32(p)), 16));
}

/// Magnitudes of words without their upper bit.
BALLAST_INLINE Vector magnitudes_at(Bytes p) {
  return _mm512_and_si512(_mm512_loadu_si512(p), _mm512_set1_epi16(0x7fff));
}
BALLAST_INLINE Vector most_16(Vector a, Vector b) { return _mm512_max_epu16(a, b); }
BALLAST_INLINE __m128i most_of_quarters(Vector v) {
  const __m256i half = _mm256_max_epu16(_mm512_castsi512_si256(v), _mm512_extracti64x4_epi64(v, 1));
  return _mm_max_epu16(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
}

/// Numbers 0 to 15 and 16 to 31, in the lower words of their lanes, in the order of IntegerTile's
/// pairs.
struct PairOrder {
  alignas(64) std::int16_t of[32];
  constexpr PairOrder() : of() {
    for (int i = 0; i < 32; ++i) {
      constexpr int kOfFour[] = {0, 2, 1, 3};
      of[i] = static_cast<std::int16_t>(2 * (i / 4 * 4 + kOfFour[i % 4]));
    }
  }
};
BALLAST_INLINE Vector pairs_of_words(Vector former, Vector latter) {
  static constexpr PairOrder kOrder;
  return _mm512_permutex2var_epi16(former, _mm512_load_si512(kOrder.of), latter);
}

BALLAST_INLINE Vector in_quarters(Bytes a, Bytes b, Bytes c, Bytes d) {
  __m512i v = _mm512_castsi128_si512(load_16(a));
  v = _mm512_mask_broadcast_i32x4(v, 0x00f0, load_16(b));
  v = _mm512_mask_broadcast_i32x4(v, 0x0f00, load_16(c));
  return _mm512_mask_broadcast_i32x4(v, 0xf000, load_16(d));
}
/// Sixteen bytes at `at` of rows 0, 4, 8 and 12.
BALLAST_INLINE Vector every_fourth(const Bytes* p, std::size_t at) {
  return in_quarters(p[0] + at, p[4] + at, p[8] + at, p[12] + at);
}

/// Bits first to first + 3 of each lane, as bit 4 of a byte each. Other bits are something else.
template <int first>
BALLAST_INLINE Vector four_as_fifth(Vector bits) {
  // For both lanes of 64 bits, where the eight bits begin of which these are the fifth.
  constexpr std::int64_t kFrom = [] {
    std::uint64_t out = 0;
    for (int i = 0; i < 8; ++i) {
      const auto begin = static_cast<std::uint64_t>(first - 4 + i % 4 + i / 4 * 32);
      out |= (begin & 63) << (8 * i);
    }
    return static_cast<std::int64_t>(out);
  }();
  return _mm512_multishift_epi64_epi8(_mm512_set1_epi64(kFrom), bits);
}

/// sums += products of words in pairs. GCC would copy each sum before the product and after it.
BALLAST_INLINE void add_products(Vector& sums, Vector a, Vector b) {
  asm("vpdpwssd %2, %1, %0" : "+v"(sums) : "v"(a), "v"(b));
}

/// The same, of words that lie there.
BALLAST_INLINE void add_products(Vector& sums, Vector a, const void* b) {
  add_products(sums, a, load_lanes(b));
}

BALLAST_INLINE __m128i add_quarters(Vector v) {
  return add_halves(_mm256_add_epi32(_mm512_castsi512_si256(v), _mm512_extracti64x4_epi64(v, 1)));
}

/// Q4_K and Q5_K begin with float16 scales of scales and of offsets, and twelve bytes of eight
/// scales and eight offsets of six bits. The same bits of four at a time, for as many blocks as
/// begin in the vector's quarters: scales 0 to 7, then offsets.
BALLAST_INLINE Vector six_bits(Vector first) {
  constexpr auto kAbcc = static_cast<_MM_PERM_ENUM>(0xf9), kCccc = static_cast<_MM_PERM_ENUM>(0xff);
  // a: low four scales, with the upper bits of the high four above them; b: so the offsets; c: the
  // lower bits of the high four of both.
  const __m512i ab = _mm512_shuffle_epi32(first, kAbcc);  // a, b, c, c
  const __m512i low = _mm512_and_si512(ab, _mm512_set1_epi8(63));
  const __m512i upper = _mm512_and_si512(_mm512_srli_epi32(ab, 2), _mm512_set1_epi8(48));
  const __m512i c = _mm512_srlv_epi32(_mm512_shuffle_epi32(first, kCccc),
                                      _mm512_set1_epi64(std::int64_t{4} << 32));
  // (c & 15) | upper
  const __m512i high = _mm512_ternarylogic_epi32(c, _mm512_set1_epi8(15), upper, 0xea);
  return _mm512_unpacklo_epi32(low, high);
}
/// Of one block.
BALLAST_INLINE __m128i six_bits_of(Bytes p) {
  return _mm512_castsi512_si128(six_bits(_mm512_castsi128_si512(load_16(p))));
}

}  // namespace ballast::gemm::avx512
