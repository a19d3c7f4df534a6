// Vector operations of the integer kernels for AVX2. Included inside regions of
// BALLAST_AVX2_TARGET; avx512-inl.h has the same names for AVX-512. A suffix _8, _16, _32 is the
// width of an element.
#pragma once

#define BALLAST_ISA avx2
#include "gemm/loads-inl.h"

namespace ballast::gemm::avx2 {

using Vector = __m256i;
using Floats = __m256;
constexpr int kLanes = 8;  ///< of 32 bits
constexpr bool kHas16Registers = true;

BALLAST_INLINE Vector broadcast_8(int byte) { return _mm256_set1_epi8(static_cast<char>(byte)); }
BALLAST_INLINE Vector broadcast_32(int x) { return _mm256_set1_epi32(x); }
BALLAST_INLINE Vector zero_vector() { return _mm256_setzero_si256(); }
/// The same 128 bits in each 128-bit lane.
BALLAST_INLINE Vector broadcast_128(__m128i v) { return _mm256_broadcastsi128_si256(v); }
BALLAST_INLINE Vector load_lanes(const void* p) {
  return _mm256_load_si256(static_cast<const __m256i*>(p));
}
BALLAST_INLINE void store_lanes(void* p, Vector v) {
  _mm256_store_si256(static_cast<__m256i*>(p), v);
}

BALLAST_INLINE Vector and_bits(Vector a, Vector b) { return _mm256_and_si256(a, b); }
BALLAST_INLINE Vector xor_bits(Vector a, Vector b) { return _mm256_xor_si256(a, b); }
/// a | (b & mask)
BALLAST_INLINE Vector or_masked(Vector a, Vector b, Vector mask) {
  return _mm256_or_si256(a, _mm256_and_si256(b, mask));
}

template <int bits>
BALLAST_INLINE Vector shift_left_16(Vector v) {
  if constexpr (bits == 0) return v;
  return _mm256_slli_epi16(v, bits);
}
template <int bits>
BALLAST_INLINE Vector shift_right_16(Vector v) {
  if constexpr (bits == 0) return v;
  return _mm256_srli_epi16(v, bits);
}
/// Arithmetic shift.
template <int bits>
BALLAST_INLINE Vector shift_right_signed_16(Vector v) {
  return _mm256_srai_epi16(v, bits);
}
BALLAST_INLINE Vector sub_8(Vector a, Vector b) { return _mm256_sub_epi8(a, b); }
BALLAST_INLINE Vector mul_16(Vector a, Vector b) { return _mm256_mullo_epi16(a, b); }
BALLAST_INLINE Vector add_32(Vector a, Vector b) { return _mm256_add_epi32(a, b); }

/// Bytes by index within each 128-bit lane; zero where the index has its upper bit set.
BALLAST_INLINE Vector shuffle_8(Vector v, Vector index) { return _mm256_shuffle_epi8(v, index); }
BALLAST_INLINE Vector unpack_low_32(Vector a, Vector b) { return _mm256_unpacklo_epi32(a, b); }
BALLAST_INLINE Vector unpack_high_32(Vector a, Vector b) { return _mm256_unpackhi_epi32(a, b); }
BALLAST_INLINE Vector unpack_low_64(Vector a, Vector b) { return _mm256_unpacklo_epi64(a, b); }
BALLAST_INLINE Vector unpack_high_64(Vector a, Vector b) { return _mm256_unpackhi_epi64(a, b); }

BALLAST_INLINE Floats broadcast_f32(float x) { return _mm256_set1_ps(x); }
BALLAST_INLINE Floats load_f32(const void* p) {
  return _mm256_loadu_ps(static_cast<const float*>(p));
}
BALLAST_INLINE void store_f32(void* p, Floats v) { _mm256_storeu_ps(static_cast<float*>(p), v); }
BALLAST_INLINE Floats to_f32(Vector v) { return _mm256_cvtepi32_ps(v); }
BALLAST_INLINE Vector bitcast(Floats v) { return _mm256_castps_si256(v); }
BALLAST_INLINE Floats mul(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
BALLAST_INLINE Floats negate(Floats v) { return _mm256_sub_ps(_mm256_setzero_ps(), v); }
/// One rounding.
BALLAST_INLINE Floats mul_add(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
BALLAST_INLINE Floats f16_to_f32(const std::uint16_t (&bits)[kLanes]) {
  return _mm256_cvtph_ps(load_128(reinterpret_cast<Bytes>(bits)));
}

/// kLanes elements.
BALLAST_INLINE Floats load_f16(Bytes p) { return _mm256_cvtph_ps(load_128(p)); }
BALLAST_INLINE Floats load_bf16(Bytes p) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_128(p)), 16));
}

