// GCC 12 takes the undefined operands of its own intrinsics for mistakes (its bug 105593).
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

#include "model/integer_dots.h"

#include <hwy/base.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include "base/cpu.h"
#include "base/fail.h"

namespace ballast {

bool multiplies_integers(TensorType type) { return is_quantised(type) && has_avx512_vnni(); }

}  // namespace ballast

#if defined(__x86_64__)

#include <immintrin.h>

// Everything from here on may only run where has_avx512_vnni() says so.
HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni,avx2,fma,f16c")
#include "model/integer_types-inl.h"
#include "model/row_prefetch-inl.h"

namespace ballast {
namespace integers {

constexpr int kRows = 4;
constexpr int kDigit = 6;  // bits of the lower digit
constexpr float kMost = 4095;

template <typename Type>
constexpr int kRaws = static_cast<int>(std::size(Type::kRaw));
/// Bytes of a row's span.
template <typename Type>
constexpr std::size_t kSpanBytes = (Type::kPlain ? 8 : 1) * Type::kBytes;

// ---- Activations ----------------------------------------------------------------------------

/// A span's integers, sixteen in a vector.
struct Rounded {
  __m512i v[16];
  float scale;
};

/// Rounds the n numbers at x, 0 < n <= kSpan, and zeros behind them.
BALLAST_INLINE Rounded round_span(const float* x, std::size_t n) {
  __m512 numbers[16];
  __m512i most = _mm512_setzero_si512();
  for (std::size_t i = 0; i < 16; ++i) {
    const std::size_t left = n - std::min(n, 16 * i);
    const auto mask = static_cast<__mmask16>((1u << std::min<std::size_t>(left, 16)) - 1);
    numbers[i] = _mm512_maskz_loadu_ps(mask, x + 16 * i);
    // As integers, magnitudes are in order, with infinity and NaNs above all.
    const __m512i magnitude =
        _mm512_and_si512(_mm512_castps_si512(numbers[i]), _mm512_set1_epi32(0x7fffffff));
    most = _mm512_max_epi32(most, magnitude);
  }
  const std::int32_t bits = _mm512_reduce_max_epi32(most);
  float largest;
  std::memcpy(&largest, &bits, sizeof(largest));
  Rounded out;
  // Numbers so small that the reciprocal overflows count as zeros.
  const bool some = largest >= 0x1p-110f, finite = bits < 0x7f800000;
  out.scale = !finite ? __builtin_nanf("") : some ? largest / kMost : 0.0f;
  const __m512 factor = _mm512_set1_ps(finite && some ? kMost / largest : 0.0f);
  for (std::size_t i = 0; i < 16; ++i) {
    out.v[i] = _mm512_cvtps_epi32(_mm512_mul_ps(numbers[i], factor));
  }
  return out;
}

/// Four vectors of partial sums: lane k of each 128 bits sums up vector k's.
BALLAST_INLINE __m512i add_four(const __m512i (&v)[4]) {
  const __m512i a =
      _mm512_add_epi32(_mm512_unpacklo_epi32(v[0], v[1]), _mm512_unpackhi_epi32(v[0], v[1]));
  const __m512i b =
      _mm512_add_epi32(_mm512_unpacklo_epi32(v[2], v[3]), _mm512_unpackhi_epi32(v[2], v[3]));
  return _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
}

/// Sums of sixteen vectors.
BALLAST_INLINE __m512i sums_of_vectors(const __m512i (&v)[16]) {
  __m512i four[4];
  for (int i = 0; i < 4; ++i) {
    four[i] = add_four({v[4 * i], v[4 * i + 1], v[4 * i + 2], v[4 * i + 3]});
  }
  // Quarters of each have still to be added up.
  const __m512i a = _mm512_add_epi32(_mm512_shuffle_i32x4(four[0], four[1], 0x44),
                                     _mm512_shuffle_i32x4(four[0], four[1], 0xee));
  const __m512i b = _mm512_add_epi32(_mm512_shuffle_i32x4(four[2], four[3], 0x44),
                                     _mm512_shuffle_i32x4(four[2], four[3], 0xee));
  return _mm512_add_epi32(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xdd));
}

/// Sums of the eight groups of 32 numbers from those of 16.
BALLAST_INLINE __m256i sums_of_32(__m512i sums) {
  const __m512i pairs = _mm512_add_epi32(sums, _mm512_srli_epi64(sums, 32));
  return _mm512_cvtepi64_epi32(pairs);
}

/// sum = 4·high + low.
struct HighLow {
  __m512i high, low;
};
BALLAST_INLINE HighLow high_low(__m512i sums) {
  const __m512i high = _mm512_srai_epi32(sums, 2);
  return {high, _mm512_and_si512(sums, _mm512_set1_epi32(3))};
}

BALLAST_INLINE void store_16(void* out, __m128i v) {
  _mm_storeu_si128(static_cast<__m128i*>(out), v);
}
BALLAST_INLINE void store_32(void* out, __m256i v) {
  _mm256_storeu_si256(static_cast<__m256i*>(out), v);
}

void round_row(const float* x, std::size_t n, IntegerSpan& out) {
  const Rounded rounded = round_span(x, n);
  out.scale = rounded.scale;
  for (int i = 0; i < 16; ++i) {
    const __m512i high = _mm512_srai_epi32(
        _mm512_add_epi32(rounded.v[i], _mm512_set1_epi32(1 << (kDigit - 1))), kDigit);
    const __m128i highs = _mm512_cvtepi32_epi8(high);
    const __m128i lows =
        _mm512_cvtepi32_epi8(_mm512_sub_epi32(rounded.v[i], _mm512_slli_epi32(high, kDigit)));
    const int chunk = i / 2, half = i % 2;
    auto& of_chunk = out.chunks[chunk % 4];
    store_16(of_chunk.high + chunk / 4 * 32 + half * 16, highs);
    store_16(of_chunk.low + chunk / 4 * 32 + half * 16, lows);
    auto& of_pair = out.pairs[chunk / 4 * 2 + chunk % 2];
    store_16(of_pair.high + chunk % 4 / 2 * 32 + half * 16, highs);
    store_16(of_pair.low + chunk % 4 / 2 * 32 + half * 16, lows);
    auto& of_block = out.blocks[chunk / 4 * 2 + half];
    store_16(of_block.high + chunk % 4 * 16, highs);
    store_16(of_block.low + chunk % 4 * 16, lows);
  }
  for (int j = 0; j < 4; ++j) {
    const __m512i ones = _mm512_set1_epi8(1);
    const __m512i high =
        _mm512_dpbusd_epi32(_mm512_setzero_si512(), ones, _mm512_load_si512(out.chunks[j].high));
    const __m512i quads = _mm512_dpbusd_epi32(_mm512_slli_epi32(high, kDigit), ones,
                                              _mm512_load_si512(out.chunks[j].low));
    _mm512_store_si512(out.quads + 16 * j, _mm512_slli_epi32(quads, 5));
  }
  const __m512i of_16 = sums_of_vectors(rounded.v);
  const __m256i of_32 = sums_of_32(of_16);
  store_32(out.sums, of_32);
  const auto high_low_16 = high_low(of_16), high_low_32 = high_low(_mm512_castsi256_si512(of_32));
  store_32(out.high16, _mm512_cvtepi32_epi16(high_low_16.high));
  store_32(out.low16, _mm512_cvtepi32_epi16(high_low_16.low));
  auto lower = [](__m512i v) { return _mm256_cvtepi32_epi16(_mm512_castsi512_si256(v)); };
  store_16(out.high32, lower(high_low_32.high));
  store_16(out.low32, lower(high_low_32.low));
}

/// Writes a column of a tile's pairs; returns its scale.
float round_column(const float* x, std::size_t n, std::int32_t* pairs) {
  const Rounded rounded = round_span(x, n);
  for (std::size_t i = 0; i < 16; ++i) {
    // Of each four, numbers 0 and 2 in the first pair, 1 and 3 in the second.
    const __m512i swapped = _mm512_shuffle_epi32(rounded.v[i], static_cast<_MM_PERM_ENUM>(0xd8));
    const __m512i even = _mm512_and_si512(swapped, _mm512_set1_epi32(0xffff));
    const __m512i odd = _mm512_slli_epi64(_mm512_srli_epi64(swapped, 32), 16);
    store_32(pairs + 8 * i, _mm512_cvtepi64_epi32(_mm512_or_si512(even, odd)));
  }
  const __m512i of_16 = sums_of_vectors(rounded.v);
  auto pair = [](__m512i sums, __m512i& out) BALLAST_HERE {
    const HighLow parts = high_low(sums);
    out = _mm512_or_si512(_mm512_and_si512(parts.high, _mm512_set1_epi32(0xffff)),
                          _mm512_slli_epi32(parts.low, 16));
  };
  __m512i pairs_of_32, pairs_of_16;
  pair(_mm512_castsi256_si512(sums_of_32(of_16)), pairs_of_32);
  pair(of_16, pairs_of_16);
  store_32(pairs + IntegerTile::kSums32, _mm512_castsi512_si256(pairs_of_32));
  _mm512_storeu_si512(pairs + IntegerTile::kSums16, pairs_of_16);
  return rounded.scale;
}

/// Transposes eight rows of eight.
BALLAST_INLINE void transpose_eight(__m256i (&v)[8]) {
  __m256i two[8], four[8];
  times<4>([&](auto i) BALLAST_HERE {
    two[2 * i] = _mm256_unpacklo_epi32(v[2 * i], v[2 * i + 1]);
    two[2 * i + 1] = _mm256_unpackhi_epi32(v[2 * i], v[2 * i + 1]);
  });
  times<2>([&](auto i) BALLAST_HERE {
    times<2>([&](auto k) BALLAST_HERE {
      const __m256i a = two[4 * i + k], b = two[4 * i + 2 + k];
      four[4 * i + 2 * k] = _mm256_unpacklo_epi64(a, b);
      four[4 * i + 2 * k + 1] = _mm256_unpackhi_epi64(a, b);
    });
  });
  times<4>([&](auto i) BALLAST_HERE {
    v[i] = _mm256_permute2x128_si256(four[i], four[4 + i], 0x20);
    v[4 + i] = _mm256_permute2x128_si256(four[i], four[4 + i], 0x31);
  });
}

void round_tile(ConstMatrix x, std::size_t begin, IntegerTile& out) {
  constexpr std::size_t kColumns = IntegerTile::kColumns, kPairs = IntegerTile::kPairs;
  alignas(64) std::int32_t columns[kColumns][kPairs] = {};
  for (std::size_t c = 0; c < x.rows; ++c) {
    out.scale[c] = round_column(x.row(c) + begin, std::min(kSpan, x.cols - begin), columns[c]);
  }
  for (std::size_t k = 0; k < kPairs; k += 8) {
    __m256i v[8];
    times<8>([&](auto c) BALLAST_HERE {
      v[c] = c < kColumns ? _mm256_load_si256(reinterpret_cast<const __m256i*>(columns[c] + k))
                          : _mm256_setzero_si256();
    });
    transpose_eight(v);
    times<8>([&](auto i) BALLAST_HERE {
      const auto mask = static_cast<__mmask8>((1 << kColumns) - 1);
      _mm256_mask_storeu_epi32(out.pairs[k + i], mask, v[i]);
    });
  }
}

// ---- A few activations ----------------------------------------------------------------------

BALLAST_INLINE __m128 f16_of_four(std::size_t at, const Bytes (&p)[kRows]) {
  auto bits = [&](int r) { return load<short>(p[r] + at); };
  return _mm_cvtph_ps(_mm_setr_epi16(bits(0), bits(1), bits(2), bits(3), 0, 0, 0, 0));
}

/// 16 bytes at each of four places.
BALLAST_INLINE __m512i in_quarters(Bytes a, Bytes b, Bytes c, Bytes d) {
  __m512i v = _mm512_castsi128_si512(load_16(a));
  v = _mm512_mask_broadcast_i32x4(v, 0x00f0, load_16(b));
  v = _mm512_mask_broadcast_i32x4(v, 0x0f00, load_16(c));
  return _mm512_mask_broadcast_i32x4(v, 0xf000, load_16(d));
}

/// The fifth bits of four blocks.
template <typename Type>
struct FifthOfBlocks {
  Bytes p;
  template <int h>
  BALLAST_INLINE Bytes64<1> at() const {
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
    void span_of(const Bytes (&p)[kRows], const IntegerSpan* const (&x)[M], __m128 (&t)[M]) {
  times<M>([&](auto c) BALLAST_HERE { t[c] = _mm_setzero_ps(); });
  times<2>([&](auto part) BALLAST_HERE {
    constexpr int kFirst = 4 * part;
    __m512i first[kRows], second[kRows];
    times<kRows>([&](auto r) BALLAST_HERE {
      const Bytes q = p[r] + kFirst * Type::kBytes;
      Bytes64<1> raw[kRaws<Type>];
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
        v[r] = _mm512_dpbusd_epi32(_mm512_slli_epi32(v[r], kDigit), first[r],
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
  if constexpr (Type::kOffset) {
    for (std::size_t b = 0; b < 8; ++b) {
      const __m128 offsets = f16_of_four(b * Type::kBytes + 2, p);
      times<M>([&](auto c) BALLAST_HERE {
        t[c] = _mm_fmadd_ps(_mm_set1_ps(static_cast<float>(x[c]->sums[b])), offsets, t[c]);
      });
    }
  }
}

/// What a row's span of a K type is made of: chunks 0 to 3 below those of 4 to 7.
template <typename Type>
struct RawOfRow {
  Bytes64<1> v[kRaws<Type>];
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
  BALLAST_INLINE const Bytes64<1>& operator[](int i) const { return v[i]; }
  BALLAST_INLINE Bytes64<1> upper(int i) const {
    const __m512i down =
        _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi16(Type::kDistance), 1);
    return {{_mm512_srlv_epi16(v[i].v[0], down)}};
  }
};

BALLAST_INLINE __m128i add_halves(__m256i v) {
  return _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
}
BALLAST_INLINE __m128i add_quarters(__m512i v) {
  return add_halves(_mm256_add_epi32(_mm512_castsi512_si256(v), _mm512_extracti64x4_epi64(v, 1)));
}

/// Eight words in each 128 bits.
BALLAST_INLINE __m512i in_quarters(const std::int16_t* words) {
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
    __m512i sums = _mm512_slli_epi32(_mm512_madd_epi16(m, in_quarters(x.high32)), 2);
    sums = _mm512_dpwssd_epi32(sums, m, in_quarters(x.low32));
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
    void span_of(const Bytes (&p)[kRows], const IntegerSpan* const (&x)[M], __m128 (&t)[M]) {
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
      times<kRows>([&](auto r) BALLAST_HERE { sums[r] = _mm512_slli_epi32(sums[r], kDigit); });
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

/// sums[c][r] += what `spans` spans of four rows, `stride` bytes apart, add to the dots with M
/// activations, which are `x_stride` spans apart.
template <typename Type, std::size_t M>
__attribute__((noinline)) void add_spans(Bytes first, std::size_t stride, std::size_t spans,
                                         const IntegerSpan* activations, std::size_t x_stride,
                                         float (*sums)[kRows]) {
  const Prefetch prefetch(stride);
  const IntegerSpan* x[M];
  __m128 total[M];
  times<M>([&](auto c) BALLAST_HERE {
    x[c] = activations + c * x_stride;
    total[c] = _mm_loadu_ps(sums[c]);
  });
  std::size_t at = 0;
  for (std::size_t i = 0; i < spans; ++i, at += kSpanBytes<Type>) {
    const Bytes q = first + at;
    prefetch.rows<kSpanBytes<Type>>(q, at);
    __m128 t[M];
    span_of<Type>({q, q + stride, q + 2 * stride, q + 3 * stride}, x, t);
    times<M>([&](auto c) BALLAST_HERE {
      total[c] = _mm_fmadd_ps(t[c], _mm_set1_ps(x[c]->scale), total[c]);
      ++x[c];
    });
  }
  times<M>([&](auto c) BALLAST_HERE { _mm_storeu_ps(sums[c], total[c]); });
}

/// sums[c][r] = the dot of row r of four with activation c of M.
template <typename Type, std::size_t M>
void four_dots(Bytes first, std::size_t stride, std::size_t n, const IntegerSpan* x,
               float (*sums)[kRows]) {
  std::fill_n(sums[0], M * kRows, 0.0f);
  const std::size_t whole = n / kSpan, rest = n % kSpan / Type::kNumbers * Type::kBytes;
  add_spans<Type, M>(first, stride, whole, x, spans_of(n), sums);
  if (rest == 0) return;
  std::uint8_t padded[kRows][kSpanBytes<Type>] = {};
  for (std::size_t r = 0; r < kRows; ++r) {
    std::memcpy(padded[r], first + r * stride + whole * kSpanBytes<Type>, rest);
  }
  add_spans<Type, M>(padded[0], sizeof(padded[0]), 1, x + whole, spans_of(n), sums);
}

template <typename Type>
void all_dots(Bytes rows, std::size_t stride, std::size_t count, std::size_t n,
              const IntegerSpan* x, std::size_t columns, float* out, std::size_t out_stride) {
  // As many activations at a time as registers hold sums of.
  constexpr std::size_t kMost = Type::kPlain ? 6 : 4;
  float sums[kMost][kRows];
  for (std::size_t i = 0; i < count;) {
    // The last rows one by one, each as if it were four.
    const bool four = count - i >= kRows;
    for (std::size_t c = 0; c < columns;) {
      const std::size_t left = columns - c, turns = (left + kMost - 1) / kMost;
      const std::size_t at_once = (left + turns - 1) / turns;
      times<kMost>([&](auto m) {
        if (at_once != m + 1) return;
        four_dots<Type, m + 1>(rows + i * stride, four ? stride : 0, n, x + c * spans_of(n), sums);
      });
      for (std::size_t k = 0; k < at_once; ++k, ++c) {
        std::copy_n(sums[k], four ? kRows : 1, out + c * out_stride + i);
      }
    }
    i += four ? kRows : 1;
  }
}

// ---- Panels ---------------------------------------------------------------------------------

constexpr int kLanes = 16;

/// How a panel is gone over.
struct Folding {
  int folds, pairs;           ///< of numbers
  int offsets, offset_pairs;  ///< of offsets
  std::size_t sums;           ///< where an IntegerTile has their sums
  constexpr int all_pairs() const { return folds * pairs + offsets * offset_pairs; }
};

template <typename Type>
constexpr Folding folding() {
  constexpr int kPairs = kSpan / 2 / Type::kFolds;
  if constexpr (!Type::kOffset) {
    return {Type::kFolds, kPairs, 0, 0, 0};
  } else if constexpr (Type::kPlain) {
    return {Type::kFolds, kPairs, 8, 1, IntegerTile::kSums32};
  } else {
    return {Type::kFolds, kPairs, 1, 256 / Type::kGroup,
            Type::kGroup == 32 ? IntegerTile::kSums32 : IntegerTile::kSums16};
  }
}

/// Sixteen bytes of sixteen rows: vector d has bytes 4d to 4d + 3 of each.
BALLAST_INLINE Bytes64<4> transposed(const Bytes (&p)[kLanes], std::size_t at) {
  __m512i v[4];
  times<4>([&](auto a) BALLAST_HERE {
    v[a] = in_quarters(p[a] + at, p[a + 4] + at, p[a + 8] + at, p[a + 12] + at);
  });
  const __m512i a = _mm512_unpacklo_epi32(v[0], v[1]), b = _mm512_unpackhi_epi32(v[0], v[1]);
  const __m512i c = _mm512_unpacklo_epi32(v[2], v[3]), d = _mm512_unpackhi_epi32(v[2], v[3]);
  return {{_mm512_unpacklo_epi64(a, c), _mm512_unpackhi_epi64(a, c), _mm512_unpacklo_epi64(b, d),
           _mm512_unpackhi_epi64(b, d)}};
}

/// Bytes from -128 to 127, four of each row, as words: bytes 0 and 2, then 1 and 3.
BALLAST_INLINE void store_words(__m512i bytes, std::int32_t (*out)[kLanes]) {
  _mm512_store_si512(out[0], _mm512_srai_epi16(_mm512_slli_epi16(bytes, 8), 8));
  _mm512_store_si512(out[1], _mm512_srai_epi16(bytes, 8));
}
BALLAST_INLINE void store_words(__m512i bytes, __m512i scale, std::int32_t (*out)[kLanes]) {
  const __m512i even = _mm512_srai_epi16(_mm512_slli_epi16(bytes, 8), 8);
  _mm512_store_si512(out[0], _mm512_mullo_epi16(even, scale));
  _mm512_store_si512(out[1], _mm512_mullo_epi16(_mm512_srai_epi16(bytes, 8), scale));
}

/// Asks for a span of row r of those that come after a panel.
BALLAST_INLINE void ask_for_row(const IntegerPanel& panel, std::size_t r) {
  const std::byte* row = panel.next.first + r * panel.next.row_bytes;
  for (std::size_t i = 0; i < panel.next.bytes; i += 64) {
    _mm_prefetch(reinterpret_cast<const char*>(row + i), _MM_HINT_T1);
  }
}

BALLAST_INLINE __m512 f16_of_lanes(const Bytes (&p)[kLanes], std::size_t at) {
  alignas(32) std::uint16_t bits[kLanes];
  for (int r = 0; r < kLanes; ++r) bits[r] = load<std::uint16_t>(p[r] + at);
  return _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(bits)));
}

/// The pair of int16 that a sum, in its two parts, is multiplied with.
BALLAST_INLINE __m512i four_and_one() { return _mm512_set1_epi32(1 << 16 | 4); }

/// The fifth bits of a block of sixteen rows.
struct FifthOfLanes {
  __m512i bits;
  template <int h>
  BALLAST_INLINE Bytes64<4> at() const {
    Bytes64<4> out;
    times<4>([&](auto d) BALLAST_HERE {
      const __m512i four =
          _mm512_and_si512(_mm512_srli_epi32(bits, 16 * h + 4 * d), _mm512_set1_epi32(15));
      // Four copies of the four bits, 7 apart: bit i of copy i is bit 8i.
      const __m512i spread = _mm512_mullo_epi32(four, _mm512_set1_epi32(0x00204081));
      out.v[d] = _mm512_slli_epi32(_mm512_and_si512(spread, _mm512_set1_epi32(0x01010101)), 4);
    });
    return out;
  }
};

template <typename Type>
requires(Type::kPlain) BALLAST_INLINE
    void fill(const Bytes (&p)[kLanes], std::size_t half, IntegerPanel& panel) {
  constexpr Folding kFolding = folding<Type>();
  std::int32_t(*lines)[kLanes] = panel.lines[half];
  auto* scales = lines + kFolding.all_pairs();
  for (std::size_t b = 0; b < 8; ++b) {
    ask_for_row(panel, 8 * half + b);
    const std::size_t at = b * Type::kBytes;
    Bytes64<4> raw[kRaws<Type>];
    times<kRaws<Type>>([&](auto i) BALLAST_HERE { raw[i] = transposed(p, at + Type::kRaw[i]); });
    FifthOfLanes fifth;
    if constexpr (Type::kFifth != 0) {
      alignas(64) std::uint32_t bits[kLanes];
      for (int r = 0; r < kLanes; ++r) bits[r] = load<std::uint32_t>(p[r] + at + Type::kFifth);
      fifth.bits = _mm512_load_si512(bits);
    }
    times<2>([&](auto h) BALLAST_HERE {
      const Bytes64<4> numbers = Type::template numbers<h>(raw, fifth);
      times<4>([&](auto d) BALLAST_HERE {
        const __m512i bytes =
            _mm512_sub_epi8(numbers.v[d], _mm512_set1_epi8(static_cast<char>(Type::kZero)));
        store_words(bytes, lines + 16 * b + 8 * h + 2 * d);
      });
    });
    _mm512_store_ps(scales[b], f16_of_lanes(p, at));
    if constexpr (Type::kOffset) {
      _mm512_store_si512(lines[kSpan / 2 + b], four_and_one());
      _mm512_store_ps(scales[8 + b], f16_of_lanes(p, at + 2));
    }
  }
}

/// The former chunks of a K type, or the latter.
template <typename Type, int half>
struct RawOfLanes {
  const Bytes64<4>* v;
  BALLAST_INLINE const Bytes64<4>& operator[](int i) const { return v[i]; }
  BALLAST_INLINE Bytes64<4> upper(int i) const {
    if constexpr (half == 0) return v[i];
    Bytes64<4> out;
    times<4>([&](auto d)
                 BALLAST_HERE { out.v[d] = _mm512_srli_epi16(v[i].v[d], Type::kDistance); });
    return out;
  }
};

/// Byte g of sixteen rows in both words of their lanes, in the upper byte of each or in the lower.
template <int g, bool upper>
BALLAST_INLINE __m512i byte_of_lanes(const Bytes64<4>& bytes) {
  constexpr int at = g % 4, zero = 0x80;
  constexpr int kWord = upper ? at << 8 | zero : zero << 8 | at;
  auto lane = [](int i) {
    const int up = i * 4 << 8 | i * 4;  // lanes of 128 bits are shuffled each for itself
    const int word = upper ? kWord + (up & 0xff00) : kWord + (up & 0xff);
    return word << 16 | word;
  };
  const __m128i index = _mm_setr_epi32(lane(0), lane(1), lane(2), lane(3));
  return _mm512_shuffle_epi8(bytes.v[g / 4], _mm512_broadcast_i32x4(index));
}

template <typename Type>
requires(!Type::kPlain) BALLAST_INLINE
    void fill(const Bytes (&p)[kLanes], std::size_t half, IntegerPanel& panel) {
  constexpr Folding kFolding = folding<Type>();
  std::int32_t(*lines)[kLanes] = panel.lines[half];
  alignas(64) std::uint8_t scale_bytes[kLanes][16], offset_bytes[kLanes][16];
  Bytes scale_rows[kLanes], offset_rows[kLanes];
  for (int r = 0; r < kLanes; ++r) {
    const Integers integers = Type::scales(p[r]);
    store_16(scale_bytes[r], integers.scales);
    if (Type::kOffset) store_16(offset_bytes[r], integers.offsets);
    scale_rows[r] = scale_bytes[r];
    offset_rows[r] = offset_bytes[r];
  }
  const Bytes64<4> scales = transposed(scale_rows, 0);
  times<4>([&](auto part) BALLAST_HERE {
    constexpr int kLatter = part / 2, piece = part % 2;
    ask_for_row(panel, 8 * half + 2 * part);
    ask_for_row(panel, 8 * half + 2 * part + 1);
    Bytes64<4> raw[kRaws<Type>];
    times<kRaws<Type>>(
        [&](auto i) BALLAST_HERE { raw[i] = transposed(p, Type::kRaw[i][kLatter] + 16 * piece); });
    times<4>([&](auto j) BALLAST_HERE {
      constexpr int kChunk = chunk<Type>(j) + Type::kDistance * kLatter;
      constexpr int group = Type::kGroup == 32 ? kChunk : 2 * kChunk + piece;
      const Bytes64<4> numbers = Type::template numbers<j>(RawOfLanes<Type, kLatter>{raw});
      const __m512i scale = _mm512_srai_epi16((byte_of_lanes<group, true>(scales)), 8);
      times<4>([&](auto d) BALLAST_HERE {
        const __m512i bytes = _mm512_sub_epi8(numbers.v[d], _mm512_set1_epi8(Type::kZero));
        store_words(bytes, scale, lines + 16 * kChunk + 8 * piece + 2 * d);
      });
    });
  });
  auto* float_lines = lines + kFolding.all_pairs();
  const __m512 scale = f16_of_lanes(p, Type::kScale);
  times<Type::kFolds>([&](auto f) { _mm512_store_ps(float_lines[f], scale); });
  if constexpr (Type::kOffset) {
    const Bytes64<4> offsets = transposed(offset_rows, 0);
    times<256 / Type::kGroup>([&](auto g) BALLAST_HERE {
      const __m512i m = byte_of_lanes<g, false>(offsets);
      _mm512_store_si512(lines[kSpan / 2 + g], _mm512_mullo_epi16(m, four_and_one()));
    });
    const __m512 negative = _mm512_sub_ps(_mm512_setzero_ps(), f16_of_lanes(p, Type::kScale + 2));
    _mm512_store_ps(float_lines[Type::kFolds], negative);
  }
}

/// Fills half `half` with `count` rows, the first at `first`; `numbers` of the span are there.
template <typename Type>
void fill_half(Bytes first, std::size_t stride, std::size_t count, std::size_t numbers,
               std::size_t half, IntegerPanel& panel) {
  Bytes p[kLanes];
  for (std::size_t r = 0; r < kLanes; ++r) p[r] = first + std::min(r, count - 1) * stride;
  if (numbers == kSpan) return fill<Type>(p, half, panel);
  std::uint8_t padded[kLanes][kSpanBytes<Type>] = {};
  for (std::size_t r = 0; r < kLanes; ++r) {
    std::memcpy(padded[r], p[r], numbers / Type::kNumbers * Type::kBytes);
    p[r] = padded[r];
  }
  fill<Type>(p, half, panel);
}

/// Adds a span to the totals of 32 rows and M activations.
template <int M>
void multiply_tile(const Folding& folding, const IntegerPanel& panel, const IntegerTile& x,
                   bool ask, float (*totals)[IntegerPanel::kRows]) {
  constexpr std::size_t kColumns = IntegerTile::kColumns;
  alignas(64) float sums[2][M][kLanes];
  const std::int32_t(*first)[kLanes] = panel.lines[0], (*second)[kLanes] = panel.lines[1];
  const std::int32_t(*first_scale)[kLanes] = first + folding.all_pairs();
  const std::int32_t(*second_scale)[kLanes] = second + folding.all_pairs();
  const std::int16_t(*pairs)[kColumns][2] = x.pairs;
  const int folds = folding.folds + folding.offsets;
  std::size_t asked = IntegerPanel::kRows / 2;
  for (int f = 0; f < folds; ++f) {
    if (f == folding.folds) pairs = x.pairs + folding.sums;
    __m512i a[M], b[M];
    times<M>([&](auto c) BALLAST_HERE { a[c] = b[c] = _mm512_setzero_si512(); });
    const int count = f < folding.folds ? folding.pairs : folding.offset_pairs;
    for (int k = 0; k < count; ++k) {
      if (ask && k % 8 == 0 && f < folding.folds) ask_for_row(panel, asked++);
      const __m512i u = _mm512_load_si512(first + k), v = _mm512_load_si512(second + k);
      times<M>([&](auto c) BALLAST_HERE {
        __m512i pair;
        asm("vpbroadcastd %1, %0" : "=v"(pair) : "m"(pairs[k][c]));
        a[c] = _mm512_dpwssd_epi32(a[c], u, pair);
        b[c] = _mm512_dpwssd_epi32(b[c], v, pair);
      });
    }
    first += count;
    second += count;
    pairs += count;
    const __m512 u = _mm512_load_ps(first_scale++), v = _mm512_load_ps(second_scale++);
    const bool last = f + 1 == folds;
    times<M>([&](auto c) BALLAST_HERE {
      __m512 s = _mm512_cvtepi32_ps(a[c]), t = _mm512_cvtepi32_ps(b[c]);
      if (f == 0) {
        s = _mm512_mul_ps(s, u);
        t = _mm512_mul_ps(t, v);
      } else {
        s = _mm512_fmadd_ps(s, u, _mm512_load_ps(sums[0][c]));
        t = _mm512_fmadd_ps(t, v, _mm512_load_ps(sums[1][c]));
      }
      if (!last) {
        _mm512_store_ps(sums[0][c], s);
        _mm512_store_ps(sums[1][c], t);
      } else {
        const __m512 scale = _mm512_set1_ps(x.scale[c]);
        float* out = totals[c];
        _mm512_storeu_ps(out, _mm512_fmadd_ps(s, scale, _mm512_loadu_ps(out)));
        _mm512_storeu_ps(out + kLanes, _mm512_fmadd_ps(t, scale, _mm512_loadu_ps(out + kLanes)));
      }
    });
  }
}

/// Calls `action` with the type.
template <typename Action>
auto with_type(TensorType type, Action&& action) {
  switch (type) {
    case TensorType::q4_0:
      return action(TypeQ4_0());
    case TensorType::q4_1:
      return action(TypeQ4_1());
    case TensorType::q5_0:
      return action(TypeQ5_0());
    case TensorType::q5_1:
      return action(TypeQ5_1());
    case TensorType::q8_0:
      return action(TypeQ8_0());
    case TensorType::q2_k:
      return action(TypeQ2_K());
    case TensorType::q3_k:
      return action(TypeQ3_K());
    case TensorType::q4_k:
      return action(TypeQ4_K());
    case TensorType::q5_k:
      return action(TypeQ5_K());
    case TensorType::q6_k:
      return action(TypeQ6_K());
    case TensorType::iq4_nl:
      return action(TypeIq4Nl());
    default:
      fail("weights of type {} are not multiplied as integers", to_string(type));
  }
}

Bytes bytes(const std::byte* p) { return reinterpret_cast<Bytes>(p); }

}  // namespace integers

void round_to_integers(const float* x, std::size_t n, IntegerSpan* out) {
  for (std::size_t i = 0; i < n; i += kSpan) {
    integers::round_row(x + i, std::min(kSpan, n - i), *out++);
  }
}

void round_to_tiles(ConstMatrix x, IntegerTile* out, std::size_t stride) {
  for (std::size_t i = 0; i < x.cols; i += kSpan, out += stride) {
    integers::round_tile(x, i, *out);
  }
}

void integer_dots(TensorType type, const std::byte* rows, std::size_t row_bytes, std::size_t count,
                  std::size_t n, const IntegerSpan* x, std::size_t columns, float* out,
                  std::size_t out_stride) {
  integers::with_type(type, [&](auto t) {
    integers::all_dots<decltype(t)>(integers::bytes(rows), row_bytes, count, n, x, columns, out,
                                    out_stride);
  });
}

void fill_panel(TensorType type, const std::byte* rows, std::size_t row_bytes, std::size_t count,
                std::size_t n, std::size_t span, std::size_t ahead, IntegerPanel& out) {
  constexpr std::size_t kLanes = integers::kLanes;
  integers::with_type(type, [&](auto t) {
    using Type = decltype(t);
    const std::size_t numbers = std::min(kSpan, n - span * kSpan);
    const integers::Bytes first = integers::bytes(rows) + span * integers::kSpanBytes<Type>;
    out.next = {rows + ahead * row_bytes + span * integers::kSpanBytes<Type>, row_bytes,
                integers::kSpanBytes<Type>};
    integers::fill_half<Type>(first, row_bytes, std::min(count, kLanes), numbers, 0, out);
    if (count <= kLanes) return;
    integers::fill_half<Type>(first + kLanes * row_bytes, row_bytes, count - kLanes, numbers, 1,
                              out);
  });
}

void multiply_panel(TensorType type, const IntegerPanel& panel, const IntegerTile& x,
                    std::size_t columns, bool ask, float (*totals)[IntegerPanel::kRows]) {
  const integers::Folding folding =
      integers::with_type(type, [](auto t) { return integers::folding<decltype(t)>(); });
  switch (columns) {
    case 1:
      return integers::multiply_tile<1>(folding, panel, x, ask, totals);
    case 2:
      return integers::multiply_tile<2>(folding, panel, x, ask, totals);
    case 3:
      return integers::multiply_tile<3>(folding, panel, x, ask, totals);
    case 4:
      return integers::multiply_tile<4>(folding, panel, x, ask, totals);
    case 5:
      return integers::multiply_tile<5>(folding, panel, x, ask, totals);
    default:
      return integers::multiply_tile<6>(folding, panel, x, ask, totals);
  }
}

}  // namespace ballast
HWY_POP_ATTRIBUTES

#else

namespace ballast {

// multiplies_integers() is false everywhere else.
void round_to_integers(const float*, std::size_t, IntegerSpan*) { fail("no integer products"); }
void round_to_tiles(ConstMatrix, IntegerTile*, std::size_t) { fail("no integer products"); }
void integer_dots(TensorType, const std::byte*, std::size_t, std::size_t, std::size_t,
                  const IntegerSpan*, std::size_t, float*, std::size_t) {
  fail("no integer products");
}
void fill_panel(TensorType, const std::byte*, std::size_t, std::size_t, std::size_t, std::size_t,
                std::size_t, IntegerPanel&) {
  fail("no integer products");
}
void multiply_panel(TensorType, const IntegerPanel&, const IntegerTile&, std::size_t, bool,
                    float (*)[IntegerPanel::kRows]) {
  fail("no integer products");
}

}  // namespace ballast

#endif
