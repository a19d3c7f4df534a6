// Conversion of F16 and BF16 weights to int16. Included after avx2-inl.h or avx512-inl.h, inside a
// region of that target.
#pragma once

#include "gemm/quant_types-inl.h"

namespace ballast::gemm::BALLAST_ISA {

/// kMantissa: bits of the fraction. kBias: of the exponent. load() widens kLanes elements. All four
/// folds of a super-block have the same scale.
struct FloatType {
  static constexpr bool kIsBlock32 = false, kIsFloat = true, kHasMin = false;
  static constexpr std::size_t kElements = 1;
  static constexpr int kBytes = 2, kFolds = 4;
};
struct TypeF16 : FloatType {
  static constexpr int kMantissa = 10, kBias = 15;
  static BALLAST_INLINE Floats load(Bytes p) { return load_f16(p); }
};
struct TypeBf16 : FloatType {
  static constexpr int kMantissa = 7, kBias = 127;
  static BALLAST_INLINE Floats load(Bytes p) { return load_bf16(p); }
};

/// Of a super-block of four rows: the factors that make elements integers, and what an integer is
/// worth. Both are powers of two; a super-block with an infinity or NaN has scale NaN.
struct FloatScales {
  __m128 factors, scales;
};

/// `magnitudes`: of each row two uint16, the larger of which is the largest magnitude.
template <typename Type>
BALLAST_INLINE FloatScales float_scales(__m128i magnitudes) {
  const __m128i largest = _mm_max_epu16(_mm_and_si128(magnitudes, _mm_set1_epi32(0xffff)),
                                        _mm_srli_epi32(magnitudes, 16));
  // Subnormal F16 have the least exponent, too. BF16 whose factor would overflow count as zero.
  constexpr int kLeast = Type::kBias == 127 ? 28 : 1, kNotFinite = 2 * Type::kBias + 1;
  const __m128i exponent = _mm_srli_epi32(largest, Type::kMantissa);
  const __m128i e = _mm_max_epi32(exponent, _mm_set1_epi32(kLeast));
  const __m128i up = _mm_sub_epi32(_mm_set1_epi32(127 + 12 + Type::kBias), e);
  const __m128i down = _mm_sub_epi32(_mm_set1_epi32(2 * 127), up);
  const __m128 not_finite = _mm_castsi128_ps(_mm_cmpeq_epi32(exponent, _mm_set1_epi32(kNotFinite)));
  const __m128 scales = _mm_castsi128_ps(_mm_slli_epi32(down, 23));
  return {_mm_castsi128_ps(_mm_slli_epi32(up, 23)),
          _mm_blendv_ps(scales, _mm_set1_ps(__builtin_nanf("")), not_finite)};
}

/// The same for the super-blocks at p.
template <typename Type>
BALLAST_INLINE FloatScales float_scales(const Bytes (&p)[4]) {
  constexpr std::size_t kBytes = sizeof(Vector), kVectors = 2 * kSuperblock / kBytes;
  Vector most[4];
  unroll<4>([&](auto r) BALLAST_INLINE_LAMBDA {
    Vector v[4];
    unroll<4>([&](auto b) BALLAST_INLINE_LAMBDA { v[b] = load_magnitudes(p[r] + kBytes * b); });
    unroll<kVectors - 4>([&](auto b) BALLAST_INLINE_LAMBDA {
      v[b % 4] = max_u16(v[b % 4], load_magnitudes(p[r] + kBytes * (4 + b)));
    });
    most[r] = max_u16(max_u16(v[0], v[1]), max_u16(v[2], v[3]));
  });
  const Vector a = max_u16(unpack_low_32(most[0], most[1]), unpack_high_32(most[0], most[1]));
  const Vector b = max_u16(unpack_low_32(most[2], most[3]), unpack_high_32(most[2], most[3]));
  return float_scales<Type>(max_of_quarters(max_u16(unpack_low_64(a, b), unpack_high_64(a, b))));
}

/// Converts kLanes elements, each to the low int16 of its lane. The high int16 are garbage.
template <typename Type>
BALLAST_INLINE Vector to_i16(Bytes p, Floats factor) {
  // Adding 1.5 · 2²³ rounds to an integer and leaves it in the low bits.
  return bitcast(mul_add(Type::load(p), factor, broadcast_f32(0x1.8p23f)));
}

/// Converts 16 elements, laid out as QuantizedActivationsI16 has those of activations.
template <typename Type>
BALLAST_INLINE Vector load_16_as_i16(Bytes p, Floats factor) {
  const Vector first = to_i16<Type>(p, factor);
  if constexpr (kLanes == 16) return first;
  if constexpr (kLanes == 8) return merge_low_16(first, to_i16<Type>(p + 16, factor));
}

/// Calls `action` with the struct of F16 or BF16.
template <typename Action>
auto with_float_type(TensorType type, Action&& action) {
  return type == TensorType::f16 ? action(TypeF16()) : action(TypeBf16());
}
/// The same for every type of the integer paths.
template <typename Action>
auto with_any_type(TensorType type, Action&& action) {
  return is_quantized(type) ? with_type(type, action) : with_float_type(type, action);
}

}  // namespace ballast::gemm::BALLAST_ISA
