// How weights of q4, q3 and q2 values become codes (av_rotated_avx512.cc). Included within their
// target's attributes.
#pragma once

#include "attention/kernels/av_avx512-inl.h"
#include "attention/kernels/rotated_avx512-inl.h"

HWY_PUSH_ATTRIBUTES(BALLAST_AVX512_BF16_TARGET)
namespace ballast::kernels::avx512 {
namespace {

constexpr std::size_t kParts = 2;                                  // of a block, with a unit each
constexpr std::size_t kPartGroups = kEntryBlock / kWide / kParts;  // of sixteen rows

// The weights of a query as bytes.
struct WeightCodes {
  alignas(64) std::uint8_t codes[kEntryBlock];
  float unit[kParts];

  // scales: of the block's rows, 0 behind the last one.
  BALLAST_INLINE void set(const float* weights, const __m512 (&scales)[kEntryBlock / kWide]) {
    unroll<kParts>([&](auto p) BALLAST_INLINE_LAMBDA {
      __m512 product[kPartGroups];
      auto most = _mm512_setzero_ps();
      unroll<kPartGroups>([&](auto g) BALLAST_INLINE_LAMBDA {
        constexpr std::size_t kGroup = p * kPartGroups + g;
        product[g] = _mm512_mul_ps(_mm512_loadu_ps(weights + kGroup * kWide), scales[kGroup]);
        most = _mm512_max_ps(most, product[g]);
      });
      const float largest = _mm512_reduce_max_ps(most);
      unit[p] = largest / 255.0f;
      // Below, the inverse would overflow: such values count as zeros.
      const auto inverse = _mm512_set1_ps(largest > 1e-33f ? 255.0f / largest : 0.0f);
      unroll<kPartGroups>([&](auto g) BALLAST_INLINE_LAMBDA {
        const auto code = _mm512_cvtps_epi32(_mm512_mul_ps(product[g], inverse));
        _mm_store_si128(reinterpret_cast<__m128i*>(codes + (p * kPartGroups + g) * kWide),
                        _mm512_cvtepi32_epi8(code));
      });
    });
  }
};

// Byte j of 32-bit word i: byte i of row j of four.
inline __m512i interleaved(__m512i four_rows) {
  const auto word = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
  const auto order = _mm512_add_epi8(_mm512_mullo_epi32(word, _mm512_set1_epi32(0x01010101)),
                                     _mm512_set1_epi32(0x30201000));
  return _mm512_permutexvar_epi8(order, four_rows);
}

}  // namespace
}  // namespace ballast::kernels::avx512
HWY_POP_ATTRIBUTES
