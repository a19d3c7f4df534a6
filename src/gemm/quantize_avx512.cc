// Quantization and packing of activations with AVX-512.
#include "gemm/kernels.h"
#include "gemm/tile_gemm.h"

#if defined(__x86_64__)

// Code from here on needs has_avx512_vnni().
HWY_PUSH_ATTRIBUTES(BALLAST_AVX512_VNNI_TARGET)
#include "gemm/avx512-inl.h"
#include "gemm/quant_types-inl.h"

namespace ballast::gemm::avx512 {
namespace {

/// 256 integers.
struct QuantizedSuperblock {
  __m512i v[16];
  float scale;
};

/// Quantizes k elements, 0 < k <= kSuperblock, padded with zeros.
BALLAST_INLINE QuantizedSuperblock quantize_superblock(const float* x, std::size_t k) {
  __m512 elements[16];
  __m512i max = _mm512_setzero_si512();
  for (std::size_t i = 0; i < 16; ++i) {
    const std::size_t left = k - std::min(k, 16 * i);
    const auto mask = static_cast<__mmask16>((1u << std::min<std::size_t>(left, 16)) - 1);
    elements[i] = _mm512_maskz_loadu_ps(mask, x + 16 * i);
    // Bits of magnitudes order as the floats do, with infinity and NaN on top.
    const __m512i magnitude =
        _mm512_and_si512(_mm512_castps_si512(elements[i]), _mm512_set1_epi32(0x7fffffff));
    max = _mm512_max_epi32(max, magnitude);
  }
  const std::int32_t bits = _mm512_reduce_max_epi32(max);
  float largest;
  std::memcpy(&largest, &bits, sizeof(largest));
  QuantizedSuperblock out;
  // Below 2⁻¹¹⁰ the reciprocal overflows.
  const bool nonzero = largest >= 0x1p-110f, finite = bits < 0x7f800000;
  out.scale = !finite ? __builtin_nanf("") : nonzero ? largest / kActivationMax : 0.0f;
  const __m512 factor = _mm512_set1_ps(finite && nonzero ? kActivationMax / largest : 0.0f);
  for (std::size_t i = 0; i < 16; ++i) {
    out.v[i] = _mm512_cvtps_epi32(_mm512_mul_ps(elements[i], factor));
  }
  return out;
}

/// The sum of each vector's 16 elements.
BALLAST_INLINE __m512i sums_of_16(const __m512i (&v)[16]) {
  __m512i four[4];
  for (int i = 0; i < 4; ++i) {
    four[i] = hadd_4({v[4 * i], v[4 * i + 1], v[4 * i + 2], v[4 * i + 3]});
  }
  // The 128-bit lanes of each four are still to be summed.
  const __m512i a = _mm512_add_epi32(_mm512_shuffle_i32x4(four[0], four[1], 0x44),
                                     _mm512_shuffle_i32x4(four[0], four[1], 0xee));
  const __m512i b = _mm512_add_epi32(_mm512_shuffle_i32x4(four[2], four[3], 0x44),
                                     _mm512_shuffle_i32x4(four[2], four[3], 0xee));
  return _mm512_add_epi32(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xdd));
}

/// The sums of 32 elements from those of 16.
BALLAST_INLINE __m256i sums_of_32(__m512i sums) {
  const __m512i pairs = _mm512_add_epi32(sums, _mm512_srli_epi64(sums, 32));
  return _mm512_cvtepi64_epi32(pairs);
}

/// sum = 4·high + low.
struct SplitSums {
  __m512i high, low;
};
BALLAST_INLINE SplitSums split_sums(__m512i sums) {
  const __m512i high = _mm512_srai_epi32(sums, 2);
  return {high, _mm512_and_si512(sums, _mm512_set1_epi32(3))};
}

/// v = 64·high + low.
struct HiLo {
  __m128i high, low;
};
BALLAST_INLINE HiLo split_hi_lo(__m512i v) {
  const __m512i high =
      _mm512_srai_epi32(_mm512_add_epi32(v, _mm512_set1_epi32(1 << (kLowBits - 1))), kLowBits);
  return {_mm512_cvtepi32_epi8(high),
          _mm512_cvtepi32_epi8(_mm512_sub_epi32(v, _mm512_slli_epi32(high, kLowBits)))};
}

void quantize_superblock(const float* x, std::size_t k, QuantizedActivations& out) {
  const QuantizedSuperblock quantized = quantize_superblock(x, k);
  out.scale = quantized.scale;
  for (int i = 0; i < 16; ++i) {
    const auto [highs, lows] = split_hi_lo(quantized.v[i]);
    const int chunk = i / 2, half = i % 2;
    auto& in_chunks = out.chunks[chunk % 4];
    store_128(in_chunks.high + chunk / 4 * 32 + half * 16, highs);
    store_128(in_chunks.low + chunk / 4 * 32 + half * 16, lows);
    auto& in_pairs = out.pairs[chunk / 4 * 2 + chunk % 2];
    store_128(in_pairs.high + chunk % 4 / 2 * 32 + half * 16, highs);
    store_128(in_pairs.low + chunk % 4 / 2 * 32 + half * 16, lows);
    auto& in_half_blocks = out.half_blocks[chunk / 4 * 2 + half];
    store_128(in_half_blocks.high + chunk % 4 * 16, highs);
    store_128(in_half_blocks.low + chunk % 4 * 16, lows);
  }
  for (int j = 0; j < 4; ++j) {
    const __m512i ones = _mm512_set1_epi8(1);
    const __m512i high =
        _mm512_dpbusd_epi32(_mm512_setzero_si512(), ones, _mm512_load_si512(out.chunks[j].high));
    const __m512i sums4 = _mm512_dpbusd_epi32(_mm512_slli_epi32(high, kLowBits), ones,
                                              _mm512_load_si512(out.chunks[j].low));
    _mm512_store_si512(out.sums4 + 16 * j, _mm512_slli_epi32(sums4, 5));
  }
  const __m512i sums16 = sums_of_16(quantized.v);
  const __m256i sums32 = sums_of_32(sums16);
  store_256(out.sums32, sums32);
  const auto split16 = split_sums(sums16), split32 = split_sums(_mm512_castsi256_si512(sums32));
  store_256(out.sums16_high, _mm512_cvtepi32_epi16(split16.high));
  store_256(out.sums16_low, _mm512_cvtepi32_epi16(split16.low));
  auto low_half = [](__m512i v) { return _mm256_cvtepi32_epi16(_mm512_castsi512_si256(v)); };
  store_128(out.sums32_high, low_half(split32.high));
  store_128(out.sums32_low, low_half(split32.low));
}

void quantize_superblock(const float* x, std::size_t k, QuantizedActivationsI16& out) {
  const QuantizedSuperblock quantized = quantize_superblock(x, k);
  out.scale = quantized.scale;
  for (std::size_t i = 0; i < 16; ++i) {
    _mm512_store_si512(out.pairs[16 * i],
                       _mm512_and_si512(quantized.v[i], _mm512_set1_epi32(0xffff)));
  }
}

void quantize_superblock(const float* x, std::size_t k, SmallBatchActivations& out) {
  const QuantizedSuperblock quantized = quantize_superblock(x, k);
  out.scale = quantized.scale;
  for (int i = 0; i < 16; ++i) {
    const HiLo parts = split_hi_lo(quantized.v[i]);
    auto& block = out.blocks[i / 2];
    store_128(block.high + i % 2 * 16, parts.high);
    store_128(block.low + i % 2 * 16, parts.low);
  }
  const __m512i sums16 = sums_of_16(quantized.v);
  store_256(out.sums32, sums_of_32(sums16));
  _mm512_storeu_si512(out.sums16, sums16);
}

/// Writes the sums of 32 and of 16 elements as pairs of high and low.
BALLAST_INLINE void store_sum_pairs(const QuantizedSuperblock& quantized, void* of_32,
                                    void* of_16) {
  const __m512i sums16 = sums_of_16(quantized.v);
  auto pair = [](__m512i sums, __m512i& out) BALLAST_INLINE_LAMBDA {
    const SplitSums split = split_sums(sums);
    out = _mm512_or_si512(_mm512_and_si512(split.high, _mm512_set1_epi32(0xffff)),
                          _mm512_slli_epi32(split.low, 16));
  };
  __m512i pairs32, pairs16;
  pair(_mm512_castsi256_si512(sums_of_32(sums16)), pairs32);
  pair(sums16, pairs16);
  store_256(of_32, _mm512_castsi512_si256(pairs32));
  _mm512_storeu_si512(of_16, pairs16);
}

/// Writes the pairs of one activation; returns its scale.
float pack_row(const float* x, std::size_t k, std::int32_t* pairs) {
  const QuantizedSuperblock quantized = quantize_superblock(x, k);
  for (std::size_t i = 0; i < 16; ++i) {
    // Of each four: elements 0 and 2 in the first pair, 1 and 3 in the second.
    const __m512i swapped = _mm512_shuffle_epi32(quantized.v[i], static_cast<_MM_PERM_ENUM>(0xd8));
    const __m512i even = _mm512_and_si512(swapped, _mm512_set1_epi32(0xffff));
    const __m512i odd = _mm512_slli_epi64(_mm512_srli_epi64(swapped, 32), 16);
    store_256(pairs + 8 * i, _mm512_cvtepi64_epi32(_mm512_or_si512(even, odd)));
  }
  store_sum_pairs(quantized, pairs + ActivationPanel::kSums32, pairs + ActivationPanel::kSums16);
  return quantized.scale;
}

/// Transposes 8 × 8 elements.
BALLAST_INLINE void transpose_8x8(__m256i (&v)[8]) {
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

/// Packs elements from `begin` on of all rows of x; rows that are missing become zeros.
void pack_panel(ConstMatrix x, std::size_t begin, ActivationPanel& out) {
  constexpr std::size_t kM = ActivationPanel::kM, kPairs = ActivationPanel::kPairs;
  alignas(64) std::int32_t rows[kM][kPairs] = {};
  for (std::size_t c = 0; c < x.rows; ++c) {
    out.scale[c] = pack_row(x.row(c) + begin, std::min(kSuperblock, x.cols - begin), rows[c]);
  }
  for (std::size_t p = 0; p < kPairs; p += 8) {
    __m256i v[8];
    unroll<8>([&](auto c) BALLAST_INLINE_LAMBDA {
      v[c] = c < kM ? _mm256_load_si256(reinterpret_cast<const __m256i*>(rows[c] + p))
                    : _mm256_setzero_si256();
    });
    transpose_8x8(v);
    unroll<8>([&](auto i) BALLAST_INLINE_LAMBDA {
      const auto mask = static_cast<__mmask8>((1 << kM) - 1);
      _mm256_mask_storeu_epi32(out.pairs[p + i], mask, v[i]);
    });
  }
}

/// Packs activation j of a panel for tiles.
void pack_row(const float* x, std::size_t k, std::size_t j, TileActivations& out) {
  const QuantizedSuperblock quantized = quantize_superblock(x, k);
  for (std::size_t i = 0; i < 16; ++i) {
    const HiLo parts = split_hi_lo(quantized.v[i]);
    store_128(out.high[i / 4][j] + i % 4 * 16, parts.high);
    store_128(out.low[i / 4][j] + i % 4 * 16, parts.low);
  }
  store_sum_pairs(quantized, out.sums[j][0], out.sums[j][8]);
  out.scale[j] = quantized.scale;
}

}  // namespace

void quantize(const float* x, std::size_t k, QuantizedActivations* out) {
  for (std::size_t i = 0; i < k; i += kSuperblock) {
    quantize_superblock(x + i, std::min(kSuperblock, k - i), *out++);
  }
}

void quantize(const float* x, std::size_t k, QuantizedActivationsI16* out) {
  for (std::size_t i = 0; i < k; i += kSuperblock) {
    quantize_superblock(x + i, std::min(kSuperblock, k - i), *out++);
  }
}

void quantize(const float* x, std::size_t k, SmallBatchActivations* out, std::size_t stride) {
  for (std::size_t i = 0; i < k; i += kSuperblock, out += stride) {
    quantize_superblock(x + i, std::min(kSuperblock, k - i), *out);
  }
}

void pack_activations(ConstMatrix x, ActivationPanel* out, std::size_t stride) {
  for (std::size_t i = 0; i < x.cols; i += kSuperblock, out += stride) {
    pack_panel(x, i, *out);
  }
}

}  // namespace ballast::gemm::avx512

namespace ballast {

void pack_activations(ConstMatrix x, TileActivations* out, std::size_t stride) {
  for (std::size_t i = 0; i < x.cols; i += kSuperblock, out += stride) {
    if (x.rows < TileActivations::kM) *out = {};
    for (std::size_t j = 0; j < x.rows; ++j) {
      gemm::avx512::pack_row(x.row(j) + i, std::min(kSuperblock, x.cols - i), j, *out);
    }
  }
}

}  // namespace ballast
HWY_POP_ATTRIBUTES

#endif
