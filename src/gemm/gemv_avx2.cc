// Products of a few activations with weights of quantized types as they lie, with AVX2.
//
// It multiplies bytes by bytes and adds up pairs of products in 16 bits, which saturate: numbers
// are below 256 and digits at most 64. The sums are multiplied by what the high digit is worth, or
// by the group's scale, into 32 bits.
#include "gemm/kernels.h"

#if defined(__x86_64__)

#include <bit>

// Everything from here on may only run where has_avx2() says so.
HWY_PUSH_ATTRIBUTES(BALLAST_AVX2_TARGET)
#include "gemm/avx2-inl.h"
#include "gemm/gemv-inl.h"

namespace ballast::gemm::avx2 {

/// The fifth bits of two blocks.
template <typename Type>
struct FifthOfBlocks {
  Bytes p;
  template <int h>
  BALLAST_INLINE Vectors<1> at() const {
    const Bytes first = p + Type::kFifth + 2 * h;
    const __m256i words =
        _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_set1_epi16(load<short>(first))),
                                _mm_set1_epi16(load<short>(first + Type::kBytes)), 1);
    const Vector eight_times =
        shuffle_8(words, all_16_bytes(_mm_set_epi64x(0x0101010101010101, 0)));
    const Vector bit = _mm256_set1_epi64x(static_cast<std::int64_t>(0x8040201008040201));
    return {{_mm256_cmpeq_epi8(and_bits(eight_times, bit), bit)}};
  }
};

BALLAST_INLINE Vector digits(const std::int8_t* p) { return load_32(reinterpret_cast<Bytes>(p)); }

/// Products of numbers from 0 to 255 with digits, in pairs.
BALLAST_INLINE Vector products(Vector numbers, const std::int8_t* x) {
  return _mm256_maddubs_epi16(numbers, digits(x));
}

/// The same of two vectors, in fours, times `worth`. Numbers below 64 are added up in 16 bits.
template <bool small>
BALLAST_INLINE Vector products(Vector first, Vector second, const std::int8_t* x_first,
                               const std::int8_t* x_second, int worth) {
  const Vector a = products(first, x_first), b = products(second, x_second);
  const Vector factor = _mm256_set1_epi16(static_cast<short>(worth));
  if constexpr (small) return _mm256_madd_epi16(_mm256_add_epi16(a, b), factor);
  return add_32(_mm256_madd_epi16(a, factor), _mm256_madd_epi16(b, factor));
}

/// t[c] = what the span at p adds to the dots of four rows with activation c, of a plain type.
template <typename Type, std::size_t M>
requires(Type::kPlain) BALLAST_INLINE
    void span_of(Type, const Bytes (&p)[kRows], const IntegerSpan* const (&x)[M], __m128 (&t)[M]) {
  unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA { t[c] = _mm_setzero_ps(); });
  // Two blocks at a time.
  unroll<4>([&](auto part) BALLAST_INLINE_LAMBDA {
    constexpr int kAt = 2 * part * Type::kBytes;
    // Where IntegerSpan has these: of four blocks, the former or the latter two.
    constexpr int kFour = part / 2 * 2, kTwo = part % 2 * 32;
    Vector sums[M][kRows];
    unroll<kRows>([&](auto r) BALLAST_INLINE_LAMBDA {
      const Bytes q = p[r] + kAt;
      Vectors<1> raw[kRaws<Type>];
      unroll<kRaws<Type>>([&](auto i) BALLAST_INLINE_LAMBDA {
        raw[i] = {{in_halves(q + Type::kRaw[i], q + Type::kRaw[i] + Type::kBytes)}};
      });
      const FifthOfBlocks<Type> fifth{q};
      const Vector first = Type::template numbers<0>(raw, fifth).v[0];
      const Vector second = Type::template numbers<1>(raw, fifth).v[0];
      unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA {
        constexpr bool kSmall = Type::kZero < 64;
        const auto &x_first = x[c]->blocks[kFour], &x_second = x[c]->blocks[kFour + 1];
        const Vector high = products<kSmall>(first, second, x_first.high + kTwo,
                                             x_second.high + kTwo, 1 << kLowDigit);
        const Vector low =
            products<kSmall>(first, second, x_first.low + kTwo, x_second.low + kTwo, 1);
        sums[c][r] = add_32(high, low);
      });
    });
    const __m128 scales = f16_of_four(kAt, p), next_scales = f16_of_four(kAt + Type::kBytes, p);
    unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA {
      // 128 bits for each block, in them a lane for each row.
      Vector of_blocks = add_four(sums[c]);
      if constexpr (Type::kZero != 0) {
        const std::int32_t* of_x = x[c]->sums + 2 * part;
        const Vector zero = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_set1_epi32(of_x[0])),
                                                    _mm_set1_epi32(of_x[1]), 1);
        constexpr int kBits = std::countr_zero(static_cast<unsigned>(Type::kZero));
        of_blocks = _mm256_sub_epi32(of_blocks, _mm256_slli_epi32(zero, kBits));
      }
      const __m256 numbers = to_floats(of_blocks);
      t[c] = _mm_fmadd_ps(_mm256_castps256_ps128(numbers), scales, t[c]);
      t[c] = _mm_fmadd_ps(_mm256_extractf128_ps(numbers, 1), next_scales, t[c]);
    });
  });
  add_offsets<Type>(p, x, t);
}

