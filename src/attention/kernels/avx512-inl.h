// Shared by the AVX-512 kernels of keys and values. Included within their target's attributes.
#pragma once

#if defined(__GNUC__) && !defined(__clang__)
// GCC 12 warns about the undefined operands of its own intrinsics (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>

#include "attention/kernels/attention_kernels.h"
#include "attention/kernels/prefetch.h"
#include "ballast/storage.h"
#include "simd/inline.h"
#include "simd/targets.h"
#include "storage/round.h"

HWY_PUSH_ATTRIBUTES(BALLAST_AVX512_BF16_TARGET)
#include "simd/unroll-inl.h"
namespace ballast::kernels::avx512 {
namespace {

constexpr std::size_t kWide = 16;   // floats of a vector
constexpr std::size_t kChunk = 16;  // bytes: rows begin and end at multiples of it
constexpr std::size_t kLine = 64;   // bytes of a cache line
constexpr std::size_t kMaxGroups = kMaxDim / kQuantGroup;

constexpr std::size_t up(std::size_t n, std::size_t unit) { return (n + unit - 1) / unit * unit; }

// Hides how a value was computed, so that GCC recomputes addresses from it. Otherwise GCC keeps a
// pointer per row, mostly spilled to memory, and increments all of them.
template <typename T>
inline T opaque(T value) {
  asm volatile("" : "+r"(value));
  return value;
}

// Copies field by field: a wider load of fields that were just stored separately would stall.
inline RowsView copied(const RowsView& rows) {
  return {rows.type,           opaque(rows.rows), opaque(rows.dim),
          opaque(rows.stride), opaque(rows.data), opaque(rows.scales)};
}

// Fixes the order of the instructions around a vector. The processor looks ahead some 160 vectors,
// fewer than a chunk of rows takes. Loads of the next chunk must therefore stand between the
// multiplications of this one.
BALLAST_INLINE void in_order(__m512i& vector) { asm volatile("" : "+v"(vector)); }

// Rows at a fixed stride. Multiples of the stride are kept, so that a load instruction can address
// each row directly. GCC would recompute them.
struct RowSet {
  const std::byte* data;
  std::size_t stride;
  std::size_t thrice;

  RowSet() = default;
  BALLAST_INLINE RowSet(const std::byte* data, std::size_t stride)
      : RowSet(data, stride, opaque(3 * stride)) {}
  BALLAST_INLINE RowSet(const std::byte* data, std::size_t stride, std::size_t thrice)
      : data(data), stride(stride), thrice(thrice) {}
};

// A zero-padded copy of rows `begin` and on, up to sixteen rows of whole cache lines. Kernels use
// it where they would read past the last row.
class FilledUp {
 public:
  FilledUp(const RowsView& rows, std::size_t begin) {
    if (begin == rows.rows) return;
    const std::size_t bytes = row_bytes(rows.type, rows.dim);
    stride_ = up(bytes, kLine);
    std::fill_n(bytes_, kWide * stride_, std::byte{0});
    for (std::size_t r = begin; r < rows.rows; ++r) {
      std::copy_n(rows.data + r * rows.stride, bytes, bytes_ + (r - begin) * stride_);
    }
  }
  RowSet rows() const { return {bytes_, stride_}; }

