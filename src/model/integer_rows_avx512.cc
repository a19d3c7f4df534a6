// Products of a few activations with weights of quantised types as they lie, with AVX-512.
#include "model/integer_kernels.h"

#if defined(__x86_64__)

// Everything from here on may only run where has_avx512_vnni() says so.
HWY_PUSH_ATTRIBUTES(BALLAST_AVX512_TARGET)
#include "model/integer_avx512-inl.h"
#include "model/integer_rows-inl.h"

namespace ballast::integers::avx512 {

/// The fifth bits of four blocks.
template <typename Type>
struct FifthOfBlocks {
  Bytes p;
  template <int h>
  BALLAST_INLINE Vectors<1> at() const {
    std::uint64_t bits = 0;
    for (int b = 0; b < 4; ++b) {
      const Bytes first = p + b * Type::kBytes + Type::kFifth + 2 * h;
      bits |= std::uint64_t{load<std::uint16_t>(first)} << (16 * b);
    }
    return {{_mm512_maskz_set1_epi8(bits, 16)}};
  }
};

/// t[c] = what the span at p adds to the dots of four rows with activation c, of a plain type.
template <typename Type, std::size_t M>
requires(Type::kPlain) BALLAST_INLINE
    void span_of(Type, const Bytes (&p)[kRows], const IntegerSpan* const (&x)[M], __m128 (&t)[M]) {
  times<M>([&](auto c) BALLAST_HERE { t[c] = _mm_setzero_ps(); });
  times<2>([&](auto part) BALLAST_HERE {
    constexpr int kFirst = 4 * part;
    __m512i first[kRows], second[kRows];
    times<kRows>([&](auto r) BALLAST_HERE {
      const Bytes q = p[r] + kFirst * Type::kBytes;
      Vectors<1> raw[kRaws<Type>];
      times<kRaws<Type>>([&](auto i) BALLAST_HERE {
        const Bytes at = q + Type::kRaw[i];
        constexpr int kNext = Type::kBytes;
        raw[i] = {{in_quarters(at, at + kNext, at + 2 * kNext, at + 3 * kNext)}};
      });
      const FifthOfBlocks<Type> fifth{q};
      first[r] = Type::template numbers<0>(raw, fifth).v[0];
      second[r] = Type::template numbers<1>(raw, fifth).v[0];
    });
    __m128 scales[4];
    times<4>([&](auto b) BALLAST_HERE { scales[b] = f16_of_four((kFirst + b) * Type::kBytes, p); });
    times<M>([&](auto c) BALLAST_HERE {
      const auto &x_first = x[c]->blocks[kFirst / 2], &x_second = x[c]->blocks[kFirst / 2 + 1];
      __m512i v[kRows];
      times<kRows>([&](auto r) BALLAST_HERE {
        v[r] =
            _mm512_dpbusd_epi32(_mm512_setzero_si512(), first[r], _mm512_load_si512(x_first.high));
        v[r] = _mm512_dpbusd_epi32(v[r], second[r], _mm512_load_si512(x_second.high));
        v[r] = _mm512_dpbusd_epi32(_mm512_slli_epi32(v[r], kLowDigit), first[r],
                                   _mm512_load_si512(x_first.low));
        v[r] = _mm512_dpbusd_epi32(v[r], second[r], _mm512_load_si512(x_second.low));
      });
      // 128 bits for each block, in them a lane for each row.
      __m512i sums = add_four(v);
      if constexpr (Type::kZero != 0) {
        const __m512i of_x = _mm512_permutexvar_epi32(
            _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3),
            _mm512_castsi128_si512(load_16(reinterpret_cast<Bytes>(x[c]->sums + kFirst))));
        sums = _mm512_sub_epi32(sums, _mm512_mullo_epi32(of_x, _mm512_set1_epi32(Type::kZero)));
      }
      const __m512 numbers = _mm512_cvtepi32_ps(sums);
      times<4>([&](auto b) BALLAST_HERE {
        t[c] = _mm_fmadd_ps(_mm512_extractf32x4_ps(numbers, b), scales[b], t[c]);
      });
    });
  });
  add_offsets<Type>(p, x, t);
}

