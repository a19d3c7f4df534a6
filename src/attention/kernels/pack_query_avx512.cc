// Packs queries for keys of bf16, int8 and int4: see avx512.h.
#include <hwy/base.h>
#include <hwy/detect_targets.h>

#include "attention/kernels/attention_kernels.h"
#include "attention/kernels/avx512.h"

#if HWY_ARCH_X86 && defined(__GNUC__)
#include "attention/kernels/packed_query_avx512-inl.h"

HWY_PUSH_ATTRIBUTES(BALLAST_AVX512_BF16_TARGET)
#include "simd/bf16_tiles-inl.h"
namespace ballast::kernels::avx512 {
namespace {

// Mask of the elements begin .. begin + 15 that the row has.
inline __mmask16 lanes_of(std::span<const float> row, std::size_t begin) {
  const std::size_t count = row.size() - std::min(begin, row.size());
  return static_cast<__mmask16>((1u << std::min(count, kWide)) - 1);
}

// bf16_encode(), except that every NaN becomes the same one.
inline __m256i bf16_words(__m512 x) {
  const auto bits = _mm512_castps_si512(x);
  const auto magnitude = _mm512_and_si512(bits, _mm512_set1_epi32(0x7FFFFFFF));
  const auto odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const auto half = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF));
  const auto rounded = _mm512_srli_epi32(_mm512_add_epi32(magnitude, half), 16);
  const auto finite = _mm512_min_epu32(rounded, _mm512_set1_epi32(0x7F7F));
  const auto sign = _mm512_srli_epi32(_mm512_xor_si512(bits, magnitude), 16);
  const auto nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  return _mm512_cvtepi32_epi16(
      _mm512_mask_mov_epi32(_mm512_or_si512(sign, finite), nan, _mm512_set1_epi32(0x7FC0)));
}

// Behind the row stands a copy in the order of tiles, where they are used, else zeros.
void pack_bf16(std::span<const float> row, float* out) {
  const std::size_t size = packed_size(row.size());
  auto* words = reinterpret_cast<std::uint16_t*>(out);
  for (std::size_t i = 0; i < size; i += kWide) {
    const auto numbers = _mm512_maskz_loadu_ps(lanes_of(row, i), row.data() + i);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(words + i), bf16_words(numbers));
  }
  if (!has_amx_bf16()) return std::fill(words + size, words + 2 * size, std::uint16_t{0});
  for (std::size_t i = 0; i < size; i += 2 * kWide) {
    _mm512_storeu_si512(words + size + i, tile_order(_mm512_loadu_si512(words + i)));
  }
}

// The largest magnitude; NaN if any element is not finite.
float magnitude(std::span<const float> row) {
  auto largest = _mm512_setzero_ps(), finite = largest;
  for (std::size_t i = 0; i < row.size(); i += kWide) {
    const auto x = _mm512_maskz_loadu_ps(lanes_of(row, i), row.data() + i);
    largest = _mm512_max_ps(largest, _mm512_abs_ps(x));
    finite = _mm512_fmadd_ps(x, _mm512_setzero_ps(), finite);
  }
  return _mm512_reduce_max_ps(largest) + _mm512_reduce_add_ps(finite);
}

// Quantizes elements x to codes round(x · most / largest). Codes are zero if the largest is 0 or
// NaN; the unit then carries the result.
class Coder {
 public:
  Coder(float largest, double most)
      : any_(largest > 0.0f), factor_(_mm512_set1_pd(most / static_cast<double>(largest))) {}
  // Codes of elements begin .. begin + 15; 0 past the end of the row.
  __m512i codes(std::span<const float> row, std::size_t begin) const {
    const __mmask16 lanes = any_ ? lanes_of(row, begin) : __mmask16{0};
    const auto x = _mm512_maskz_loadu_ps(lanes, row.data() + begin);
    const auto eight = [&](__m256 numbers) {
      return _mm512_cvtpd_epi32(_mm512_mul_pd(_mm512_cvtps_pd(numbers), factor_));
    };
    const auto low = eight(_mm512_castps512_ps256(x)), high = eight(_mm512_extractf32x8_ps(x, 1));
    return _mm512_maskz_inserti32x8(lanes, _mm512_castsi256_si512(low), high, 1);
  }

 private:
  bool any_;
  __m512d factor_;
};

inline void store_bytes(std::int8_t* at, __m512i codes) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(at), _mm512_cvtepi32_epi8(codes));
}

void pack_int8(std::span<const float> row, float* out) {
  constexpr double kMost = 127 * 128 + 63;
  const std::size_t size = packed_size(row.size());
  const float largest = magnitude(row);
  *Codes<StorageType::int8>::units(out, size) = largest / static_cast<float>(kMost);
  auto* starts = reinterpret_cast<std::int32_t*>(Codes<StorageType::int8>::sums(out, size));
  auto* group = reinterpret_cast<std::int8_t*>(out);
  const Coder coder(largest, kMost);
  for (std::size_t g = 0; g < size / kQuantGroup; ++g, group += 2 * kQuantGroup) {
    std::int32_t sum = 0;
    for (std::size_t i = 0; i < kQuantGroup; i += kWide) {
      const auto codes = coder.codes(row, g * kQuantGroup + i);
      const auto high = _mm512_srai_epi32(_mm512_add_epi32(codes, _mm512_set1_epi32(64)), 7);
      store_bytes(group + i, high);
      store_bytes(group + kQuantGroup + i, _mm512_sub_epi32(codes, _mm512_slli_epi32(high, 7)));
      sum += _mm512_reduce_add_epi32(codes);
    }
    starts[g] = -sum;
  }
}

void pack_int4(std::span<const float> row, float* out) {
  const std::size_t size = packed_size(row.size());
  auto* codes = reinterpret_cast<std::int8_t*>(out);
  for (std::size_t g = 0; g < size / kQuantGroup; ++g) {
    const std::size_t begin = g * kQuantGroup;
    const auto group = row.subspan(begin, std::min(kQuantGroup, row.size() - begin));
    const float largest = magnitude(group), unit = largest / 127.0f;
    const Coder coder(largest, 127.0);
    const auto first = coder.codes(group, 0), second = coder.codes(group, kWide);
    store_bytes(codes + begin, first);
    store_bytes(codes + begin + kWide, second);
    const std::int32_t sum = _mm512_reduce_add_epi32(_mm512_add_epi32(first, second));
    Codes<StorageType::int4>::sums(out, size)[g] = static_cast<float>(sum) * unit;
    Codes<StorageType::int4>::units(out, size)[g] = unit;
  }
}

}  // namespace

void pack_query(StorageType type, std::span<const float> row, float* out) {
  if (type == StorageType::bf16) return pack_bf16(row, out);
  if (type == StorageType::int8) return pack_int8(row, out);
  pack_int4(row, out);
}

}  // namespace ballast::kernels::avx512
HWY_POP_ATTRIBUTES

#else

namespace ballast::kernels::avx512 {

void pack_query(StorageType, std::span<const float>, float*) {}

}  // namespace ballast::kernels::avx512

#endif
