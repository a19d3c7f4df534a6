// Weights of 16-bit floating point as integers (integer_dots.h says which). Included after the
// vectors of a set of instructions, inside a region of its target.
#pragma once

#include "gemm/quant_types-inl.h"

namespace ballast::gemm::BALLAST_VECTORS {

/// `kMantissa`: bits behind the point; `kBias`, of the exponent; floats() widens kLanes numbers.
/// All folds of a span, 64 numbers each, have its scale.
struct FloatType {
  static constexpr bool kPlain = false, kFloat = true, kOffset = false;
  static constexpr std::size_t kNumbers = 1;
  static constexpr int kBytes = 2, kFolds = 4;
};
struct TypeF16 : FloatType {
  static constexpr int kMantissa = 10, kBias = 15;
  static BALLAST_INLINE Floats floats(Bytes p) { return f16_at(p); }
};
struct TypeBf16 : FloatType {
  static constexpr int kMantissa = 7, kBias = 127;
  static BALLAST_INLINE Floats floats(Bytes p) { return bf16_at(p); }
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
  const __m128 wrong = _mm_castsi128_ps(_mm_cmpeq_epi32(exponent, _mm_set1_epi32(kNone)));
  const __m128 scales = _mm_castsi128_ps(_mm_slli_epi32(down, 23));
  return {_mm_castsi128_ps(_mm_slli_epi32(up, 23)),
          _mm_blendv_ps(scales, _mm_set1_ps(__builtin_nanf("")), wrong)};
}

/// The same, from the rows.
template <typename Type>
BALLAST_INLINE FloatScales float_scales(const Bytes (&p)[4]) {
  constexpr std::size_t kBytes = sizeof(Vector), kVectors = 2 * kSpan / kBytes;
  Vector most[4];
  unroll<4>([&](auto r) BALLAST_INLINE_LAMBDA {
    Vector v[4];
    unroll<4>([&](auto b) BALLAST_INLINE_LAMBDA { v[b] = magnitudes_at(p[r] + kBytes * b); });
    unroll<kVectors - 4>([&](auto b) BALLAST_INLINE_LAMBDA {
      v[b % 4] = most_16(v[b % 4], magnitudes_at(p[r] + kBytes * (4 + b)));
    });
    most[r] = most_16(most_16(v[0], v[1]), most_16(v[2], v[3]));
  });
  const Vector a = most_16(low_32(most[0], most[1]), high_32(most[0], most[1]));
  const Vector b = most_16(low_32(most[2], most[3]), high_32(most[2], most[3]));
  return float_scales<Type>(most_of_quarters(most_16(low_64(a, b), high_64(a, b))));
}

/// kLanes numbers as integers, each in the lower word of its lane. In the upper words is something
/// else.
template <typename Type>
BALLAST_INLINE Vector float_words(Bytes p, Floats factor) {
  // The last bit of such a float is worth one.
  return bits_of(multiply_add(Type::floats(p), factor, all_floats(0x1.8p23f)));
}

/// Sixteen numbers as integers, as WordSpan has those of activations.
template <typename Type>
BALLAST_INLINE Vector sixteen_words(Bytes p, Floats factor) {
  const Vector words = float_words<Type>(p, factor);
  if constexpr (kLanes == 16) return words;
  if constexpr (kLanes == 8) return beside(words, float_words<Type>(p + 16, factor));
}

/// Calls `action` with the type, one of these.
template <typename Action>
auto with_float_type(TensorType type, Action&& action) {
  return type == TensorType::f16 ? action(TypeF16()) : action(TypeBf16());
}
/// The same for all types.
template <typename Action>
auto with_any_type(TensorType type, Action&& action) {
  return is_quantized(type) ? with_type(type, action) : with_float_type(type, action);
}

}  // namespace ballast::gemm::BALLAST_VECTORS
