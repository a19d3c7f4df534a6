// Products of a few activations with weights of quantized types as they lie, with AVX-512.
#include "gemm/kernels.h"

#if defined(__x86_64__)

// Everything from here on may only run where has_avx512_vnni() says so.
HWY_PUSH_ATTRIBUTES(BALLAST_AVX512_VNNI_TARGET)
#include "gemm/avx512-inl.h"
#include "gemm/gemv-inl.h"

namespace ballast::gemm::avx512 {

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

/// Four blocks of each of four rows, of a plain type.
template <typename Type>
class FourBlocks {
 public:
  /// Those that begin `at` bytes behind p.
  BALLAST_INLINE FourBlocks(const Bytes (&p)[kRows], int at) {
    unroll<kRows>([&](auto r) BALLAST_INLINE_LAMBDA {
      p_[r] = p[r] + at;
      begin_[r] = _mm512_loadu_si512(p_[r]);
    });
  }
  /// Sixteen bytes of each block of row r, from Type::kRaw[i] on.
  template <int i>
  BALLAST_INLINE __m512i raw(int r) const {
    // What is behind the first line, or, of the latter half of blocks of 34 bytes, at the end.
    constexpr int kEnd = 3 * Type::kBytes + Type::kRaw[i] + 16;
    constexpr int kFrom = i == 0 ? 0 : kEnd - 128, kRest = kEnd - kFrom - 64;
    constexpr int kTail = kRest <= 16 ? 16 : kRest <= 32 ? 32 : 64;
    static_assert(Type::kRaw[i] >= kFrom && kRest <= 64);
    static constexpr Order kOrder([](int j) {
      const int byte = j / 8 * Type::kBytes + Type::kRaw[i] + j % 8 * 2 - kFrom;
      return (byte < 64 ? byte : byte + kTail - kRest) / 2;
    });
    const __m512i begin = i == 0 ? begin_[r] : _mm512_loadu_si512(p_[r] + kFrom);
    const Bytes tail = p_[r] + kEnd - kTail;
    __m512i end;
    if constexpr (kTail == 16) {
      end = _mm512_castsi128_si512(load_16(tail));
    } else if constexpr (kTail == 32) {
      end = _mm512_castsi256_si512(load_32(tail));
    } else {
      end = _mm512_loadu_si512(tail);
    }
    return _mm512_permutex2var_epi16(begin, _mm512_load_si512(kOrder.of), end);
  }
  /// Of each block those of four rows.
  BALLAST_INLINE void scales(__m128 (&out)[4]) const {
    if constexpr (3 * Type::kBytes + 2 > 64) {
      unroll<4>([&](auto b) BALLAST_INLINE_LAMBDA { out[b] = f16_of_four(b * Type::kBytes, p_); });
    } else {
      // Of block b those of two rows: lane b.
      static constexpr Order kOrder(
          [](int j) { return j < 8 ? j / 2 * Type::kBytes / 2 + j % 2 * 32 : 0; });
      const __m512i order = _mm512_load_si512(kOrder.of);
      const auto two = [&](int r) BALLAST_INLINE_LAMBDA {
        return _mm512_castsi512_si128(_mm512_permutex2var_epi16(begin_[r], order, begin_[r + 1]));
      };
      const __m128i former = two(0), latter = two(2);
      const __m256 low = _mm256_cvtph_ps(_mm_unpacklo_epi32(former, latter));
      const __m256 high = _mm256_cvtph_ps(_mm_unpackhi_epi32(former, latter));
      out[0] = _mm256_castps256_ps128(low);
      out[1] = _mm256_extractf128_ps(low, 1);
      out[2] = _mm256_castps256_ps128(high);
      out[3] = _mm256_extractf128_ps(high, 1);
    }
  }

 private:
  /// Of words, in two vectors.
  struct Order {
    alignas(64) std::int16_t of[32];
    template <typename From>
    constexpr explicit Order(const From& from) : of() {
      for (int j = 0; j < 32; ++j) of[j] = static_cast<std::int16_t>(from(j));
    }
  };

