// How int8 and int4 values are interleaved, and weights become codes (av_int_avx512.cc). Included
// within their target's attributes.
#pragma once

#include <array>

#include "attention/kernels/av_avx512-inl.h"

HWY_PUSH_ATTRIBUTES(BALLAST_AVX512_BF16_TARGET)
namespace ballast::kernels::avx512 {
namespace {

// The values of a block, four entries interleaved (int4 spread to bytes): a vector holds 16 columns
// of all four.
template <StorageType type>
class Integers : public Steps<4> {
 public:
  using Steps::Steps;

  std::size_t columns() const {  // vectors
    return up(dim(), type == StorageType::int4 ? kQuantGroup : kWide) / kWide;
  }
  // Interleaves C columns of four rows; the first row begins at `rows.data`. int8 takes one or two
  // columns, int4 the columns of one or two groups.
  template <std::size_t C>
  BALLAST_INLINE static void interleave(const RowSet& rows, __m512i (&columns)[C]) {
    constexpr std::size_t kChunks = type == StorageType::int4 ? C / 2 : C;
    __m512i chunks[kChunks];
    if constexpr (kChunks == 1) {
      chunks[0] = interleave_four(first_rows(rows, 0));
    } else {
      static_assert(kChunks == 2);
      const auto row = [&](std::size_t offset) BALLAST_INLINE_LAMBDA {
        return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(rows.data + offset));
      };
      const auto a = _mm512_inserti64x4(_mm512_castsi256_si512(row(0)), row(rows.stride), 1);
      const auto b =
          _mm512_inserti64x4(_mm512_castsi256_si512(row(2 * rows.stride)), row(rows.thrice), 1);
      unroll<2>([&](auto c) BALLAST_INLINE_LAMBDA { chunks[c] = interleave_two(a, b, c); });
    }
    unroll<kChunks>([&](auto c) BALLAST_INLINE_LAMBDA {
      if constexpr (type == StorageType::int4) {
        columns[2 * c] = sixteen_times(_mm512_slli_epi16(chunks[c], 4));
        columns[2 * c + 1] = sixteen_times(chunks[c]);
      } else {
        columns[c] = chunks[c];
      }
    });
  }

 private:
  // Index vector: byte j of 32-bit lane i selects element i of entry j.
  static __m512i words(int apart) {
    const auto word = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    return _mm512_add_epi8(_mm512_mullo_epi32(word, _mm512_set1_epi32(0x01010101)),
                           _mm512_set1_epi32(apart * 0x03020100));
  }
  BALLAST_INLINE static __m512i interleave_four(__m512i rows) {
    return _mm512_permutexvar_epi8(words(16), rows);
  }
  // Interleaves chunk c of two; a holds rows 0 and 1, b rows 2 and 3.
  BALLAST_INLINE static __m512i interleave_two(__m512i a, __m512i b, std::size_t c) {
    const auto from = _mm512_set1_epi8(static_cast<char>(c * 16));
    return _mm512_permutex2var_epi8(a, _mm512_add_epi8(words(32), from), b);
  }

  // 16 (n − 8) for the high nibble n of each byte.
  BALLAST_INLINE static __m512i sixteen_times(__m512i bytes) {
    constexpr int kXorThenAnd = 0x28;
    return _mm512_ternarylogic_epi32(bytes, _mm512_set1_epi8(static_cast<char>(0x80)),
                                     _mm512_set1_epi8(static_cast<char>(0xF0)), kXorThenAnd);
  }
};

constexpr std::size_t kVectors = kEntryBlock / kWide;

// x · factor, below 2²³, rounded to an integer in the low mantissa bits: adding 2²³ does both.
inline __m512i rounded(__m512 x, __m512 factor) {
  return (__m512i)_mm512_fmadd_ps(x, factor, _mm512_set1_ps(0x1p23f));
}

// Byte 0 of all 32-bit lanes of a and b, then byte 1 of all.
inline __m512i low_bytes(__m512i a, __m512i b) {
  alignas(64) static constexpr auto kOrder = [] {
    std::array<std::uint8_t, 64> order{};
    for (std::size_t i = 0; i < 64; ++i) order[i] = static_cast<std::uint8_t>(i % 32 * 4 + i / 32);
    return order;
  }();
  return _mm512_permutex2var_epi8(a, _mm512_load_si512(kOrder.data()), b);
}

inline void store_half(std::uint8_t* at, __m256i bytes) {
  _mm256_store_si256(reinterpret_cast<__m256i*>(at), bytes);
}

inline const std::uint32_t* four_codes(const std::uint8_t* at) {
  return reinterpret_cast<const std::uint32_t*>(at);
}

// A query's weights, kept in registers while codes are made for one group after another.
struct Weights {
  __m512 of[kVectors];
  BALLAST_INLINE explicit Weights(const float* weights) {
    unroll<kVectors>([&](auto v)
                         BALLAST_INLINE_LAMBDA { of[v] = _mm512_loadu_ps(weights + v * kWide); });
  }
};

// Products of the weights and a group's scales, and the maximum per lane.
struct Products {
  __m512 of[kVectors], most;
  BALLAST_INLINE Products(const Weights& weights, const float* scales) {
    unroll<kVectors>([&](auto v) BALLAST_INLINE_LAMBDA {
      of[v] = _mm512_mul_ps(weights.of[v], _mm512_load_ps(scales + v * kWide));
    });
    most = of[0];
    unroll<kVectors - 1>([&](auto v)
                             BALLAST_INLINE_LAMBDA { most = _mm512_max_ps(most, of[v + 1]); });
  }
  // Two vectors of products times `factor`, rounded: byte 0 of all, then byte 1 of all.
  BALLAST_INLINE __m512i codes(std::size_t v, __m512 factor) const {
    return low_bytes(rounded(of[v], factor), rounded(of[v + 1], factor));
  }
};

// The codes of kQueries queries and one group of 32 columns.
template <std::size_t kQueries>
struct WideCodes {
  float unit[kQueries];
  alignas(64) std::uint8_t high[kQueries][kEntryBlock];
  alignas(64) std::uint8_t low[kQueries][kEntryBlock];

  BALLAST_INLINE void set(std::size_t q, const Weights& weights, const float* scales,
                          const float*) {
    const Products products(weights, scales);
    const float largest = _mm512_reduce_max_ps(products.most);
    unit[q] = largest / 65535.0f;
    // Below 1e-33 the inverse would overflow: such products are quantized to zero.
    const auto inverse = _mm512_set1_ps(largest > 1e-33f ? 65535.0f / largest : 0.0f);
    unroll<kVectors / 2>([&](auto i) BALLAST_INLINE_LAMBDA {
      const auto bytes = products.codes(2 * i, inverse);
      store_half(low[q] + 2 * i * kWide, _mm512_castsi512_si256(bytes));
      store_half(high[q] + 2 * i * kWide, _mm512_extracti64x4_epi64(bytes, 1));
    });
  }
};

}  // namespace
}  // namespace ballast::kernels::avx512
HWY_POP_ATTRIBUTES
