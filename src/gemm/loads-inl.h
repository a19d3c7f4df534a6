// Unaligned loads and stores, and what is 128 bits long on every processor: group scales, and a
// float of each of four rows. Included by avx2-inl.h, avx512-inl.h and neon-inl.h after they set
// BALLAST_ISA, the namespace of the instruction set.
#pragma once

// GCC 12 warns of the undefined operands of its own intrinsics (its bug 105593).
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

#include "gemm/kernels.h"
#include "simd/inline.h"
#include "simd/unroll-inl.h"

namespace ballast::gemm::BALLAST_ISA {

using Bytes = const std::uint8_t*;
inline Bytes bytes(const std::byte* p) { return reinterpret_cast<Bytes>(p); }

template <typename T>
BALLAST_INLINE T load(Bytes p) {
  T value;
  std::memcpy(&value, p, sizeof(value));
  return value;
}

#if defined(__x86_64__)

using Bits128 = __m128i;
using RowFloats = __m128;  ///< a float of each of four rows

// 128 and 256 bits. Pointers to other types are for arrays that kernels fill themselves.
BALLAST_INLINE __m128i load_128(const void* p) {
  return _mm_loadu_si128(static_cast<const __m128i*>(p));
}
BALLAST_INLINE __m256i load_256(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}
BALLAST_INLINE void store_128(void* out, __m128i v) {
  _mm_storeu_si128(static_cast<__m128i*>(out), v);
}
BALLAST_INLINE void store_256(void* out, __m256i v) {
  _mm256_storeu_si256(static_cast<__m256i*>(out), v);
}

BALLAST_INLINE __m128i add_halves(__m256i v) {
  return _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
}

BALLAST_INLINE Bits128 zero_128() { return _mm_setzero_si128(); }
BALLAST_INLINE Bits128 make_128(std::int64_t high, std::int64_t low) {
  return _mm_set_epi64x(high, low);
}
/// Both of the upper 64 bits.
BALLAST_INLINE Bits128 upper_64(Bits128 v) { return _mm_unpackhi_epi64(v, v); }
/// The low or high four bits of each byte.
BALLAST_INLINE Bits128 low_4(Bits128 v) { return _mm_and_si128(v, _mm_set1_epi8(15)); }
BALLAST_INLINE Bits128 high_4(Bits128 v) { return low_4(_mm_srli_epi16(v, 4)); }
BALLAST_INLINE Bits128 sub_from_each_8(Bits128 v, int byte) {
  return _mm_sub_epi8(v, _mm_set1_epi8(static_cast<char>(byte)));
}

BALLAST_INLINE RowFloats broadcast_rows(float x) { return _mm_set1_ps(x); }
BALLAST_INLINE RowFloats load_rows(const float* p) { return _mm_loadu_ps(p); }
BALLAST_INLINE void store_rows(float* p, RowFloats v) { _mm_storeu_ps(p, v); }
BALLAST_INLINE RowFloats mul_add_rows(RowFloats a, RowFloats b, RowFloats c) {
  return _mm_fmadd_ps(a, b, c);
}
/// The float16 at byte `at` of each row.
BALLAST_INLINE RowFloats load_f16_of_rows(std::size_t at, const Bytes (&p)[4]) {
  auto bits = [&](int r) { return load<short>(p[r] + at); };
  return _mm_cvtph_ps(_mm_setr_epi16(bits(0), bits(1), bits(2), bits(3), 0, 0, 0, 0));
}

#elif defined(__aarch64__)

using Bits128 = uint8x16_t;
using RowFloats = float32x4_t;

BALLAST_INLINE Bits128 load_128(const void* p) {
  return vld1q_u8(static_cast<const std::uint8_t*>(p));
}
BALLAST_INLINE Bits128 zero_128() { return vdupq_n_u8(0); }
BALLAST_INLINE Bits128 make_128(std::int64_t high, std::int64_t low) {
  return vreinterpretq_u8_s64(vcombine_s64(vcreate_s64(low), vcreate_s64(high)));
}
BALLAST_INLINE Bits128 upper_64(Bits128 v) { return vextq_u8(v, v, 8); }
BALLAST_INLINE Bits128 low_4(Bits128 v) { return vandq_u8(v, vdupq_n_u8(15)); }
BALLAST_INLINE Bits128 high_4(Bits128 v) { return vshrq_n_u8(v, 4); }
BALLAST_INLINE Bits128 sub_from_each_8(Bits128 v, int byte) {
  return vsubq_u8(v, vdupq_n_u8(static_cast<std::uint8_t>(byte)));
}

BALLAST_INLINE RowFloats broadcast_rows(float x) { return vdupq_n_f32(x); }
BALLAST_INLINE RowFloats load_rows(const float* p) { return vld1q_f32(p); }
BALLAST_INLINE void store_rows(float* p, RowFloats v) { vst1q_f32(p, v); }
BALLAST_INLINE RowFloats mul_add_rows(RowFloats a, RowFloats b, RowFloats c) {
  return vfmaq_f32(c, a, b);
}
BALLAST_INLINE RowFloats load_f16_of_rows(std::size_t at, const Bytes (&p)[4]) {
  const std::uint16_t bits[4] = {load<std::uint16_t>(p[0] + at), load<std::uint16_t>(p[1] + at),
                                 load<std::uint16_t>(p[2] + at), load<std::uint16_t>(p[3] + at)};
  return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(bits)));
}

#endif

}  // namespace ballast::gemm::BALLAST_ISA
