// The vectors that products of integers are made of, with AVX2. Included inside regions of
// BALLAST_AVX2_TARGET; integer_avx512-inl.h has the same for AVX-512.
#pragma once

#define BALLAST_VECTORS avx2
#include "gemm/loads-inl.h"

namespace ballast::gemm::avx2 {

using Vector = __m256i;
using Floats = __m256;
constexpr int kLanes = 8;  ///< of 32 bits
constexpr bool kSixteenRegisters = true;

BALLAST_INLINE Vector all_8(int byte) { return _mm256_set1_epi8(static_cast<char>(byte)); }
BALLAST_INLINE Vector all_32(int number) { return _mm256_set1_epi32(number); }
BALLAST_INLINE Vector zeros() { return _mm256_setzero_si256(); }
/// The same 16 bytes in each 128 bits.
BALLAST_INLINE Vector all_16_bytes(__m128i v) { return _mm256_broadcastsi128_si256(v); }
BALLAST_INLINE Vector load_lanes(const void* p) {
  return _mm256_load_si256(static_cast<const __m256i*>(p));
}
BALLAST_INLINE void store_lanes(void* p, Vector v) {
  _mm256_store_si256(static_cast<__m256i*>(p), v);
}

BALLAST_INLINE Vector and_bits(Vector a, Vector b) { return _mm256_and_si256(a, b); }
BALLAST_INLINE Vector xor_bits(Vector a, Vector b) { return _mm256_xor_si256(a, b); }
/// a | (b & mask)
BALLAST_INLINE Vector with_masked(Vector a, Vector b, Vector mask) {
  return _mm256_or_si256(a, _mm256_and_si256(b, mask));
}

template <int bits>
BALLAST_INLINE Vector left_16(Vector v) {
  if constexpr (bits == 0) return v;
  return _mm256_slli_epi16(v, bits);
}
template <int bits>
BALLAST_INLINE Vector right_16(Vector v) {
  if constexpr (bits == 0) return v;
  return _mm256_srli_epi16(v, bits);
}
/// With copies of the sign.
template <int bits>
BALLAST_INLINE Vector signed_right_16(Vector v) {
  return _mm256_srai_epi16(v, bits);
}
BALLAST_INLINE Vector subtract_8(Vector a, Vector b) { return _mm256_sub_epi8(a, b); }
BALLAST_INLINE Vector multiply_16(Vector a, Vector b) { return _mm256_mullo_epi16(a, b); }
BALLAST_INLINE Vector add_32(Vector a, Vector b) { return _mm256_add_epi32(a, b); }

/// Bytes of each 128 bits, by index; zero where its upper bit is set.
BALLAST_INLINE Vector shuffle_8(Vector v, Vector index) { return _mm256_shuffle_epi8(v, index); }
BALLAST_INLINE Vector low_32(Vector a, Vector b) { return _mm256_unpacklo_epi32(a, b); }
BALLAST_INLINE Vector high_32(Vector a, Vector b) { return _mm256_unpackhi_epi32(a, b); }
BALLAST_INLINE Vector low_64(Vector a, Vector b) { return _mm256_unpacklo_epi64(a, b); }
BALLAST_INLINE Vector high_64(Vector a, Vector b) { return _mm256_unpackhi_epi64(a, b); }

BALLAST_INLINE Floats all_floats(float number) { return _mm256_set1_ps(number); }
BALLAST_INLINE Floats load_floats(const void* p) {
  return _mm256_loadu_ps(static_cast<const float*>(p));
}
BALLAST_INLINE void store_floats(void* p, Floats v) { _mm256_storeu_ps(static_cast<float*>(p), v); }
BALLAST_INLINE Floats to_floats(Vector v) { return _mm256_cvtepi32_ps(v); }
BALLAST_INLINE Vector bits_of(Floats v) { return _mm256_castps_si256(v); }
BALLAST_INLINE Floats multiply(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
BALLAST_INLINE Floats negative(Floats v) { return _mm256_sub_ps(_mm256_setzero_ps(), v); }
/// a · b + c
BALLAST_INLINE Floats multiply_add(Floats a, Floats b, Floats c) {
  return _mm256_fmadd_ps(a, b, c);
}
BALLAST_INLINE Floats f16_of(const std::uint16_t (&bits)[kLanes]) {
  return _mm256_cvtph_ps(load_16(reinterpret_cast<Bytes>(bits)));
}

/// kLanes numbers of 16-bit floating point.
BALLAST_INLINE Floats f16_at(Bytes p) { return _mm256_cvtph_ps(load_16(p)); }
BALLAST_INLINE Floats bf16_at(Bytes p) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_16(p)), 16));
}