/// What a row's span of a K type is made of: chunks 0 to 3 below those of 4 to 7.
template <typename Type>
struct RawOfRow {
  Vectors<1> v[kRaws<Type>];
  template <typename Index>
  BALLAST_INLINE void load(Bytes p, Index i) {
    constexpr int kLow = Type::kRaw[i][0], kHigh = Type::kRaw[i][1];
    if constexpr (kHigh == kLow + 32) {
      v[i] = {{_mm512_loadu_si512(p + kLow)}};
    } else if constexpr (kHigh == kLow) {
      v[i] = {{_mm512_broadcast_i64x4(load_32(p + kLow))}};
    } else {
      v[i] = {
          {_mm512_inserti64x4(_mm512_castsi256_si512(load_32(p + kLow)), load_32(p + kHigh), 1)}};
    }
  }
  BALLAST_INLINE const Vectors<1>& operator[](int i) const { return v[i]; }
  BALLAST_INLINE Vectors<1> upper(int i) const {
    const __m512i down =
        _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi16(Type::kDistance), 1);
    return {{_mm512_srlv_epi16(v[i].v[0], down)}};
  }
};

/// Eight words in each 128 bits.
BALLAST_INLINE __m512i words_in_quarters(const std::int16_t* words) {
  return _mm512_broadcast_i32x4(load_16(reinterpret_cast<Bytes>(words)));
}

/// The scales and offsets of four rows of a K type.
template <typename Type>
class RowScales {
 public:
  explicit BALLAST_INLINE RowScales(const Bytes (&p)[kRows]) {
    times<kRows>([&](auto r) BALLAST_HERE {
      const Integers integers = Type::scales(p[r]);
      scales_[r] = _mm512_cvtepi8_epi32(integers.scales);
      offsets_[r] = integers.offsets;
    });
    scale_ = f16_of_four(Type::kScale, p);
    if constexpr (Type::kOffset) offset_scale_ = f16_of_four(Type::kScale + 2, p);
  }

  /// Row r's of vector j's chunks, a lane for four numbers.
  template <int j, int r>
  BALLAST_INLINE __m512i of_chunks() const {
    static_assert(Type::kGroup == 16);
    constexpr int a = 2 * j, b = a + 2 * Type::kDistance;
    const __m512i groups = _mm512_setr_epi32(a, a, a, a, a + 1, a + 1, a + 1, a + 1, b, b, b, b,
                                             b + 1, b + 1, b + 1, b + 1);
    return _mm512_permutexvar_epi32(groups, scales_[r]);
  }
  BALLAST_INLINE __m128 scale() const { return scale_; }
  BALLAST_INLINE __m128 offset_scale() const { return offset_scale_; }
  /// Σ mᵍXᵍ of each row.
  BALLAST_INLINE __m128i offsets(const IntegerSpan& x) const {
    __m512i sums[kRows];
    times<kRows>([&](auto r) BALLAST_HERE {
      const __m256i m = _mm256_cvtepu8_epi16(offsets_[r]);
      const __m256i high = _mm256_madd_epi16(m, load_32(reinterpret_cast<Bytes>(x.high16)));
      sums[r] = _mm512_zextsi256_si512(_mm256_dpwssd_epi32(
          _mm256_slli_epi32(high, 2), m, load_32(reinterpret_cast<Bytes>(x.low16))));
    });
    return add_quarters(add_four(sums));
  }

 private:
  __m512i scales_[kRows];
  __m128i offsets_[kRows];
  __m128 scale_, offset_scale_;
};

/// The same of Q4_K and Q5_K, all rows at a time: a row in each 128 bits.
template <typename Type>
requires(Type::kGroup == 32) class RowScales<Type> {
 public:
  explicit BALLAST_INLINE RowScales(const Bytes (&p)[kRows]) {
    const __m512i first = in_quarters(p[0], p[1], p[2], p[3]);
    integers_ = six_bits(first);
    const __m512i floats = _mm512_permutexvar_epi32(
        _mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), first);
    const __m256 both = _mm256_cvtph_ps(_mm512_castsi512_si128(floats));
    const __m128 low = _mm256_castps256_ps128(both), high = _mm256_extractf128_ps(both, 1);
    scale_ = _mm_shuffle_ps(low, high, 0x88);
    offset_scale_ = _mm_shuffle_ps(low, high, 0xdd);
    times<kRows>([&](auto r) BALLAST_HERE {
      row_[r] = _mm512_shuffle_i32x4(integers_, integers_, 0x55 * r);
    });
  }

  template <int j, int r>
  BALLAST_INLINE __m512i of_chunks() const {
    constexpr int kZeros = static_cast<int>(0x80808000), kFirst = chunk<Type>(j);
    return _mm512_shuffle_epi8(
        row_[r], _mm512_inserti64x4(_mm512_set1_epi32(kZeros | kFirst),
                                    _mm256_set1_epi32(kZeros | (kFirst + Type::kDistance)), 1));
  }
  BALLAST_INLINE __m128 scale() const { return scale_; }
  BALLAST_INLINE __m128 offset_scale() const { return offset_scale_; }
  BALLAST_INLINE __m128i offsets(const IntegerSpan& x) const {
    const __m512i m = _mm512_unpackhi_epi8(integers_, _mm512_setzero_si512());
    __m512i sums = _mm512_slli_epi32(_mm512_madd_epi16(m, words_in_quarters(x.high32)), 2);
    sums = _mm512_dpwssd_epi32(sums, m, words_in_quarters(x.low32));
    sums = _mm512_add_epi32(sums, _mm512_shuffle_epi32(sums, static_cast<_MM_PERM_ENUM>(0x4e)));
    sums = _mm512_add_epi32(sums, _mm512_shuffle_epi32(sums, static_cast<_MM_PERM_ENUM>(0xb1)));
    const __m512i first = _mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    return _mm512_castsi512_si128(_mm512_permutexvar_epi32(first, sums));
  }

 private:
  __m512i integers_, row_[kRows];
  __m128 scale_, offset_scale_;
};

