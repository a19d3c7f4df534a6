// Integer GEMV of quantized weights with AVX2.
//
// vpmaddubsw multiplies uint8 codes by int8 activations and adds pairs in int16 with saturation.
// Codes below 256 times activation parts of at most 64 never saturate: that is why activations are
// split into HiLo. vpmaddwd then widens to int32 and multiplies by 64 or by the group's scale.
#include "gemm/kernels.h"

#if defined(__x86_64__)

#include <bit>

// Code from here on needs has_avx2().
HWY_PUSH_ATTRIBUTES(BALLAST_AVX2_TARGET)
#include "gemm/avx2-inl.h"
#include "gemm/gemv-inl.h"

namespace ballast::gemm::avx2 {

/// The fifth bits of two neighbouring blocks.
template <typename Type>
struct FifthBitsOfBlocks {
  Bytes p;
  template <int h>
  BALLAST_INLINE Vectors<1> at() const {
    const Bytes first = p + Type::kFifthBits + 2 * h;
    const __m256i bits =
        _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_set1_epi16(load<short>(first))),
                                _mm_set1_epi16(load<short>(first + Type::kBytes)), 1);
    const Vector repeated = shuffle_8(bits, broadcast_128(_mm_set_epi64x(0x0101010101010101, 0)));
    const Vector bit = _mm256_set1_epi64x(static_cast<std::int64_t>(0x8040201008040201));
    return {{_mm256_cmpeq_epi8(and_bits(repeated, bit), bit)}};
  }
};

BALLAST_INLINE Vector load_i8(const std::int8_t* p) { return load_256(p); }

/// Dot products of pairs, uint8 codes times int8 activations, as int16.
BALLAST_INLINE Vector mul_u8i8(Vector codes, const std::int8_t* x) {
  return _mm256_maddubs_epi16(codes, load_i8(x));
}

/// Dot products of fours times `factor`, as int32, summed over two vectors. Codes below 64 are
/// summed in int16 first.
template <bool kSmall>
BALLAST_INLINE Vector mul_u8i8(Vector first, Vector second, const std::int8_t* x_first,
                               const std::int8_t* x_second, int factor) {
  const Vector a = mul_u8i8(first, x_first), b = mul_u8i8(second, x_second);
  const Vector factors = _mm256_set1_epi16(static_cast<short>(factor));
  if constexpr (kSmall) return _mm256_madd_epi16(_mm256_add_epi16(a, b), factors);
  return add_32(_mm256_madd_epi16(a, factors), _mm256_madd_epi16(b, factors));
}

/// t[c] = the part of the first blocks of the super-block at p in <row, activation c>, a row an
/// element. Block32 types.
template <int kBlocks, typename Type, std::size_t M>
BALLAST_INLINE void block_dots(Type, const Bytes (&p)[kTileN],
                               const QuantizedActivations* const (&x)[M], __m128 (&t)[M]) {
  unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA { t[c] = _mm_setzero_ps(); });
  // Two blocks at a time, one in each 128-bit lane.
  unroll<kBlocks / 2>([&](auto part) BALLAST_INLINE_LAMBDA {
    constexpr int kAt = 2 * part * Type::kBytes;
    // Of `half_blocks`: which four blocks, and where in these two start.
    constexpr int kFour = part / 2 * 2, kTwo = part % 2 * 32;
    Vector sums[M][kTileN];
    unroll<kTileN>([&](auto r) BALLAST_INLINE_LAMBDA {
      const Bytes block = p[r] + kAt;
      Vectors<1> raw[kCodeLoads<Type>];
      unroll<kCodeLoads<Type>>([&](auto i) BALLAST_INLINE_LAMBDA {
        const Bytes piece = block + Type::kCodes[i];
        raw[i] = {{load_2x128(piece, piece + Type::kBytes)}};
      });
      const FifthBitsOfBlocks<Type> fifth{block};
      const Vector first = Type::template codes<0>(raw, fifth).v[0];
      const Vector second = Type::template codes<1>(raw, fifth).v[0];
      unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA {
        constexpr bool kSmall = Type::kZeroPoint < 64;
        const auto &x_first = x[c]->half_blocks[kFour], &x_second = x[c]->half_blocks[kFour + 1];
        const Vector high = mul_u8i8<kSmall>(first, second, x_first.high + kTwo,
                                             x_second.high + kTwo, 1 << kLowBits);
        const Vector low =
            mul_u8i8<kSmall>(first, second, x_first.low + kTwo, x_second.low + kTwo, 1);
        sums[c][r] = add_32(high, low);
      });
    });
    const __m128 scales = load_f16_of_rows(kAt + Type::kScale, p);
    const __m128 next_scales = load_f16_of_rows(kAt + Type::kBytes + Type::kScale, p);
    unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA {
      // One block in each 128-bit lane, in it an element for each row.
      Vector dots = hadd_4(sums[c]);
      if constexpr (Type::kZeroPoint != 0) {
        const std::int32_t* x_sums = x[c]->sums32 + 2 * part;
        const Vector both = _mm256_inserti128_si256(
            _mm256_castsi128_si256(_mm_set1_epi32(x_sums[0])), _mm_set1_epi32(x_sums[1]), 1);
        constexpr int kBits = std::countr_zero(static_cast<unsigned>(Type::kZeroPoint));
        dots = _mm256_sub_epi32(dots, _mm256_slli_epi32(both, kBits));
      }
      const __m256 folds = to_f32(dots);
      t[c] = _mm_fmadd_ps(_mm256_castps256_ps128(folds), scales, t[c]);
      t[c] = _mm_fmadd_ps(_mm256_extractf128_ps(folds, 1), next_scales, t[c]);
    });
  });
  add_mins<Type, kBlocks>(p, x, t);
}

