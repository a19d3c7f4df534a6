// Vector operations of the integer kernels for AVX-512 VNNI. Included inside regions of
// BALLAST_AVX512_VNNI_TARGET; avx2-inl.h has the same names for AVX2.
#pragma once

#define BALLAST_ISA avx512
#include "gemm/loads-inl.h"

namespace ballast::gemm::avx512 {

using Vector = __m512i;
using Floats = __m512;
constexpr int kLanes = 16;  ///< of 32 bits
constexpr bool kHas16Registers = false;

BALLAST_INLINE Vector broadcast_8(int byte) { return _mm512_set1_epi8(static_cast<char>(byte)); }
BALLAST_INLINE Vector broadcast_32(int x) { return _mm512_set1_epi32(x); }
BALLAST_INLINE Vector zero_vector() { return _mm512_setzero_si512(); }
/// The same 128 bits in each 128-bit lane.
BALLAST_INLINE Vector broadcast_128(__m128i v) { return _mm512_broadcast_i32x4(v); }
BALLAST_INLINE Vector load_lanes(const void* p) { return _mm512_load_si512(p); }
BALLAST_INLINE void store_lanes(void* p, Vector v) { _mm512_store_si512(p, v); }

BALLAST_INLINE Vector and_bits(Vector a, Vector b) { return _mm512_and_si512(a, b); }
BALLAST_INLINE Vector xor_bits(Vector a, Vector b) { return _mm512_xor_si512(a, b); }
/// a | (b & mask)
BALLAST_INLINE Vector or_masked(Vector a, Vector b, Vector mask) {
  return _mm512_ternarylogic_epi32(a, b, mask, 0xf8);
}

template <int bits>
BALLAST_INLINE Vector shift_left_16(Vector v) {
  if constexpr (bits == 0) return v;
  return _mm512_slli_epi16(v, bits);
}
template <int bits>
BALLAST_INLINE Vector shift_right_16(Vector v) {
  if constexpr (bits == 0) return v;
  return _mm512_srli_epi16(v, bits);
}
/// Arithmetic shift.
template <int bits>
BALLAST_INLINE Vector shift_right_signed_16(Vector v) {
  return _mm512_srai_epi16(v, bits);
}
BALLAST_INLINE Vector sub_8(Vector a, Vector b) { return _mm512_sub_epi8(a, b); }
BALLAST_INLINE Vector mul_16(Vector a, Vector b) { return _mm512_mullo_epi16(a, b); }
BALLAST_INLINE Vector add_32(Vector a, Vector b) { return _mm512_add_epi32(a, b); }

/// Bytes by index within each 128-bit lane; zero where the index has its upper bit set.
BALLAST_INLINE Vector shuffle_8(Vector v, Vector index) { return _mm512_shuffle_epi8(v, index); }
BALLAST_INLINE Vector unpack_low_32(Vector a, Vector b) { return _mm512_unpacklo_epi32(a, b); }
BALLAST_INLINE Vector unpack_high_32(Vector a, Vector b) { return _mm512_unpackhi_epi32(a, b); }
BALLAST_INLINE Vector unpack_low_64(Vector a, Vector b) { return _mm512_unpacklo_epi64(a, b); }
BALLAST_INLINE Vector unpack_high_64(Vector a, Vector b) { return _mm512_unpackhi_epi64(a, b); }

BALLAST_INLINE Floats broadcast_f32(float x) { return _mm512_set1_ps(x); }
BALLAST_INLINE Floats load_f32(const void* p) { return _mm512_loadu_ps(p); }
BALLAST_INLINE void store_f32(void* p, Floats v) { _mm512_storeu_ps(p, v); }
BALLAST_INLINE Floats to_f32(Vector v) { return _mm512_cvtepi32_ps(v); }
BALLAST_INLINE Vector bitcast(Floats v) { return _mm512_castps_si512(v); }
BALLAST_INLINE Floats mul(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
BALLAST_INLINE Floats negate(Floats v) { return _mm512_sub_ps(_mm512_setzero_ps(), v); }
/// One rounding.
BALLAST_INLINE Floats mul_add(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
BALLAST_INLINE Floats f16_to_f32(const std::uint16_t (&bits)[kLanes]) {
  return _mm512_cvtph_ps(load_256(reinterpret_cast<Bytes>(bits)));
}

/// kLanes elements.
BALLAST_INLINE Floats load_f16(Bytes p) { return _mm512_cvtph_ps(load_256(p)); }
BALLAST_INLINE Floats load_bf16(Bytes p) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(load_256(p)), 16));
}