/// t[c] = what the span at p adds to the dots of four rows with activation c, of a K type.
template <typename Type, std::size_t M>
requires(!Type::kPlain) BALLAST_INLINE
    void span_of(Type, const Bytes (&p)[kRows], const IntegerSpan* const (&x)[M], __m128 (&t)[M]) {
  const RowScales<Type> scales(p);
  RawOfRow<Type> raw[kRows];
  times<kRows>([&](auto r) BALLAST_HERE {
    times<kRaws<Type>>([&](auto i) BALLAST_HERE { raw[r].load(p[r], i); });
  });
  __m512i v[M][kRows];
  // Step by step for all rows: what waits for the step before would fill the processor's queues.
  times<4>([&](auto j) BALLAST_HERE {
    __m512i numbers[kRows], scale[kRows];
    times<kRows>([&](auto r) BALLAST_HERE { numbers[r] = Type::template numbers<j>(raw[r]).v[0]; });
    times<M>([&](auto c) BALLAST_HERE {
      const auto& digits = (Type::kDistance == 4 ? x[c]->chunks : x[c]->pairs)[j];
      __m512i sums[kRows];
      times<kRows>([&](auto r) BALLAST_HERE {
        sums[r] =
            _mm512_dpbusd_epi32(_mm512_setzero_si512(), numbers[r], _mm512_load_si512(digits.high));
      });
      times<kRows>([&](auto r) BALLAST_HERE { sums[r] = _mm512_slli_epi32(sums[r], kLowDigit); });
      times<kRows>([&](auto r) BALLAST_HERE {
        sums[r] = _mm512_dpbusd_epi32(sums[r], numbers[r], _mm512_load_si512(digits.low));
      });
      if constexpr (Type::kZero != 0) {
        __m512i of_x = _mm512_load_si512(x[c]->quads + 16 * j);
        if (Type::kZero == 4) of_x = _mm512_srai_epi32(of_x, 3);
        times<kRows>([&](auto r) BALLAST_HERE { sums[r] = _mm512_sub_epi32(sums[r], of_x); });
      }
      if constexpr (c == 0) {
        times<kRows>([&](auto r) BALLAST_HERE { scale[r] = scales.template of_chunks<j, r>(); });
      }
      times<kRows>([&](auto r) BALLAST_HERE {
        sums[r] = _mm512_mullo_epi32(sums[r], scale[r]);
        v[c][r] = j == 0 ? sums[r] : _mm512_add_epi32(v[c][r], sums[r]);
      });
    });
  });
  times<M>([&](auto c) BALLAST_HERE {
    const __m512i sums = add_four(v[c]);
    if constexpr (Type::kFolds == 1) {
      t[c] = _mm_mul_ps(_mm_cvtepi32_ps(add_quarters(sums)), scales.scale());
    } else {
      const __m128i first = add_halves(_mm512_castsi512_si256(sums));
      const __m128i second = add_halves(_mm512_extracti64x4_epi64(sums, 1));
      t[c] = _mm_mul_ps(_mm_cvtepi32_ps(first), scales.scale());
      t[c] = _mm_fmadd_ps(_mm_cvtepi32_ps(second), scales.scale(), t[c]);
    }
    if constexpr (Type::kOffset) {
      const __m128 offsets = _mm_cvtepi32_ps(scales.offsets(*x[c]));
      t[c] = _mm_fnmadd_ps(offsets, scales.offset_scale(), t[c]);
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

}  // namespace ballast::integers::avx512
HWY_POP_ATTRIBUTES

#endif