/// The integers of four rows of a K type, in groups of 16.
template <typename Type>
class RowScales {
 public:
  explicit BALLAST_INLINE RowScales(const Bytes (&p)[kRows]) {
    for (int r = 0; r < kRows; ++r) {
      const Integers integers = Type::scales(p[r]);
      store_32(scales_[r], _mm256_cvtepi8_epi16(integers.scales));
      if (Type::kOffset) store_32(offsets_[r], _mm256_cvtepu8_epi16(integers.offsets));
    }
  }

  /// Row r's, for each pair of a chunk's products.
  template <int chunk>
  BALLAST_INLINE Vector of_chunk(std::size_t r) const {
    const auto* half = reinterpret_cast<Bytes>(scales_[r] + chunk / 4 * 8);
    return shuffle_8(all_16_bytes(load_16(half)), load_32(kOrder.of_chunk[chunk]));
  }
  /// Σ sᵍXᵍ of row r, in parts: of eight groups in each 128 bits.
  BALLAST_INLINE Vector zeros(const IntegerSpan& x, std::size_t r) const {
    return times_sums(scales_[r], x);
  }
  /// Σ mᵍXᵍ of each row.
  BALLAST_INLINE __m128i offsets(const IntegerSpan& x) const {
    const Vector sums[kRows] = {times_sums(offsets_[0], x), times_sums(offsets_[1], x),
                                times_sums(offsets_[2], x), times_sums(offsets_[3], x)};
    return add_halves(add_four(sums));
  }

 private:
  /// Where the words of chunks' two groups are, in pshufb's terms.
  struct Order {
    alignas(32) std::uint8_t of_chunk[8][32];
    constexpr Order() : of_chunk() {
      for (int c = 0; c < 8; ++c) {
        for (int i = 0; i < 32; ++i) {
          of_chunk[c][i] = static_cast<std::uint8_t>(2 * ((2 * c + i / 16) % 8) + i % 2);
        }
      }
    }
  };
  static constexpr Order kOrder{};

  static BALLAST_INLINE Vector times_sums(const std::int16_t* words, const IntegerSpan& x) {
    const Vector w = load_32(reinterpret_cast<Bytes>(words));
    const Vector high = _mm256_madd_epi16(w, load_32(reinterpret_cast<Bytes>(x.high16)));
    const Vector low = _mm256_madd_epi16(w, load_32(reinterpret_cast<Bytes>(x.low16)));
    return add_32(_mm256_slli_epi32(high, 2), low);
  }

  alignas(32) std::int16_t scales_[kRows][16], offsets_[kRows][16];
};

/// The same of Q4_K and Q5_K, two rows at a time.
template <typename Type>
requires(Type::kGroup == 32) class RowScales<Type> {
 public:
  explicit BALLAST_INLINE RowScales(const Bytes (&p)[kRows]) {
    unroll<2>([&](auto k) BALLAST_INLINE_LAMBDA {
      two_[k] = six_bits(in_halves(p[2 * k], p[2 * k + 1]));
      store_32(integers_[2 * k], two_[k]);
    });
  }

  template <int chunk>
  BALLAST_INLINE Vector of_chunk(std::size_t r) const {
    constexpr int kZero = 0x80;
    return shuffle_8(all_16_bytes(load_16(integers_[r])),
                     _mm256_set1_epi16(static_cast<short>(kZero << 8 | chunk)));
  }
  BALLAST_INLINE __m128i offsets(const IntegerSpan& x) const {
    const Vector high = all_16_bytes(load_16(reinterpret_cast<Bytes>(x.high32)));
    const Vector low = all_16_bytes(load_16(reinterpret_cast<Bytes>(x.low32)));
    Vector sums[2];
    unroll<2>([&](auto k) BALLAST_INLINE_LAMBDA {
      const Vector m = _mm256_unpackhi_epi8(two_[k], _mm256_setzero_si256());
      sums[k] = add_32(_mm256_slli_epi32(_mm256_madd_epi16(m, high), 2), _mm256_madd_epi16(m, low));
    });
    // Rows 0 and 2 in the lower half, 1 and 3 in the upper one.
    const Vector pairs = _mm256_hadd_epi32(sums[0], sums[1]);
    const Vector both = _mm256_hadd_epi32(pairs, pairs);
    return _mm_unpacklo_epi32(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1));
  }

 private:
  Vector two_[2];
  alignas(32) std::uint8_t integers_[kRows][16];
};

