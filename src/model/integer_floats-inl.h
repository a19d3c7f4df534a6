// Weights of 16-bit floating point as integers (integer_dots.h says which). Included inside regions
// of BALLAST_AVX512_TARGET.
#pragma once

#include "model/integer_avx512-inl.h"
#include "model/integer_types-inl.h"

namespace ballast::integers::avx512 {

/// `kMantissa`: bits behind the point; `kBias`, of the exponent; floats() widens sixteen numbers.
/// All folds of a span, 64 numbers each, have its scale.
struct FloatType {
  static constexpr bool kPlain = false, kFloat = true, kOffset = false;
  static constexpr std::size_t kNumbers = 1;
  static constexpr int kBytes = 2, kFolds = 4;
};
struct TypeF16 : FloatType {
  static constexpr int kMantissa = 10, kBias = 15;
  static BALLAST_INLINE __m512 floats(__m256i v) { return _mm512_cvtph_ps(v); }
};
struct TypeBf16 : FloatType {
  static constexpr int kMantissa = 7, kBias = 127;
  static BALLAST_INLINE __m512 floats(__m256i v) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(v), 16));
  }
};

/// Of the spans of four rows: what makes numbers integers, and what an integer is worth. NaN in a
/// span with an infinity or a NaN.
struct FloatScales {
  __m128 factors, scales;
};

/// words: of each row the magnitude of the span's largest number, the larger of two words.
template <typename Type>
BALLAST_INLINE FloatScales float_scales(__m128i words) {
  const __m128i largest =
      _mm_max_epu16(_mm_and_si128(words, _mm_set1_epi32(0xffff)), _mm_srli_epi32(words, 16));
  // Numbers without a leading one have the least exponent, too. What a factor would overflow for
  // counts as zero.
  constexpr int kLeast = Type::kBias == 127 ? 28 : 1, kNone = 2 * Type::kBias + 1;
  const __m128i exponent = _mm_srli_epi32(largest, Type::kMantissa);
  const __m128i e = _mm_max_epi32(exponent, _mm_set1_epi32(kLeast));
  const __m128i up = _mm_sub_epi32(_mm_set1_epi32(127 + 12 + Type::kBias), e);
  const __m128i down = _mm_sub_epi32(_mm_set1_epi32(2 * 127), up);
  const __mmask8 wrong = _mm_cmpeq_epi32_mask(exponent, _mm_set1_epi32(kNone));
  const __m128 nan = _mm_set1_ps(__builtin_nanf(""));
  return {_mm_castsi128_ps(_mm_slli_epi32(up, 23)),
          _mm_mask_mov_ps(_mm_castsi128_ps(_mm_slli_epi32(down, 23)), wrong, nan)};
}

/// The same, from the rows.
template <typename Type>
BALLAST_INLINE FloatScales float_scales(const Bytes (&p)[4]) {
  __m512i most[4];
  times<4>([&](auto r) BALLAST_HERE {
    const __m512i magnitude = _mm512_set1_epi16(0x7fff);
    __m512i v[8];
    times<8>([&](auto b) BALLAST_HERE {
      v[b] = _mm512_and_si512(_mm512_loadu_si512(p[r] + 64 * b), magnitude);
    });
    times<4>([&](auto b) BALLAST_HERE { v[b] = _mm512_max_epu16(v[b], v[b + 4]); });
    most[r] = _mm512_max_epu16(_mm512_max_epu16(v[0], v[1]), _mm512_max_epu16(v[2], v[3]));
  });
  const __m512i a = _mm512_max_epu16(_mm512_unpacklo_epi32(most[0], most[1]),
                                     _mm512_unpackhi_epi32(most[0], most[1]));
  const __m512i b = _mm512_max_epu16(_mm512_unpacklo_epi32(most[2], most[3]),
                                     _mm512_unpackhi_epi32(most[2], most[3]));
  const __m512i all = _mm512_max_epu16(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
  const __m256i half =
      _mm256_max_epu16(_mm512_castsi512_si256(all), _mm512_extracti64x4_epi64(all, 1));
  return float_scales<Type>(
      _mm_max_epu16(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1)));
}

/// Sixteen numbers as integers, each in the lower word of its lane. In the upper words is something
/// else.
template <typename Type>
BALLAST_INLINE __m512i float_words(Bytes p, __m512 factor) {
  // The last bit of such a float is worth one.
  const __m512 ones = _mm512_set1_ps(0x1.8p23f);
  return _mm512_castps_si512(_mm512_fmadd_ps(Type::floats(load_32(p)), factor, ones));
}

/// Calls `action` with the type, one of these.
template <typename Action>
auto with_float_type(TensorType type, Action&& action) {
  return type == TensorType::f16 ? action(TypeF16()) : action(TypeBf16());
}
/// The same for all types.
template <typename Action>
auto with_any_type(TensorType type, Action&& action) {
  return is_quantised(type) ? with_type(type, action) : with_float_type(type, action);
}

}  // namespace ballast::integers::avx512