/// The lower words of lanes, and beside them those of others.
BALLAST_INLINE Vector beside(Vector lower, Vector upper) {
  return _mm256_blend_epi16(lower, _mm256_slli_epi32(upper, 16), 0xaa);
}

/// Magnitudes of words without their upper bit.
BALLAST_INLINE Vector magnitudes_at(Bytes p) {
  return _mm256_and_si256(load_32(p), _mm256_set1_epi16(0x7fff));
}
BALLAST_INLINE Vector most_16(Vector a, Vector b) { return _mm256_max_epu16(a, b); }
BALLAST_INLINE __m128i most_of_quarters(Vector v) {
  return _mm_max_epu16(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
}

/// Numbers 0 to 7 and 8 to 15, in the lower words of their lanes, in the order of IntegerTile's
/// pairs.
BALLAST_INLINE Vector pairs_of_words(Vector former, Vector latter) {
  constexpr std::int64_t kPairs = 0x0d0c05040908'0100, kNone = -1;
  const Vector low = shuffle_8(former, all_16_bytes(_mm_set_epi64x(kNone, kPairs)));
  const Vector high = shuffle_8(latter, all_16_bytes(_mm_set_epi64x(kPairs, kNone)));
  return _mm256_permute4x64_epi64(_mm256_or_si256(low, high), 0xd8);
}

/// 16 bytes at each of two places.
BALLAST_INLINE Vector in_halves(Bytes a, Bytes b) {
  return _mm256_inserti128_si256(_mm256_castsi128_si256(load_16(a)), load_16(b), 1);
}
/// Sixteen bytes at `at` of rows 0 and 4.
BALLAST_INLINE Vector every_fourth(const Bytes* p, std::size_t at) {
  return in_halves(p[0] + at, p[4] + at);
}

/// Bits first to first + 3 of each lane, as bit 4 of a byte each. Other bits are something else.
template <int first>
BALLAST_INLINE Vector four_as_fifth(Vector bits) {
  constexpr int k = 0x01010101 * (first / 8), kLane = 0x04040404;
  const Vector four_times =
      shuffle_8(bits, all_16_bytes(_mm_setr_epi32(k, k + kLane, k + 2 * kLane, k + 3 * kLane)));
  constexpr int kBits = first % 8 == 0 ? 0x08040201 : static_cast<int>(0x80402010);
  const Vector bit = all_32(kBits);
  return _mm256_cmpeq_epi8(and_bits(four_times, bit), bit);
}

/// sums += products of words in pairs. GCC would make all products of a tile first, and then add.
BALLAST_INLINE void add_products(Vector& sums, Vector a, Vector b) {
  Vector products;
  asm("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0" : "+x"(sums), "=&x"(products) : "x"(a), "x"(b));
}

/// The same, of words that lie there, where GCC has no reason to.
BALLAST_INLINE void add_products(Vector& sums, Vector a, const void* b) {
  sums = add_32(sums, _mm256_madd_epi16(a, load_lanes(b)));
}

BALLAST_INLINE __m128i add_quarters(Vector v) { return add_halves(v); }

/// Q4_K and Q5_K begin with float16 scales of scales and of offsets, and twelve bytes of eight
/// scales and eight offsets of six bits. For as many blocks as begin in the vector's halves: scales
/// 0 to 7, then offsets.
BALLAST_INLINE Vector six_bits(Vector first) {
  // a: low four scales, with the upper bits of the high four above them; b: so the offsets; c: the
  // lower bits of the high four of both.
  const __m256i ab = _mm256_shuffle_epi32(first, 0xf9);  // a, b, c, c
  const __m256i low = and_bits(ab, all_8(63));
  const __m256i upper = and_bits(_mm256_srli_epi32(ab, 2), all_8(48));
  const __m256i c = _mm256_srlv_epi32(_mm256_shuffle_epi32(first, 0xff),
                                      _mm256_set1_epi64x(std::int64_t{4} << 32));
  return low_32(low, _mm256_or_si256(and_bits(c, all_8(15)), upper));
}
/// Of one block.
BALLAST_INLINE __m128i six_bits_of(Bytes p) {
  return _mm256_castsi256_si128(six_bits(_mm256_castsi128_si256(load_16(p))));
}

}  // namespace ballast::gemm::avx2
