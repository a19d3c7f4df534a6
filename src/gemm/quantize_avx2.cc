// Activations as integers, with AVX2. Rounding costs a hundredth of the products: where compilers
// find the vectors, it is plain loops.
#include "gemm/kernels.h"

#if defined(__x86_64__)

// Everything from here on may only run where has_avx2() says so.
HWY_PUSH_ATTRIBUTES(BALLAST_AVX2_TARGET)

namespace ballast::gemm::avx2 {
namespace {

constexpr std::size_t kLanes = 8;

struct Rounded {
  alignas(32) std::int32_t v[kSpan];
  std::int32_t sums16[kSpan / 16], sums32[kSpan / 32];
  float scale;
};

/// Rounds the n numbers at x, 0 < n <= kSpan, and zeros behind them.
void round_span(const float* x, std::size_t n, Rounded& out) {
  alignas(32) float padded[kSpan];
  if (n < kSpan) {
    std::fill(std::copy_n(x, n, padded), padded + kSpan, 0.0f);
    x = padded;
  }
  // As integers, magnitudes are in order, with infinity and NaNs above all.
  const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
  __m256i most = _mm256_setzero_si256();
  for (std::size_t i = 0; i < kSpan; i += kLanes) {
    const __m256 bits = _mm256_and_ps(_mm256_loadu_ps(x + i), magnitude);
    most = _mm256_max_epi32(most, _mm256_castps_si256(bits));
  }
  alignas(32) std::int32_t all[kLanes];
  _mm256_store_si256(reinterpret_cast<__m256i*>(all), most);
  const std::int32_t bits = *std::max_element(all, all + kLanes);
  float largest;
  std::memcpy(&largest, &bits, sizeof(largest));
  // Numbers so small that the reciprocal overflows count as zeros.
  const bool some = largest >= 0x1p-110f, finite = bits < 0x7f800000;
  out.scale = !finite ? __builtin_nanf("") : some ? largest / kMostActivation : 0.0f;
  const __m256 factor = _mm256_set1_ps(finite && some ? kMostActivation / largest : 0.0f);
  for (std::size_t i = 0; i < kSpan; i += kLanes) {
    const __m256i v = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + i), factor));
    _mm256_store_si256(reinterpret_cast<__m256i*>(out.v + i), v);
  }
  for (std::size_t g = 0; g < kSpan / 16; ++g) {
    const auto* v = reinterpret_cast<const __m256i*>(out.v + 16 * g);
    __m256i sum = _mm256_add_epi32(v[0], v[1]);
    sum = _mm256_hadd_epi32(sum, sum);
    sum = _mm256_hadd_epi32(sum, sum);
    out.sums16[g] = _mm256_extract_epi32(sum, 0) + _mm256_extract_epi32(sum, 4);
  }
  for (std::size_t b = 0; b < kSpan / 32; ++b) {
    out.sums32[b] = out.sums16[2 * b] + out.sums16[2 * b + 1];
  }
}

/// sum = 4·high + low.
template <std::size_t N>
void in_parts(const std::int32_t (&sums)[N], std::int16_t (&high)[N], std::int16_t (&low)[N]) {
  for (std::size_t i = 0; i < N; ++i) {
    high[i] = static_cast<std::int16_t>(sums[i] >> 2);
    low[i] = static_cast<std::int16_t>(sums[i] & 3);
  }
}

void round_row(const float* x, std::size_t n, IntegerSpan& out) {
  Rounded rounded;
  round_span(x, n, rounded);
  out.scale = rounded.scale;
  alignas(32) std::int8_t high[kSpan], low[kSpan];
  for (std::size_t i = 0; i < kSpan; ++i) {
    const std::int32_t v = rounded.v[i], upper = (v + (1 << (kLowDigit - 1))) >> kLowDigit;
    high[i] = static_cast<std::int8_t>(upper);
    low[i] = static_cast<std::int8_t>(v - (upper << kLowDigit));
  }
  for (std::size_t i = 0; i < kSpan / 16; ++i) {
    const std::size_t chunk = i / 2, half = i % 2;
    auto put = [&](IntegerSpan::Digits& digits, std::size_t at) {
      std::memcpy(digits.high + at, high + 16 * i, 16);
      std::memcpy(digits.low + at, low + 16 * i, 16);
    };
    put(out.chunks[chunk % 4], chunk / 4 * 32 + half * 16);
    put(out.blocks[chunk / 4 * 2 + half], chunk % 4 * 16);
  }
  std::copy_n(rounded.sums32, kSpan / 32, out.sums);
  in_parts(rounded.sums32, out.high32, out.low32);
  in_parts(rounded.sums16, out.high16, out.low16);
}

/// A pair of words.
std::int32_t pair_of(std::int32_t first, std::int32_t second) {
  return static_cast<std::int32_t>((static_cast<std::uint32_t>(first) & 0xffff) |
                                   static_cast<std::uint32_t>(second) << 16);
}

void round_row(const float* x, std::size_t n, WordSpan& out) {
  Rounded rounded;
  round_span(x, n, rounded);
  out.scale = rounded.scale;
  alignas(32) std::int32_t pairs[kSpan / 2];
  for (std::size_t i = 0; i < kSpan / 2; ++i) {
    const std::int32_t* v = rounded.v + i / 8 * 16 + i % 8;
    pairs[i] = pair_of(v[0], v[8]);
  }
  std::memcpy(out.words, pairs, sizeof(pairs));
}

void round_tile(ConstMatrix x, std::size_t begin, IntegerTile& out) {
  alignas(32) std::int32_t pairs[IntegerTile::kPairs];
  for (std::size_t c = 0; c < IntegerTile::kColumns; ++c) {
    if (c < x.rows) {
      Rounded rounded;
      round_span(x.row(c) + begin, std::min(kSpan, x.cols - begin), rounded);
      out.scale[c] = rounded.scale;
      for (std::size_t i = 0; i < kSpan / 4; ++i) {
        const std::int32_t* v = rounded.v + 4 * i;
        pairs[2 * i] = pair_of(v[0], v[2]);
        pairs[2 * i + 1] = pair_of(v[1], v[3]);
      }
      for (std::size_t b = 0; b < kSpan / 32; ++b) {
        const std::int32_t sum = rounded.sums32[b];
        pairs[IntegerTile::kSums32 + b] = pair_of(sum >> 2, sum & 3);
      }
      for (std::size_t g = 0; g < kSpan / 16; ++g) {
        const std::int32_t sum = rounded.sums16[g];
        pairs[IntegerTile::kSums16 + g] = pair_of(sum >> 2, sum & 3);
      }
    } else {
      std::fill_n(pairs, IntegerTile::kPairs, 0);
    }
    for (std::size_t k = 0; k < IntegerTile::kPairs; ++k) {
      std::memcpy(out.pairs[k][c], &pairs[k], sizeof(pairs[k]));
    }
  }
}

}  // namespace

void round_to_integers(const float* x, std::size_t n, IntegerSpan* out) {
  for (std::size_t i = 0; i < n; i += kSpan) round_row(x + i, std::min(kSpan, n - i), *out++);
}

void round_to_integers(const float* x, std::size_t n, WordSpan* out) {
  for (std::size_t i = 0; i < n; i += kSpan) round_row(x + i, std::min(kSpan, n - i), *out++);
}

void round_to_tiles(ConstMatrix x, IntegerTile* out, std::size_t stride) {
  for (std::size_t i = 0; i < x.cols; i += kSpan, out += stride) round_tile(x, i, *out);
}

}  // namespace ballast::gemm::avx2
HWY_POP_ATTRIBUTES

#endif