template <typename Type, std::size_t M>
requires(Type::kIsBlock32) BALLAST_INLINE
    void superblock_dots(Type type, const Bytes (&p)[kTileN],
                         const QuantizedActivations* const (&x)[M], __m128 (&t)[M]) {
  block_dots<8>(type, p, x, t);
}

/// Group scales and minima of four rows of a K type with groups of 16.
template <typename Type>
class RowScales {
 public:
  explicit BALLAST_INLINE RowScales(const Bytes (&p)[kTileN]) {
    for (int r = 0; r < kTileN; ++r) {
      const GroupScales groups = Type::group_scales(p[r]);
      store_256(scales_[r], _mm256_cvtepi8_epi16(groups.scales));
      if (Type::kHasMin) store_256(mins_[r], _mm256_cvtepu8_epi16(groups.mins));
    }
  }

  /// The scales of row r that multiply a chunk's pairs, as int16.
  template <int chunk>
  BALLAST_INLINE Vector for_chunk(std::size_t r) const {
    const auto* half = reinterpret_cast<Bytes>(scales_[r] + chunk / 4 * 8);
    return shuffle_8(broadcast_128(load_128(half)), load_256(kOrder.for_chunk[chunk]));
  }
  /// Σ sᵍXᵍ of row r in partial sums: eight groups in each 128-bit lane.
  BALLAST_INLINE Vector scaled_sums(const QuantizedActivations& x, std::size_t r) const {
    return dot_sums(scales_[r], x);
  }
  /// Σ mᵍXᵍ, an element for each row.
  BALLAST_INLINE __m128i min_sums(const QuantizedActivations& x) const {
    const Vector sums[kTileN] = {dot_sums(mins_[0], x), dot_sums(mins_[1], x),
                                 dot_sums(mins_[2], x), dot_sums(mins_[3], x)};
    return add_halves(hadd_4(sums));
  }

 private:
  /// Byte indices for pshufb that repeat the int16 scales of a chunk's two groups.
  struct Order {
    alignas(32) std::uint8_t for_chunk[8][32];
    constexpr Order() : for_chunk() {
      for (int c = 0; c < 8; ++c) {
        for (int i = 0; i < 32; ++i) {
          for_chunk[c][i] = static_cast<std::uint8_t>(2 * ((2 * c + i / 16) % 8) + i % 2);
        }
      }
    }
  };
  static constexpr Order kOrder{};

  static BALLAST_INLINE Vector dot_sums(const std::int16_t* of_groups,
                                        const QuantizedActivations& x) {
    const Vector w = load_256(of_groups);
    const Vector high = _mm256_madd_epi16(w, load_256(x.sums16_high));
    const Vector low = _mm256_madd_epi16(w, load_256(x.sums16_low));
    return add_32(_mm256_slli_epi32(high, 2), low);
  }

  alignas(32) std::int16_t scales_[kTileN][16], mins_[kTileN][16];
};

/// The same for Q4_K and Q5_K, two rows in a vector.
template <typename Type>
requires(Type::kGroup == 32) class RowScales<Type> {
 public:
  explicit BALLAST_INLINE RowScales(const Bytes (&p)[kTileN]) {
    unroll<2>([&](auto i) BALLAST_INLINE_LAMBDA {
      two_[i] = unpack_6bit(load_2x128(p[2 * i], p[2 * i + 1]));
      store_256(groups_[2 * i], two_[i]);
    });
  }

  template <int chunk>
  BALLAST_INLINE Vector for_chunk(std::size_t r) const {
    constexpr int kZero = 0x80;  // pshufb clears the byte
    return shuffle_8(broadcast_128(load_128(groups_[r])),
                     _mm256_set1_epi16(static_cast<short>(kZero << 8 | chunk)));
  }
  BALLAST_INLINE __m128i min_sums(const QuantizedActivations& x) const {
    const Vector high = broadcast_128(load_128(x.sums32_high));
    const Vector low = broadcast_128(load_128(x.sums32_low));
    Vector sums[2];
    unroll<2>([&](auto i) BALLAST_INLINE_LAMBDA {
      const Vector mins = _mm256_unpackhi_epi8(two_[i], _mm256_setzero_si256());
      sums[i] =
          add_32(_mm256_slli_epi32(_mm256_madd_epi16(mins, high), 2), _mm256_madd_epi16(mins, low));
    });
    // Rows 0 and 2 end in the low 128-bit lane, rows 1 and 3 in the high one.
    const Vector pairs = _mm256_hadd_epi32(sums[0], sums[1]);
    const Vector both = _mm256_hadd_epi32(pairs, pairs);
    return _mm_unpacklo_epi32(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1));
  }

 private:
  Vector two_[2];
  alignas(32) std::uint8_t groups_[kTileN][16];
};