 private:
  std::size_t stride_ = 0;
  alignas(64) std::byte bytes_[kWide * 2 * kMaxDim];
};

inline __m128i load_chunk(const std::byte* at) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
}

// 16 bytes of each of four rows, one row per 128-bit lane.
BALLAST_INLINE __m512i four_chunks(__m128i a, __m128i b, __m128i c, __m128i d) {
  const auto low = _mm256_inserti128_si256(_mm256_castsi128_si256(a), b, 1);
  const auto high = _mm256_inserti128_si256(_mm256_castsi128_si256(c), d, 1);
  return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

// Bytes `at` … of rows 0 to 3.
BALLAST_INLINE __m512i first_rows(const RowSet& rows, std::size_t at) {
  const std::byte* data = opaque(rows.data + at);
  return four_chunks(load_chunk(data), load_chunk(data + rows.stride),
                     load_chunk(data + 2 * rows.stride), load_chunk(data + rows.thrice));
}

// Bytes `at` … of rows r, r + 4, r + 8 and r + 12.
BALLAST_INLINE __m512i four_rows(const RowSet& rows, std::size_t at, std::size_t r) {
  const std::size_t apart = rows.stride * 4, thrice = rows.thrice * 4;
  const std::byte* data = opaque(rows.data + at + (r == 3 ? rows.thrice : r * rows.stride));
  return four_chunks(load_chunk(data), load_chunk(data + apart), load_chunk(data + 2 * apart),
                     load_chunk(data + thrice));
}

// Half of the transposition of a chunk of 16 rows into 32-bit lanes. four[r] holds every fourth row
// from r on.
struct HalfWords {
  __m512i low01, high01, low23, high23;

  explicit BALLAST_INLINE HalfWords(const __m512i (&four)[4])
      : low01(_mm512_unpacklo_epi32(four[0], four[1])),
        high01(_mm512_unpackhi_epi32(four[0], four[1])),
        low23(_mm512_unpacklo_epi32(four[2], four[3])),
        high23(_mm512_unpackhi_epi32(four[2], four[3])) {}
  // The second half: 32-bit element i of the chunk, of all rows.
  BALLAST_INLINE __m512i word(std::size_t i) const {
    if (i == 0) return _mm512_unpacklo_epi64(low01, low23);
    if (i == 1) return _mm512_unpackhi_epi64(low01, low23);
    if (i == 2) return _mm512_unpacklo_epi64(high01, high23);
    return _mm512_unpackhi_epi64(high01, high23);
  }
};

// Scales (and offsets) of a block, as floats: at(w)[e] is bf16 element w of entry e, 0 past the
// last entry. kCentred replaces the offsets of int4 by the centres s · 8 + o.
template <bool kCentred = false>
class Scales {
 public:
  explicit Scales(const RowsView& rows) {
    const std::size_t words = row_scales(rows.type, rows.dim);
    if (words == 0) return;
    // Sixteen entries at a time are transposed; other row sizes and the last entries are read one
    // by one.
    std::size_t e = 0;
    if (words == 2) e = transposed<2>(rows.scales, rows.rows);
    if (words == 4) e = transposed<4>(rows.scales, rows.rows);
    if (words == 8) e = transposed<8>(rows.scales, rows.rows);
    if (words == 16) e = transposed<16>(rows.scales, rows.rows);
    if (e == kEntryBlock) return;
    for (; e < rows.rows; ++e) {
      for (std::size_t w = 0; w < words; ++w) {
        const float word = bf16_decode(rows.scales[e * words + w]);
        const bool middle = kCentred && w >= words / 2;
        floats_[w][e] = middle ? std::fma(floats_[w - words / 2][e], 8.0f, word) : word;
      }
    }
    for (std::size_t w = 0; w < words; ++w) std::fill(floats_[w] + e, std::end(floats_[w]), 0.0f);
  }
  const float* at(std::size_t word) const { return floats_[word]; }

 private:
  // Returns the number of entries transposed.
  template <std::size_t kWords>
  BALLAST_INLINE std::size_t transposed(const std::uint16_t* scales, std::size_t count) {
    std::size_t e = 0;
    for (; e + kWide <= count; e += kWide, scales += kWide * kWords) {
      __m512i pairs[kWords / 2];
      transpose(scales, pairs);
      __m512 words[kWords];
      unroll<kWords / 2>([&](auto i) BALLAST_INLINE_LAMBDA {
        const auto high = _mm512_set1_epi32(static_cast<int>(0xFFFF0000u));
        words[2 * i] = (__m512)_mm512_slli_epi32(pairs[i], 16);
        words[2 * i + 1] = (__m512)_mm512_and_si512(pairs[i], high);
      });
      if constexpr (kCentred) {
        unroll<kWords / 2>([&](auto i) BALLAST_INLINE_LAMBDA {
          auto& offset = words[kWords / 2 + i];
          offset = _mm512_fmadd_ps(words[i], _mm512_set1_ps(8.0f), offset);
        });
      }
      unroll<kWords>([&](auto w)
                         BALLAST_INLINE_LAMBDA { _mm512_store_ps(floats_[w] + e, words[w]); });
    }
    return e;
  }
  // pairs[i] = bf16 elements 2 i and 2 i + 1 of sixteen entries.
  template <std::size_t kPairs>
  BALLAST_INLINE static void transpose(const std::uint16_t* scales, __m512i (&pairs)[kPairs]) {
    const auto load = [&](std::size_t i)
                          BALLAST_INLINE_LAMBDA { return _mm512_loadu_si512(scales + 32 * i); };
    if constexpr (kPairs == 1) {
      pairs[0] = load(0);
    } else if constexpr (kPairs == 2) {
      const auto a = load(0), b = load(1);
      const auto even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
      pairs[0] = _mm512_permutex2var_epi32(a, even, b);
      const auto odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
      pairs[1] = _mm512_permutex2var_epi32(a, odd, b);
    } else if constexpr (kPairs == 4) {
      // First two pairs of eight entries per vector, then one pair of sixteen.
      const auto low = _mm512_set_epi32(29, 25, 21, 17, 13, 9, 5, 1, 28, 24, 20, 16, 12, 8, 4, 0);
      const auto high = _mm512_add_epi32(low, _mm512_set1_epi32(2));
      __m512i first[4];
      unroll<2>([&](auto i) BALLAST_INLINE_LAMBDA {
        const auto a = load(2 * i), b = load(2 * i + 1);
        first[i] = _mm512_permutex2var_epi32(a, low, b);
        first[2 + i] = _mm512_permutex2var_epi32(a, high, b);
      });
      unroll<2>([&](auto i) BALLAST_INLINE_LAMBDA {
        const auto a = first[2 * i], b = first[2 * i + 1];
        pairs[2 * i] = _mm512_shuffle_i64x2(a, b, 0x44);
        pairs[2 * i + 1] = _mm512_shuffle_i64x2(a, b, 0xEE);
      });
    } else {
      const RowSet all(reinterpret_cast<const std::byte*>(scales), kPairs * 4);
      unroll<kPairs / 4>([&](auto c) BALLAST_INLINE_LAMBDA {
        __m512i four[4];
        unroll<4>([&](auto r) BALLAST_INLINE_LAMBDA { four[r] = four_rows(all, c * kChunk, r); });
        const HalfWords half(four);
        unroll<4>([&](auto i) BALLAST_INLINE_LAMBDA { pairs[4 * c + i] = half.word(i); });
      });
    }
  }

  alignas(64) float floats_[2 * kMaxGroups][kEntryBlock];
};

inline __m512i broadcast(const std::uint32_t* word) {
  return _mm512_set1_epi32(static_cast<int>(*word));
}

// Up to this many queries read rows as stored: keeping transposed rows does not pay.
constexpr std::size_t kFewQueries = 4;

// Calls tile.operator()<Q>(first) for tiles of kMost queries and one tile of the rest.
template <std::size_t kMost, typename Tile>
inline void in_tiles(std::size_t count, const Tile& tile) {
  std::size_t q = 0;
  for (; q + kMost <= count; q += kMost) tile.template operator()<kMost>(q);
  const std::size_t rest = count - q;
  [&]<std::size_t... N>(std::index_sequence<N...>) {
    (void)((rest == N + 1 && (tile.template operator()<N + 1>(q), true)) || ...);
  }
  (std::make_index_sequence<kMost - 1>());
}

}  // namespace
}  // namespace ballast::kernels::avx512
HWY_POP_ATTRIBUTES