/// The low int16 of each lane of `lower`, with that of `upper` above it.
BALLAST_INLINE Vector merge_low_16(Vector lower, Vector upper) {
  return _mm256_blend_epi16(lower, _mm256_slli_epi32(upper, 16), 0xaa);
}

/// Magnitudes of F16 or BF16 elements as uint16, which order as the floats do.
BALLAST_INLINE Vector load_magnitudes(Bytes p) {
  return _mm256_and_si256(load_256(p), _mm256_set1_epi16(0x7fff));
}
BALLAST_INLINE Vector max_u16(Vector a, Vector b) { return _mm256_max_epu16(a, b); }
BALLAST_INLINE __m128i max_of_quarters(Vector v) {
  return _mm_max_epu16(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
}

/// Packs elements 0 to 7 and 8 to 15, each in the low int16 of its lane, in the order of
/// ActivationPanel's pairs.
BALLAST_INLINE Vector pack_pairs(Vector first, Vector second) {
  constexpr std::int64_t kPairs = 0x0d0c05040908'0100, kNone = -1;
  const Vector low = shuffle_8(first, broadcast_128(_mm_set_epi64x(kNone, kPairs)));
  const Vector high = shuffle_8(second, broadcast_128(_mm_set_epi64x(kPairs, kNone)));
  return _mm256_permute4x64_epi64(_mm256_or_si256(low, high), 0xd8);
}

BALLAST_INLINE Vector load_2x128(Bytes a, Bytes b) {
  return _mm256_inserti128_si256(_mm256_castsi128_si256(load_128(a)), load_128(b), 1);
}
/// 16 bytes at `at` of rows 0 and 4.
BALLAST_INLINE Vector load_every_4th_row(const Bytes* p, std::size_t at) {
  return load_2x128(p[0] + at, p[4] + at);
}

/// Spreads bits first to first + 3 of each lane to bit 4 of its four bytes. Other bits are garbage.
template <int first>
BALLAST_INLINE Vector spread_fifth_bits(Vector bits) {
  constexpr int k = 0x01010101 * (first / 8), kLane = 0x04040404;
  const Vector repeated =
      shuffle_8(bits, broadcast_128(_mm_setr_epi32(k, k + kLane, k + 2 * kLane, k + 3 * kLane)));
  constexpr int kBits = first % 8 == 0 ? 0x08040201 : static_cast<int>(0x80402010);
  const Vector bit = broadcast_32(kBits);
  return _mm256_cmpeq_epi8(and_bits(repeated, bit), bit);
}

/// sums += int16 dot products of pairs. Assembly: GCC computes all products of a tile before it
/// adds any, and spills them.
BALLAST_INLINE void dot_add_16(Vector& sums, Vector a, Vector b) {
  Vector products;
  asm("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0" : "+x"(sums), "=&x"(products) : "x"(a), "x"(b));
}

/// The same with an operand in memory, which GCC orders well by itself.
BALLAST_INLINE void dot_add_16(Vector& sums, Vector a, const void* b) {
  sums = add_32(sums, _mm256_madd_epi16(a, load_lanes(b)));
}

BALLAST_INLINE __m128i add_quarters(Vector v) { return add_halves(v); }

/// Unpacks the group scales of Q4_K and Q5_K. A 128-bit lane holds the first 16 bytes of a block:
/// float16 scale and min, then six-bit scales and mins of eight groups. The result has a byte each:
/// scales 0 to 7, then mins.
BALLAST_INLINE Vector unpack_6bit(Vector first) {
  // a: scales 0 to 3, above them the upper bits of scales 4 to 7. b: the same of mins. c: the lower
  // bits of scales and mins 4 to 7.
  const __m256i ab = _mm256_shuffle_epi32(first, 0xf9);  // a, b, c, c
  const __m256i low = and_bits(ab, broadcast_8(63));
  const __m256i upper = and_bits(_mm256_srli_epi32(ab, 2), broadcast_8(48));
  const __m256i c = _mm256_srlv_epi32(_mm256_shuffle_epi32(first, 0xff),
                                      _mm256_set1_epi64x(std::int64_t{4} << 32));
  return unpack_low_32(low, _mm256_or_si256(and_bits(c, broadcast_8(15)), upper));
}
/// The same of the block at p.
BALLAST_INLINE __m128i unpack_6bit_at(Bytes p) {
  return _mm256_castsi256_si128(unpack_6bit(_mm256_castsi128_si256(load_128(p))));
}

}  // namespace ballast::gemm::avx2