/// sums[c] = partial sums of a row's super-block with activation c; of types with two folds, one in
/// each 128-bit lane. K types.
template <typename Type, std::size_t M>
BALLAST_INLINE void row_dots(Bytes p, const RowScales<Type>& scales, std::size_t r,
                             const QuantizedActivations* const (&x)[M], Vector (&sums)[M]) {
  Vector high[M], low[M], first[M];
  unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA { high[c] = low[c] = zero_vector(); });
  unroll<2>([&](auto half) BALLAST_INLINE_LAMBDA {
    Vectors<1> raw[kCodeLoads<Type>];
    unroll<kCodeLoads<Type>>(
        [&](auto i) BALLAST_INLINE_LAMBDA { raw[i] = {{load_256(p + Type::kCodes[i][half])}}; });
    unroll<4>([&](auto j) BALLAST_INLINE_LAMBDA {
      constexpr int kChunk = chunk<Type>(j) + Type::kPartner * half;
      const Vector codes = Type::template codes<j>(HalfCodes<Type, half, 1>{raw}).v[0];
      const Vector scale = scales.template for_chunk<kChunk>(r);
      unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA {
        const auto& x_parts = x[c]->chunks[kChunk % 4];
        constexpr int kAt = kChunk / 4 * 32;
        const Vector highs = mul_u8i8(codes, x_parts.high + kAt);
        const Vector lows = mul_u8i8(codes, x_parts.low + kAt);
        high[c] = add_32(high[c], _mm256_madd_epi16(highs, scale));
        low[c] = add_32(low[c], _mm256_madd_epi16(lows, scale));
      });
    });
    if constexpr (half == 0 && Type::kFolds == 2) {
      unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA {
        first[c] = add_32(_mm256_slli_epi32(high[c], kLowBits), low[c]);
        high[c] = low[c] = zero_vector();
      });
    }
  });
  unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA {
    sums[c] = add_32(_mm256_slli_epi32(high[c], kLowBits), low[c]);
    if constexpr (Type::kFolds == 2) {
      sums[c] = add_32(_mm256_permute2x128_si256(first[c], sums[c], 0x20),
                       _mm256_permute2x128_si256(first[c], sums[c], 0x31));
    }
    if constexpr (Type::kZeroPoint != 0) {
      constexpr int kBits = std::countr_zero(static_cast<unsigned>(Type::kZeroPoint));
      sums[c] = _mm256_sub_epi32(sums[c], _mm256_slli_epi32(scales.scaled_sums(*x[c], r), kBits));
    }
  });
}

/// t[c] = the part of the super-block at p in <row, activation c>, a row an element. K types.
template <typename Type, std::size_t M>
requires(!Type::kIsBlock32) BALLAST_INLINE
    void superblock_dots(Type, const Bytes (&p)[kTileN], const QuantizedActivations* const (&x)[M],
                         __m128 (&t)[M]) {
  const RowScales<Type> row_scales(p);
  Vector rows[M][kTileN];
  for (std::size_t r = 0; r < kTileN; ++r) {
    // Hides the pointers from GCC, which else copies all activations to the stack and reads them
    // there.
    const QuantizedActivations* activations[M];
    unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA {
      activations[c] = x[c];
      asm("" : "+r"(activations[c]));
    });
    Vector sums[M];
    row_dots<Type>(p[r], row_scales, r, activations, sums);
    unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA { rows[c][r] = sums[c]; });
  }
  const __m128 scales = load_f16_of_rows(Type::kScale, p);
  unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA {
    const Vector folds = hadd_4(rows[c]);
    if constexpr (Type::kFolds == 1) {
      t[c] = _mm_mul_ps(_mm_cvtepi32_ps(add_halves(folds)), scales);
    } else {
      const __m256 both = to_f32(folds);
      t[c] = _mm_mul_ps(_mm256_castps256_ps128(both), scales);
      t[c] = _mm_fmadd_ps(_mm256_extractf128_ps(both, 1), scales, t[c]);
    }
    if constexpr (Type::kHasMin) {
      const __m128 mins = _mm_cvtepi32_ps(row_scales.min_sums(*x[c]));
      t[c] = _mm_fnmadd_ps(mins, load_f16_of_rows(Type::kMin, p), t[c]);
    }
  });
}

void gemv(TensorType type, const std::byte* w, std::size_t row_bytes, std::size_t n, std::size_t k,
          const QuantizedActivations* x, std::size_t m, float* out, std::size_t out_stride) {
  with_type(type,
            [&](auto t) { gemv_of_type<decltype(t)>(w, row_bytes, n, k, x, m, out, out_stride); });
}

}  // namespace ballast::gemm::avx2
HWY_POP_ATTRIBUTES

#endif
