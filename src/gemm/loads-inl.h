// Unaligned loads and stores. Included by avx2-inl.h and avx512-inl.h after they set BALLAST_ISA,
// the namespace of the instruction set.
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

}  // namespace ballast::gemm::BALLAST_ISA
