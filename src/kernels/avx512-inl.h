// What the AVX-512 kernels of keys and of values share. Included within their target's attributes.
#pragma once

#if defined(__GNUC__) && !defined(__clang__)
// GCC 12 takes the undefined operands of its own intrinsics for a mistake (its bug 105593).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>

#include "ballast/storage.h"
#include "kernels/attention_kernels.h"

#define BALLAST_AVX512_TARGET \
  "avx2,fma,avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni,avx512bf16"

HWY_PUSH_ATTRIBUTES(BALLAST_AVX512_TARGET)
namespace ballast::kernels::avx512 {
namespace {

constexpr std::size_t kWide = 16;   // floats of a vector
constexpr std::size_t kChunk = 16;  // bytes: rows begin at multiples of it and end at one
constexpr std::size_t kMaxGroups = kMaxDim / kQuantGroup;

constexpr std::size_t up(std::size_t n, std::size_t unit) { return (n + unit - 1) / unit * unit; }

// Sixteen rows, or four, at equal distances.
struct RowSet {
  const std::byte* data;
  std::size_t stride;
};

// Rows that are fewer than a kernel takes at a time, with zeros behind them.
class FilledUp {
 public:
  FilledUp(const RowsView& rows, std::size_t begin) {
    if (begin == rows.rows) return;
    const std::size_t bytes = row_bytes(rows.type, rows.dim);
    std::fill(std::begin(bytes_), std::end(bytes_), std::byte{0});
    for (std::size_t r = begin; r < rows.rows; ++r) {
      std::copy_n(rows.data + r * rows.stride, bytes, bytes_ + (r - begin) * kMostBytes);
    }
  }
  RowSet rows() const { return {bytes_, kMostBytes}; }

 private:
  static constexpr std::size_t kMostBytes = 2 * kMaxDim;
  alignas(64) std::byte bytes_[kWide * kMostBytes];
};

inline __m128i load_chunk(const std::byte* at) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
}
inline __m128i load_chunk(const std::byte* at, __mmask16 valid) {
  return _mm_maskz_loadu_epi8(valid, at);
}

// 16 bytes of each of four rows, one row a lane.
template <typename... Valid>
inline __m512i four_chunks(const std::byte* at, std::size_t apart, Valid... valid) {
  const auto low = _mm256_inserti128_si256(_mm256_castsi128_si256(load_chunk(at, valid...)),
                                           load_chunk(at + apart, valid...), 1);
  const auto high =
      _mm256_inserti128_si256(_mm256_castsi128_si256(load_chunk(at + 2 * apart, valid...)),
                              load_chunk(at + 3 * apart, valid...), 1);
  return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

// out[i] = 32-bit word i of the chunk at byte `at` of 16 rows.
template <typename... Valid>
inline void transpose_chunk(const RowSet& rows, std::size_t at, __m512i* out, Valid... valid) {
  const std::byte* data = rows.data + at;
  const std::size_t next = rows.stride, apart = 4 * rows.stride;
  const auto r0 = four_chunks(data, apart, valid...);
  const auto r1 = four_chunks(data + next, apart, valid...);
  const auto r2 = four_chunks(data + 2 * next, apart, valid...);
  const auto r3 = four_chunks(data + 3 * next, apart, valid...);
  const auto low01 = _mm512_unpacklo_epi32(r0, r1), high01 = _mm512_unpackhi_epi32(r0, r1);
  const auto low23 = _mm512_unpacklo_epi32(r2, r3), high23 = _mm512_unpackhi_epi32(r2, r3);
  out[0] = _mm512_unpacklo_epi64(low01, low23);
  out[1] = _mm512_unpackhi_epi64(low01, low23);
  out[2] = _mm512_unpacklo_epi64(high01, high23);
  out[3] = _mm512_unpackhi_epi64(high01, high23);
}

// Scales (and offsets) of a block, as floats: word w of entry e in at(w)[e].
class Scales {
 public:
  explicit Scales(const RowsView& rows)
      : words_(row_scales(rows.type, rows.dim)), count_(rows.rows) {
    if (words_ == 0) return;
    // Whole chunks are transposed like rows; few words, and the last rows, are taken singly.
    std::size_t e = 0;
    if (words_ % 8 == 0 || words_ == 4 || words_ == 2) {
      for (; e + kWide <= count_; e += kWide) transpose(rows, e);
    }
    for (; e < count_; ++e) {
      for (std::size_t w = 0; w < words_; ++w) put(w, e, rows.scales[e * words_ + w]);
    }
    for (; e < up(count_, kWide); ++e) {
      for (std::size_t w = 0; w < words_; ++w) put(w, e, 0);
    }
  }
  const float* at(std::size_t word) const {
    return reinterpret_cast<const float*>(bits_ + word * kEntryBlock);
  }

 private:
  void put(std::size_t w, std::size_t e, std::uint16_t word) {
    bits_[w * kEntryBlock + e] = std::uint32_t{word} << 16;
  }
  void put_pair(std::size_t w, std::size_t e, __m512i words) {
    std::uint32_t* at = bits_ + w * kEntryBlock + e;
    _mm512_store_si512(at, _mm512_slli_epi32(words, 16));
    _mm512_store_si512(at + kEntryBlock,
                       _mm512_and_si512(words, _mm512_set1_epi32(static_cast<int>(0xFFFF0000u))));
  }
  void transpose(const RowsView& rows, std::size_t e) {
    const auto* first = reinterpret_cast<const std::byte*>(rows.scales + e * words_);
    const auto* at = reinterpret_cast<const __m512i*>(first);
    if (words_ == 2) return put_pair(0, e, _mm512_loadu_si512(at));
    if (words_ == 4) {
      const auto a = _mm512_loadu_si512(at), b = _mm512_loadu_si512(at + 1);
      const auto even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
      put_pair(0, e, _mm512_permutex2var_epi32(a, even, b));
      const auto odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
      put_pair(2, e, _mm512_permutex2var_epi32(a, odd, b));
      return;
    }
    for (std::size_t w = 0; w < words_; w += 8) {
      __m512i out[4];
      transpose_chunk(RowSet{first, words_ * 2}, w * 2, out);
      for (std::size_t i = 0; i < 4; ++i) put_pair(w + 2 * i, e, out[i]);
    }
  }

  std::size_t words_;
  std::size_t count_;
  alignas(64) std::uint32_t bits_[2 * kMaxGroups * kEntryBlock];
};

// The rows that will be read next, which are asked for while the present ones are worked on; their
// scales at once.
class Upcoming {
 public:
  explicit Upcoming(const RowsView* rows) {
    if (rows != nullptr) rows_ = *rows;
    bytes_ = row_bytes(rows_.type, rows_.dim);
    const std::size_t scales = rows_.rows * row_scales(rows_.type, rows_.dim);
    for (std::size_t i = 0; i < scales; i += 64 / sizeof(std::uint16_t)) {
      __builtin_prefetch(rows_.scales + i, 0, 2);
    }
  }
  void fetch(std::size_t first, std::size_t count) const {
    for (std::size_t r = first; r < std::min(first + count, rows_.rows); ++r) {
      const std::byte* row = rows_.data + r * rows_.stride;
      for (std::size_t i = 0; i < bytes_; i += 64) __builtin_prefetch(row + i, 0, 2);
    }
  }

 private:
  RowsView rows_;
  std::size_t bytes_;
};

inline __m512i broadcast(const std::uint32_t* word) {
  return _mm512_set1_epi32(static_cast<int>(*word));
}

// So few queries take rows as they are: to keep them transposed does not pay.
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
