// How bf16 values are interleaved (av_avx512.cc). Included within their target's attributes.
#pragma once

#include "attention/kernels/av_avx512-inl.h"

HWY_PUSH_ATTRIBUTES(BALLAST_AVX512_BF16_TARGET)
namespace ballast::kernels::avx512 {
namespace {

// The values of a block, two entries interleaved: a vector holds 16 columns of both.
class Pairs : public Steps<2> {
 public:
  explicit Pairs(const RowsView& values)
      : Steps(values), rest_(static_cast<__mmask16>((1u << (values.dim % kWide)) - 1)) {}

  std::size_t columns() const { return up(dim(), kWide) / kWide; }  // vectors
  std::size_t whole_columns() const { return dim() / kWide; }
  // Loads a column of two rows; all 16 elements exist unless kMaybeRest.
  template <bool kMaybeRest>
  BALLAST_INLINE __m512i load(const RowSet& rows, std::size_t column) const {
    const std::byte* at = opaque(rows.data) + column * 2 * kWide;
    const bool rest = kMaybeRest && (column + 1) * kWide > dim();
    const auto row = [&](const std::byte* data) BALLAST_INLINE_LAMBDA {
      if (rest) return _mm256_maskz_loadu_epi16(rest_, data);
      return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(data));
    };
    return _mm512_inserti64x4(_mm512_castsi256_si512(row(at)), row(at + rows.stride), 1);
  }
  // Interleaves the two loaded rows.
  BALLAST_INLINE static __m512i interleave(__m512i rows) {
    const auto word = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    const auto order = _mm512_add_epi16(_mm512_mullo_epi32(word, _mm512_set1_epi32(0x00010001)),
                                        _mm512_set1_epi32(0x00100000));
    return _mm512_permutexvar_epi16(order, rows);
  }

 private:
  __mmask16 rest_;
};

}  // namespace
}  // namespace ballast::kernels::avx512
HWY_POP_ATTRIBUTES
