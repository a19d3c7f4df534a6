// Activations as integers, with AVX-512.
#include "gemm/kernels.h"

#if defined(__x86_64__)

// Everything from here on may only run where has_avx512_vnni() says so.
HWY_PUSH_ATTRIBUTES(BALLAST_AVX512_VNNI_TARGET)
#include "gemm/avx512-inl.h"
#include "gemm/quant_types-inl.h"

namespace ballast::gemm::avx512 {
namespace {

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
  out.scale = !finite ? __builtin_nanf("") : some ? largest / kMostActivation : 0.0f;
  const __m512 factor = _mm512_set1_ps(finite && some ? kMostActivation / largest : 0.0f);
  for (std::size_t i = 0; i < 16; ++i) {
    out.v[i] = _mm512_cvtps_epi32(_mm512_mul_ps(numbers[i], factor));
  }
  return out;
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

/// v = 64·high + low, as bytes.
struct Digits {
  __m128i high, low;
};
BALLAST_INLINE Digits digits_of(__m512i v) {
  const __m512i high =
      _mm512_srai_epi32(_mm512_add_epi32(v, _mm512_set1_epi32(1 << (kLowDigit - 1))), kLowDigit);
  return {_mm512_cvtepi32_epi8(high),
          _mm512_cvtepi32_epi8(_mm512_sub_epi32(v, _mm512_slli_epi32(high, kLowDigit)))};
}

void round_row(const float* x, std::size_t n, IntegerSpan& out) {
  const Rounded rounded = round_span(x, n);
  out.scale = rounded.scale;
  for (int i = 0; i < 16; ++i) {
    const auto [highs, lows] = digits_of(rounded.v[i]);
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
    const __m512i quads = _mm512_dpbusd_epi32(_mm512_slli_epi32(high, kLowDigit), ones,
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

void round_row(const float* x, std::size_t n, WordSpan& out) {
  const Rounded rounded = round_span(x, n);
  out.scale = rounded.scale;
  for (std::size_t i = 0; i < 16; ++i) {
    _mm512_store_si512(out.words[16 * i],
                       _mm512_and_si512(rounded.v[i], _mm512_set1_epi32(0xffff)));
  }
}

void round_lane(const float* x, std::size_t n, LaneSpan& out) {
  const Rounded rounded = round_span(x, n);
  out.scale = rounded.scale;
  for (int i = 0; i < 16; ++i) {
    const Digits digits = digits_of(rounded.v[i]);
    auto& block = out.blocks[i / 2];
    store_16(block.high + i % 2 * 16, digits.high);
    store_16(block.low + i % 2 * 16, digits.low);
  }
  const __m512i of_16 = sums_of_vectors(rounded.v);
  store_32(out.sums32, sums_of_32(of_16));
  _mm512_storeu_si512(out.sums16, of_16);
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
  auto pair = [](__m512i sums, __m512i& out) BALLAST_INLINE_LAMBDA {
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
  unroll<4>([&](auto i) BALLAST_INLINE_LAMBDA {
    two[2 * i] = _mm256_unpacklo_epi32(v[2 * i], v[2 * i + 1]);
    two[2 * i + 1] = _mm256_unpackhi_epi32(v[2 * i], v[2 * i + 1]);
  });
  unroll<2>([&](auto i) BALLAST_INLINE_LAMBDA {
    unroll<2>([&](auto k) BALLAST_INLINE_LAMBDA {
      const __m256i a = two[4 * i + k], b = two[4 * i + 2 + k];
      four[4 * i + 2 * k] = _mm256_unpacklo_epi64(a, b);
      four[4 * i + 2 * k + 1] = _mm256_unpackhi_epi64(a, b);
    });
  });
  unroll<4>([&](auto i) BALLAST_INLINE_LAMBDA {
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
    unroll<8>([&](auto c) BALLAST_INLINE_LAMBDA {
      v[c] = c < kColumns ? _mm256_load_si256(reinterpret_cast<const __m256i*>(columns[c] + k))
                          : _mm256_setzero_si256();
    });
    transpose_eight(v);
    unroll<8>([&](auto i) BALLAST_INLINE_LAMBDA {
      const auto mask = static_cast<__mmask8>((1 << kColumns) - 1);
      _mm256_mask_storeu_epi32(out.pairs[k + i], mask, v[i]);
    });
  }
}

}  // namespace

void round_to_integers(const float* x, std::size_t n, IntegerSpan* out) {
  for (std::size_t i = 0; i < n; i += kSpan) {
    round_row(x + i, std::min(kSpan, n - i), *out++);
  }
}

void round_to_integers(const float* x, std::size_t n, WordSpan* out) {
  for (std::size_t i = 0; i < n; i += kSpan) {
    round_row(x + i, std::min(kSpan, n - i), *out++);
  }
}

void round_to_lanes(const float* x, std::size_t n, LaneSpan* out, std::size_t stride) {
  for (std::size_t i = 0; i < n; i += kSpan, out += stride) {
    round_lane(x + i, std::min(kSpan, n - i), *out);
  }
}

void round_to_tiles(ConstMatrix x, IntegerTile* out, std::size_t stride) {
  for (std::size_t i = 0; i < x.cols; i += kSpan, out += stride) {
    round_tile(x, i, *out);
  }
}

}  // namespace ballast::gemm::avx512
HWY_POP_ATTRIBUTES

#endif