/// Magnitudes of F16 or BF16 elements as uint16, which order as the floats do.
BALLAST_INLINE Vector load_magnitudes(Bytes p) {
  return _mm512_and_si512(_mm512_loadu_si512(p), _mm512_set1_epi16(0x7fff));
}
BALLAST_INLINE Vector max_u16(Vector a, Vector b) { return _mm512_max_epu16(a, b); }
BALLAST_INLINE __m128i max_of_quarters(Vector v) {
  const __m256i half = _mm256_max_epu16(_mm512_castsi512_si256(v), _mm512_extracti64x4_epi64(v, 1));
  return _mm_max_epu16(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
}

/// Packs elements 0 to 15 and 16 to 31, each in the low int16 of its lane, in the order of
/// ActivationPanel's pairs.
struct PairOrder {
  alignas(64) std::int16_t of[32];
  constexpr PairOrder() : of() {
    for (int i = 0; i < 32; ++i) {
      constexpr int kOfFour[] = {0, 2, 1, 3};
      of[i] = static_cast<std::int16_t>(2 * (i / 4 * 4 + kOfFour[i % 4]));
    }
  }
};
BALLAST_INLINE Vector pack_pairs(Vector first, Vector second) {
  static constexpr PairOrder kOrder;
  return _mm512_permutex2var_epi16(first, _mm512_load_si512(kOrder.of), second);
}

BALLAST_INLINE Vector load_4x128(Bytes a, Bytes b, Bytes c, Bytes d) {
  __m512i v = _mm512_castsi128_si512(load_128(a));
  v = _mm512_mask_broadcast_i32x4(v, 0x00f0, load_128(b));
  v = _mm512_mask_broadcast_i32x4(v, 0x0f00, load_128(c));
  return _mm512_mask_broadcast_i32x4(v, 0xf000, load_128(d));
}
/// 16 bytes at `at` of rows 0, 4, 8 and 12.
BALLAST_INLINE Vector load_every_4th_row(const Bytes* p, std::size_t at) {
  return load_4x128(p[0] + at, p[4] + at, p[8] + at, p[12] + at);
}

/// Spreads bits first to first + 3 of each lane to bit 4 of its four bytes. Other bits are garbage.
template <int first>
BALLAST_INLINE Vector spread_fifth_bits(Vector bits) {
  // Of both int32 in 64 bits: the first of the eight bits that each output byte takes.
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

/// sums += int16 dot products of pairs. Assembly: GCC copies each sum before and after the product.
BALLAST_INLINE void dot_add_16(Vector& sums, Vector a, Vector b) {
  asm("vpdpwssd %2, %1, %0" : "+v"(sums) : "v"(a), "v"(b));
}

/// The same with an operand in memory.
BALLAST_INLINE void dot_add_16(Vector& sums, Vector a, const void* b) {
  dot_add_16(sums, a, load_lanes(b));
}

BALLAST_INLINE __m128i add_quarters(Vector v) {
  return add_halves(_mm256_add_epi32(_mm512_castsi512_si256(v), _mm512_extracti64x4_epi64(v, 1)));
}

/// Unpacks the group scales of Q4_K and Q5_K. A 128-bit lane holds the first 16 bytes of a block:
/// float16 scale and min, then six-bit scales and mins of eight groups. The result has a byte each:
/// scales 0 to 7, then mins.
BALLAST_INLINE Vector unpack_6bit(Vector first) {
  constexpr auto kAbcc = static_cast<_MM_PERM_ENUM>(0xf9), kCccc = static_cast<_MM_PERM_ENUM>(0xff);
  // a: scales 0 to 3, above them the upper bits of scales 4 to 7. b: the same of mins. c: the lower
  // bits of scales and mins 4 to 7.
  const __m512i ab = _mm512_shuffle_epi32(first, kAbcc);  // a, b, c, c
  const __m512i low = _mm512_and_si512(ab, _mm512_set1_epi8(63));
  const __m512i upper = _mm512_and_si512(_mm512_srli_epi32(ab, 2), _mm512_set1_epi8(48));
  const __m512i c = _mm512_srlv_epi32(_mm512_shuffle_epi32(first, kCccc),
                                      _mm512_set1_epi64(std::int64_t{4} << 32));
  // (c & 15) | upper
  const __m512i high = _mm512_ternarylogic_epi32(c, _mm512_set1_epi8(15), upper, 0xea);
  return _mm512_unpacklo_epi32(low, high);
}
/// The same of the block at p.
BALLAST_INLINE __m128i unpack_6bit_at(Bytes p) {
  return _mm512_castsi512_si128(unpack_6bit(_mm512_castsi128_si512(load_128(p))));
}

}  // namespace ballast::gemm::avx512