/// sums[c] = what a row's span of a K type makes with activation c, in parts: of two folds 128 bits
/// each.
template <typename Type, std::size_t M>
BALLAST_INLINE void sums_of_row(Bytes p, const RowScales<Type>& scales, std::size_t r,
                                const IntegerSpan* const (&x)[M], Vector (&sums)[M]) {
  Vector high[M], low[M], first[M];
  unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA { high[c] = low[c] = zeros(); });
  unroll<2>([&](auto half) BALLAST_INLINE_LAMBDA {
    Vectors<1> raw[kRaws<Type>];
    unroll<kRaws<Type>>(
        [&](auto i) BALLAST_INLINE_LAMBDA { raw[i] = {{load_32(p + Type::kRaw[i][half])}}; });
    unroll<4>([&](auto j) BALLAST_INLINE_LAMBDA {
      constexpr int kChunk = chunk<Type>(j) + Type::kDistance * half;
      const Vector numbers = Type::template numbers<j>(RawHalf<Type, half, 1>{raw}).v[0];
      const Vector scale = scales.template of_chunk<kChunk>(r);
      unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA {
        const auto& of_x = x[c]->chunks[kChunk % 4];
        constexpr int kAt = kChunk / 4 * 32;
        const Vector highs = products(numbers, of_x.high + kAt);
        const Vector lows = products(numbers, of_x.low + kAt);
        high[c] = add_32(high[c], _mm256_madd_epi16(highs, scale));
        low[c] = add_32(low[c], _mm256_madd_epi16(lows, scale));
      });
    });
    if constexpr (half == 0 && Type::kFolds == 2) {
      unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA {
        first[c] = add_32(_mm256_slli_epi32(high[c], kLowDigit), low[c]);
        high[c] = low[c] = zeros();
      });
    }
  });
  unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA {
    sums[c] = add_32(_mm256_slli_epi32(high[c], kLowDigit), low[c]);
    if constexpr (Type::kFolds == 2) {
      sums[c] = add_32(_mm256_permute2x128_si256(first[c], sums[c], 0x20),
                       _mm256_permute2x128_si256(first[c], sums[c], 0x31));
    }
    if constexpr (Type::kZero != 0) {
      constexpr int kBits = std::countr_zero(static_cast<unsigned>(Type::kZero));
      sums[c] = _mm256_sub_epi32(sums[c], _mm256_slli_epi32(scales.zeros(*x[c], r), kBits));
    }
  });
}

/// t[c] = what the span at p adds to the dots of four rows with activation c, of a K type.
template <typename Type, std::size_t M>
requires(!Type::kPlain) BALLAST_INLINE
    void span_of(Type, const Bytes (&p)[kRows], const IntegerSpan* const (&x)[M], __m128 (&t)[M]) {
  const RowScales<Type> row_scales(p);
  Vector rows[M][kRows];
  for (std::size_t r = 0; r < kRows; ++r) {
    // GCC would copy all activations to the stack first, to read them there.
    const IntegerSpan* activations[M];
    unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA {
      activations[c] = x[c];
      asm("" : "+r"(activations[c]));
    });
    Vector sums[M];
    sums_of_row<Type>(p[r], row_scales, r, activations, sums);
    unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA { rows[c][r] = sums[c]; });
  }
  const __m128 scales = f16_of_four(Type::kScale, p);
  unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA {
    const Vector folds = add_four(rows[c]);
    if constexpr (Type::kFolds == 1) {
      t[c] = _mm_mul_ps(_mm_cvtepi32_ps(add_halves(folds)), scales);
    } else {
      const __m256 numbers = to_floats(folds);
      t[c] = _mm_mul_ps(_mm256_castps256_ps128(numbers), scales);
      t[c] = _mm_fmadd_ps(_mm256_extractf128_ps(numbers, 1), scales, t[c]);
    }
    if constexpr (Type::kOffset) {
      const __m128 offsets = _mm_cvtepi32_ps(row_scales.offsets(*x[c]));
      t[c] = _mm_fnmadd_ps(offsets, f16_of_four(Type::kScale + 2, p), t[c]);
    }
  });
}

void integer_dots(TensorType type, const std::byte* rows, std::size_t row_bytes, std::size_t count,
                  std::size_t n, const IntegerSpan* x, std::size_t columns, float* out,
                  std::size_t out_stride) {
  with_type(type, [&](auto t) {
    all_dots<decltype(t)>(rows, row_bytes, count, n, x, columns, out, out_stride);
  });
}

}  // namespace ballast::gemm::avx2
HWY_POP_ATTRIBUTES

#endif