  Bytes p_[kRows];
  __m512i begin_[kRows];
};

/// t[c] = what the span at p adds to the dots of four rows with activation c, of a plain type.
template <typename Type, std::size_t M>
requires(Type::kPlain) BALLAST_INLINE
    void span_of(Type, const Bytes (&p)[kRows], const IntegerSpan* const (&x)[M], __m128 (&t)[M]) {
  unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA { t[c] = _mm_setzero_ps(); });
  unroll<2>([&](auto part) BALLAST_INLINE_LAMBDA {
    constexpr int kFirst = 4 * part;
    const FourBlocks<Type> blocks(p, kFirst * Type::kBytes);
    __m512i first[kRows], second[kRows];
    unroll<kRows>([&](auto r) BALLAST_INLINE_LAMBDA {
      Vectors<1> raw[kRaws<Type>];
      unroll<kRaws<Type>>([&](auto i)
                              BALLAST_INLINE_LAMBDA { raw[i] = {{blocks.template raw<i>(r)}}; });
      const FifthOfBlocks<Type> fifth{p[r] + kFirst * Type::kBytes};
      first[r] = Type::template numbers<0>(raw, fifth).v[0];
      second[r] = Type::template numbers<1>(raw, fifth).v[0];
    });
    __m128 scales[4];
    blocks.scales(scales);
    unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA {
      const auto &x_first = x[c]->blocks[kFirst / 2], &x_second = x[c]->blocks[kFirst / 2 + 1];
      __m512i v[kRows];
      // Step by step for all rows, as each step waits for the one before.
      unroll<kRows>([&](auto r) BALLAST_INLINE_LAMBDA {
        v[r] =
            _mm512_dpbusd_epi32(_mm512_setzero_si512(), first[r], _mm512_load_si512(x_first.high));
      });
      const auto add = [&](const __m512i(&numbers)[kRows],
                           const auto& digits) BALLAST_INLINE_LAMBDA {
        unroll<kRows>([&](auto r) BALLAST_INLINE_LAMBDA {
          v[r] = _mm512_dpbusd_epi32(v[r], numbers[r], _mm512_load_si512(digits));
        });
      };
      add(second, x_second.high);
      unroll<kRows>([&](auto r)
                        BALLAST_INLINE_LAMBDA { v[r] = _mm512_slli_epi32(v[r], kLowDigit); });
      add(first, x_first.low);
      add(second, x_second.low);
      // 128 bits for each block, in them a lane for each row.
      __m512i sums = add_four(v);
      if constexpr (Type::kZero != 0) {
        const __m512i of_x = _mm512_permutexvar_epi32(
            _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3),
            _mm512_castsi128_si512(load_16(reinterpret_cast<Bytes>(x[c]->sums + kFirst))));
        sums = _mm512_sub_epi32(sums, _mm512_mullo_epi32(of_x, _mm512_set1_epi32(Type::kZero)));
      }
      const __m512 numbers = _mm512_cvtepi32_ps(sums);
      unroll<4>([&](auto b) BALLAST_INLINE_LAMBDA {
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
    unroll<kRows>([&](auto r) BALLAST_INLINE_LAMBDA {
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
    unroll<kRows>([&](auto r) BALLAST_INLINE_LAMBDA {
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

/// A constant vector.
struct Bytes64 {
  alignas(64) std::uint8_t of[64];
  template <typename At>
  constexpr explicit Bytes64(const At& at) : of() {
    for (int i = 0; i < 64; ++i) of[i] = static_cast<std::uint8_t>(at(i));
  }
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
    unroll<kRows>([&](auto r) BALLAST_INLINE_LAMBDA {
      row_[r] = _mm512_shuffle_i32x4(integers_, integers_, 0x55 * r);
    });
  }

  /// Row r's of the chunks of vectors 2 i and 2 i + 1: in each 128 bits four words of the former's,
  /// then four of the latter's.
  template <int i, int r>
  BALLAST_INLINE __m512i of_chunks() const {
    static constexpr Bytes64 kOrder([](int at) {
      if (at % 2 == 1) return 0x80;  // zero
      return chunk<Type>(2 * i + at % 16 / 8) + at / 32 * Type::kDistance;
    });
    return _mm512_shuffle_epi8(row_[r], _mm512_load_si512(kOrder.of));
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

/// v[c][r] = parts of row r's sum with activation c: products of each group times its scale.
template <typename Type, std::size_t M>
BALLAST_INLINE void multiply(const RowScales<Type>& scales, const RawOfRow<Type> (&raw)[kRows],
                             const IntegerSpan* const (&x)[M], __m512i (&v)[M][kRows]) {
  // Step by step for all rows: what waits for the step before would fill the processor's queues.
  unroll<4>([&](auto j) BALLAST_INLINE_LAMBDA {
    __m512i numbers[kRows], scale[kRows];
    unroll<kRows>(
        [&](auto r) BALLAST_INLINE_LAMBDA { numbers[r] = Type::template numbers<j>(raw[r]).v[0]; });
    unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA {
      const auto& digits = (Type::kDistance == 4 ? x[c]->chunks : x[c]->pairs)[j];
      __m512i sums[kRows];
      unroll<kRows>([&](auto r) BALLAST_INLINE_LAMBDA {
        sums[r] =
            _mm512_dpbusd_epi32(_mm512_setzero_si512(), numbers[r], _mm512_load_si512(digits.high));
      });
      unroll<kRows>([&](auto r)
                        BALLAST_INLINE_LAMBDA { sums[r] = _mm512_slli_epi32(sums[r], kLowDigit); });
      unroll<kRows>([&](auto r) BALLAST_INLINE_LAMBDA {
        sums[r] = _mm512_dpbusd_epi32(sums[r], numbers[r], _mm512_load_si512(digits.low));
      });
      if constexpr (Type::kZero != 0) {
        __m512i of_x = _mm512_load_si512(x[c]->quads + 16 * j);
        if (Type::kZero == 4) of_x = _mm512_srai_epi32(of_x, 3);
        unroll<kRows>([&](auto r)
                          BALLAST_INLINE_LAMBDA { sums[r] = _mm512_sub_epi32(sums[r], of_x); });
      }
      if constexpr (c == 0) {
        unroll<kRows>([&](auto r)
                          BALLAST_INLINE_LAMBDA { scale[r] = scales.template of_chunks<j, r>(); });
      }
      unroll<kRows>([&](auto r) BALLAST_INLINE_LAMBDA {
        sums[r] = _mm512_mullo_epi32(sums[r], scale[r]);
        v[c][r] = j == 0 ? sums[r] : _mm512_add_epi32(v[c][r], sums[r]);
      });
    });
  });
}

/// The same. Sums of four numbers with a digit, at most 4 · 31 · 64 in magnitude, fit words, which
/// are multiplied with the scales in pairs.
template <typename Type, std::size_t M>
requires(Type::kGroup == 32) BALLAST_INLINE
    void multiply(const RowScales<Type>& scales, const RawOfRow<Type> (&raw)[kRows],
                  const IntegerSpan* const (&x)[M], __m512i (&v)[M][kRows]) {
  constexpr std::size_t kAtOnce = 2;  // rows: what registers hold
  unroll<kRows / kAtOnce>([&](auto part) BALLAST_INLINE_LAMBDA {
    constexpr std::size_t kFirst = kAtOnce * part;
    __m512i numbers[4][kAtOnce], scale[2][kAtOnce];
    unroll<kAtOnce>([&](auto r) BALLAST_INLINE_LAMBDA {
      unroll<4>([&](auto j) BALLAST_INLINE_LAMBDA {
        numbers[j][r] = Type::template numbers<j>(raw[kFirst + r]).v[0];
      });
      unroll<2>([&](auto i) BALLAST_INLINE_LAMBDA {
        scale[i][r] = scales.template of_chunks<i, kFirst + r>();
      });
    });
    unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA {
      const auto add = [&](const auto& digits_of) BALLAST_INLINE_LAMBDA {
        unroll<2>([&](auto i) BALLAST_INLINE_LAMBDA {
          __m512i sums[2][kAtOnce];
          unroll<2>([&](auto k) BALLAST_INLINE_LAMBDA {
            const __m512i digits = _mm512_load_si512(digits_of(x[c]->pairs[2 * i + k]));
            unroll<kAtOnce>([&](auto r) BALLAST_INLINE_LAMBDA {
              sums[k][r] =
                  _mm512_dpbusd_epi32(_mm512_setzero_si512(), numbers[2 * i + k][r], digits);
            });
          });
          unroll<kAtOnce>([&](auto r) BALLAST_INLINE_LAMBDA {
            const __m512i words = _mm512_packs_epi32(sums[0][r], sums[1][r]);
            __m512i& sum = v[c][kFirst + r];
            sum = _mm512_dpwssd_epi32(sum, words, scale[i][r]);
          });
        });
      };
      unroll<kAtOnce>([&](auto r)
                          BALLAST_INLINE_LAMBDA { v[c][kFirst + r] = _mm512_setzero_si512(); });
      add([](const auto& pair) BALLAST_INLINE_LAMBDA { return pair.high; });
      unroll<kAtOnce>([&](auto r) BALLAST_INLINE_LAMBDA {
        v[c][kFirst + r] = _mm512_slli_epi32(v[c][kFirst + r], kLowDigit);
      });
      add([](const auto& pair) BALLAST_INLINE_LAMBDA { return pair.low; });
    });
  });
}

/// t[c] = what the span at p adds to the dots of four rows with activation c, of a K type.
template <typename Type, std::size_t M>
requires(!Type::kPlain) BALLAST_INLINE
    void span_of(Type, const Bytes (&p)[kRows], const IntegerSpan* const (&x)[M], __m128 (&t)[M]) {
  const RowScales<Type> scales(p);
  RawOfRow<Type> raw[kRows];
  unroll<kRows>([&](auto r) BALLAST_INLINE_LAMBDA {
    unroll<kRaws<Type>>([&](auto i) BALLAST_INLINE_LAMBDA { raw[r].load(p[r], i); });
  });
  __m512i v[M][kRows];
  multiply(scales, raw, x, v);
  unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA {
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

}  // namespace ballast::gemm::avx512
HWY_POP_ATTRIBUTES

#endif
