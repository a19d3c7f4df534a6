// Quantization and packing of activations with AVX2. It takes a hundredth of a product's time:
// loops that compilers vectorize stay plain.
#include "gemm/kernels.h"

#if defined(__x86_64__)

// Code from here on needs has_avx2().
HWY_PUSH_ATTRIBUTES(BALLAST_AVX2_TARGET)

namespace ballast::gemm::avx2 {
namespace {

constexpr std::size_t kLanes = 8;

struct QuantizedSuperblock {
  alignas(32) std::int32_t v[kSuperblock];
  std::int32_t sums16[kSuperblock / 16], sums32[kSuperblock / 32];
  float scale;
};

/// Quantizes k elements, 0 < k <= kSuperblock, padded with zeros.
void quantize_superblock(const float* x, std::size_t k, QuantizedSuperblock& out) {
  alignas(32) float padded[kSuperblock];
  if (k < kSuperblock) {
    std::fill(std::copy_n(x, k, padded), padded + kSuperblock, 0.0f);
    x = padded;
  }
  // Bits of magnitudes order as the floats do, with infinity and NaN on top.
  const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
  __m256i max = _mm256_setzero_si256();
  for (std::size_t i = 0; i < kSuperblock; i += kLanes) {
    const __m256 bits = _mm256_and_ps(_mm256_loadu_ps(x + i), magnitude);
    max = _mm256_max_epi32(max, _mm256_castps_si256(bits));
  }
  alignas(32) std::int32_t all[kLanes];
  _mm256_store_si256(reinterpret_cast<__m256i*>(all), max);
  const std::int32_t bits = *std::max_element(all, all + kLanes);
  float largest;
  std::memcpy(&largest, &bits, sizeof(largest));
  // Below 2⁻¹¹⁰ the reciprocal overflows.
  const bool nonzero = largest >= 0x1p-110f, finite = bits < 0x7f800000;
  out.scale = !finite ? __builtin_nanf("") : nonzero ? largest / kActivationMax : 0.0f;
  const __m256 factor = _mm256_set1_ps(finite && nonzero ? kActivationMax / largest : 0.0f);
  for (std::size_t i = 0; i < kSuperblock; i += kLanes) {
    const __m256i v = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + i), factor));
    _mm256_store_si256(reinterpret_cast<__m256i*>(out.v + i), v);
  }
  for (std::size_t g = 0; g < kSuperblock / 16; ++g) {
    const auto* v = reinterpret_cast<const __m256i*>(out.v + 16 * g);
    __m256i sum = _mm256_add_epi32(v[0], v[1]);
    sum = _mm256_hadd_epi32(sum, sum);
    sum = _mm256_hadd_epi32(sum, sum);
    out.sums16[g] = _mm256_extract_epi32(sum, 0) + _mm256_extract_epi32(sum, 4);
  }
  for (std::size_t b = 0; b < kSuperblock / 32; ++b) {
    out.sums32[b] = out.sums16[2 * b] + out.sums16[2 * b + 1];
  }
}

/// sum = 4·high + low.
template <std::size_t N>
void split_sums(const std::int32_t (&sums)[N], std::int16_t (&high)[N], std::int16_t (&low)[N]) {
  for (std::size_t i = 0; i < N; ++i) {
    high[i] = static_cast<std::int16_t>(sums[i] >> 2);
    low[i] = static_cast<std::int16_t>(sums[i] & 3);
  }
}

void quantize_superblock(const float* x, std::size_t k, QuantizedActivations& out) {
  QuantizedSuperblock quantized;
  quantize_superblock(x, k, quantized);
  out.scale = quantized.scale;
  alignas(32) std::int8_t high[kSuperblock], low[kSuperblock];
  for (std::size_t i = 0; i < kSuperblock; ++i) {
    const std::int32_t v = quantized.v[i], upper = (v + (1 << (kLowBits - 1))) >> kLowBits;
    high[i] = static_cast<std::int8_t>(upper);
    low[i] = static_cast<std::int8_t>(v - (upper << kLowBits));
  }
  for (std::size_t i = 0; i < kSuperblock / 16; ++i) {
    const std::size_t chunk = i / 2, half = i % 2;
    auto store = [&](QuantizedActivations::HiLo& to, std::size_t at) {
      std::memcpy(to.high + at, high + 16 * i, 16);
      std::memcpy(to.low + at, low + 16 * i, 16);
    };
    store(out.chunks[chunk % 4], chunk / 4 * 32 + half * 16);
    store(out.half_blocks[chunk / 4 * 2 + half], chunk % 4 * 16);
  }
  std::copy_n(quantized.sums32, kSuperblock / 32, out.sums32);
  split_sums(quantized.sums32, out.sums32_high, out.sums32_low);
  split_sums(quantized.sums16, out.sums16_high, out.sums16_low);
}

/// Packs two int16.
std::int32_t pack_pair(std::int32_t first, std::int32_t second) {
  return static_cast<std::int32_t>((static_cast<std::uint32_t>(first) & 0xffff) |
                                   static_cast<std::uint32_t>(second) << 16);
}

void quantize_superblock(const float* x, std::size_t k, QuantizedActivationsI16& out) {
  QuantizedSuperblock quantized;
  quantize_superblock(x, k, quantized);
  out.scale = quantized.scale;
  alignas(32) std::int32_t pairs[kSuperblock / 2];
  for (std::size_t i = 0; i < kSuperblock / 2; ++i) {
    const std::int32_t* v = quantized.v + i / 8 * 16 + i % 8;
    pairs[i] = pack_pair(v[0], v[8]);
  }
  std::memcpy(out.pairs, pairs, sizeof(pairs));
}

/// Packs elements from `begin` on of all rows of x; rows that are missing become zeros.
void pack_panel(ConstMatrix x, std::size_t begin, ActivationPanel& out) {
  alignas(32) std::int32_t pairs[ActivationPanel::kPairs];
  for (std::size_t c = 0; c < ActivationPanel::kM; ++c) {
    if (c < x.rows) {
      QuantizedSuperblock quantized;
      quantize_superblock(x.row(c) + begin, std::min(kSuperblock, x.cols - begin), quantized);
      out.scale[c] = quantized.scale;
      for (std::size_t i = 0; i < kSuperblock / 4; ++i) {
        const std::int32_t* v = quantized.v + 4 * i;
        pairs[2 * i] = pack_pair(v[0], v[2]);
        pairs[2 * i + 1] = pack_pair(v[1], v[3]);
      }
      for (std::size_t b = 0; b < kSuperblock / 32; ++b) {
        const std::int32_t sum = quantized.sums32[b];
        pairs[ActivationPanel::kSums32 + b] = pack_pair(sum >> 2, sum & 3);
      }
      for (std::size_t g = 0; g < kSuperblock / 16; ++g) {
        const std::int32_t sum = quantized.sums16[g];
        pairs[ActivationPanel::kSums16 + g] = pack_pair(sum >> 2, sum & 3);
      }
    } else {
      std::fill_n(pairs, ActivationPanel::kPairs, 0);
    }
    for (std::size_t i = 0; i < ActivationPanel::kPairs; ++i) {
      std::memcpy(out.pairs[i][c], &pairs[i], sizeof(pairs[i]));
    }
  }
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

void pack_activations(ConstMatrix x, ActivationPanel* out, std::size_t stride) {
  for (std::size_t i = 0; i < x.cols; i += kSuperblock, out += stride) pack_panel(x, i, *out);
}

}  // namespace ballast::gemm::avx2
HWY_POP_ATTRIBUTES

#endif
