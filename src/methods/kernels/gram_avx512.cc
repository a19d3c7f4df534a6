#include "methods/kernels/gram_avx512.h"

#include <hwy/base.h>
#include <hwy/detect_targets.h>

#include "attention/kernels/avx512.h"

#if HWY_ARCH_X86 && defined(__GNUC__)
#include "attention/kernels/avx512-inl.h"

HWY_PUSH_ATTRIBUTES(BALLAST_AVX512_BF16_TARGET)
namespace ballast::kernels::avx512 {
namespace {

inline __m512i bf16_words(const float* at) {
  return _mm512_cvtepu16_epi32(reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(_mm512_load_ps(at))));
}

template <std::size_t G>
void tile(const float* packed, std::size_t dim, std::size_t row, std::size_t group, float* out,
          std::size_t stride) {
  const std::size_t group_size = dim * kWide;
  const auto* a =
      reinterpret_cast<const std::uint32_t*>(packed + row / kWide * group_size) + row % kWide;
  const float* b = packed + group * group_size;
  __m512 sum[kGramRows][G];
#pragma GCC unroll 8
  for (std::size_t t = 0; t < kGramRows; ++t) {
#pragma GCC unroll 4
    for (std::size_t g = 0; g < G; ++g) sum[t][g] = _mm512_setzero_ps();
  }
  for (std::size_t step = 0; step < (dim + 1) / 2; ++step) {
    __m512i column[G];
#pragma GCC unroll 4
    for (std::size_t g = 0; g < G; ++g) {
      column[g] = _mm512_load_si512(b + g * group_size + step * kWide);
    }
#pragma GCC unroll 8
    for (std::size_t t = 0; t < kGramRows; ++t) {
      const auto pair = reinterpret_cast<__m512bh>(broadcast(a + step * kWide + t));
#pragma GCC unroll 4
      for (std::size_t g = 0; g < G; ++g) {
        sum[t][g] = _mm512_dpbf16_ps(sum[t][g], pair, reinterpret_cast<__m512bh>(column[g]));
      }
    }
  }
#pragma GCC unroll 8
  for (std::size_t t = 0; t < kGramRows; ++t) {
#pragma GCC unroll 4
    for (std::size_t g = 0; g < G; ++g) {
      _mm512_store_ps(out + t * stride + (group + g) * kWide, sum[t][g]);
    }
  }
}

}  // namespace

void pair_up(float* packed, std::size_t groups, std::size_t dim) {
  for (std::size_t g = 0; g < groups; ++g) {
    float* at = packed + g * dim * kWide;
    // Safe in place: each write goes where floats have been read already.
    for (std::size_t c = 0; c < dim; c += 2) {
      const auto low = bf16_words(at + c * kWide);
      const auto high = c + 1 < dim ? bf16_words(at + (c + 1) * kWide) : _mm512_setzero_si512();
      _mm512_store_si512(at + c / 2 * kWide, _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
    }
    if (!gram_by_tiles(dim)) continue;
    const std::size_t lines = (dim + 1) / 2;
    std::fill(at + lines * kWide, at + up(lines, kWide) * kWide, 0.0f);
  }
}

void gram_tile(const float* packed, std::size_t dim, std::size_t row, std::size_t group,
               std::size_t count, float* out, std::size_t stride) {
  if (count == 3) return tile<3>(packed, dim, row, group, out, stride);
  if (count == 2) return tile<2>(packed, dim, row, group, out, stride);
  tile<1>(packed, dim, row, group, out, stride);
}

}  // namespace ballast::kernels::avx512
HWY_POP_ATTRIBUTES

#else

namespace ballast::kernels::avx512 {

void pair_up(float*, std::size_t, std::size_t) {}
void gram_tile(const float*, std::size_t, std::size_t, std::size_t, std::size_t, float*,
               std::size_t) {}

}  // namespace ballast::kernels::avx512

#endif
