// Reads the keys of a block 16 at a time and transposes them (avx512.h). Included within their
// target's attributes.
#pragma once

#include "attention/kernels/packed_query_avx512-inl.h"

HWY_PUSH_ATTRIBUTES(BALLAST_AVX512_BF16_TARGET)
namespace ballast::kernels::avx512 {
namespace {

constexpr std::size_t kPiece = 2 * kChunk;  // bytes of a row that are loaded at a time
constexpr std::size_t kPieceLines = kPiece * kWide / kLine;  // of sixteen rows

// Both chunks of a piece of 16 rows, transposed within 128-bit lanes. first[i] holds 32-bit element
// i of rows 0 to 7, second[i] that of rows 8 to 15.
struct PieceWords {
  __m512i first[4], second[4];

  PieceWords() = default;
  // low[j] holds rows j and j + 4 of the piece, high[j] rows 8 + j and 12 + j.
  BALLAST_INLINE PieceWords(const __m512i (&low)[4], const __m512i (&high)[4]) {
    const HalfWords a(low), b(high);
    unroll<4>([&](auto i) BALLAST_INLINE_LAMBDA {
      first[i] = a.word(i);
      second[i] = b.word(i);
    });
  }
  // 32-bit element i of a chunk, of all rows.
  BALLAST_INLINE __m512i word(std::size_t chunk, std::size_t i) const {
    return chunk == 0 ? _mm512_shuffle_i64x2(first[i], second[i], 0x88)
                      : _mm512_shuffle_i64x2(first[i], second[i], 0xDD);
  }
};

// The keys of a block, 16 at a time. A transposed piece is kWords vectors with one 32-bit lane per
// key. A lane holds two bf16 elements, four int8 codes plus 128, or four int4 codes.
template <StorageType type>
class Keys {
 public:
  static constexpr std::size_t kWords = type == StorageType::int4 ? 16 : 8;  // of a piece

  explicit Keys(const RowsView& keys)
      : keys_(copied(keys)),
        groups_(up(keys.rows, kWide) / kWide),
        used_(type == StorageType::bf16   ? 2 * keys.dim
              : type == StorageType::int8 ? keys.dim
                                          : up(keys.dim, kQuantGroup) / 2),
        pieces_(up(used_, kPiece) / kPiece),
        // A piece that ends past its row's last chunk must not be the last one in memory.
        in_place_(up(used_, kChunk) % kPiece == 0 ? keys.rows / kWide : groups_ - 1),
        last_(keys, in_place_ * kWide) {
    // Row padding could be a NaN in bf16. Integer padding is multiplied by zeros.
    whole_ = type == StorageType::bf16 ? used_ / kPiece : pieces_;
    rest_ = static_cast<__mmask32>((std::uint64_t{1} << (used_ % kPiece)) - 1);
  }

  const RowsView& view() const { return keys_; }
  std::size_t groups() const { return groups_; }
  std::size_t pieces() const { return pieces_; }
  std::size_t words() const { return pieces_ * kWords; }
  std::size_t in_place() const { return in_place_; }  // groups
  RowSet rows(std::size_t group) const {
    if (group >= in_place_) return last_.rows();
    return {keys_.data + group * kWide * keys_.stride, keys_.stride};
  }
  // Bytes `at` … of rows j and j + 4 (half 0), or 8 + j and 12 + j (half 1).
  template <typename... Valid>
  BALLAST_INLINE static __m512i two_rows(const RowSet& rows, std::size_t at, std::size_t j,
                                         std::size_t half, Valid... valid) {
    const std::size_t apart = rows.stride * 4;
    const std::byte* data = opaque(rows.data + at + (j == 3 ? rows.thrice : j * rows.stride));
    const auto piece = [&](std::size_t offset) BALLAST_INLINE_LAMBDA {
      if constexpr (sizeof...(Valid) > 0) return _mm256_maskz_loadu_epi8(valid..., data + offset);
      return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(data + offset));
    };
    const auto a = piece(half == 0 ? 0 : 2 * apart);
    const auto b = piece(half == 0 ? apart : rows.thrice * 4);
    return _mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1);
  }
  // Loads a piece and transposes it within 128-bit lanes.
  BALLAST_INLINE PieceWords piece(const RowSet& rows, std::size_t number) const {
    __m512i low[4], high[4];
    unroll<4>([&](auto j) BALLAST_INLINE_LAMBDA {
      low[j] = two_rows(rows, number * kPiece, j, 0);
      high[j] = two_rows(rows, number * kPiece, j, 1);
    });
    return cleared(rows, number, PieceWords(low, high));
  }
  // `words`, already loaded; a piece with bf16 padding is reloaded with the padding masked.
  BALLAST_INLINE PieceWords cleared(const RowSet& rows, std::size_t number,
                                    PieceWords words) const {
    if (type != StorageType::bf16 || number < whole_) [[likely]]
      return words;
    __m512i low[4], high[4];
    unroll<4>([&](auto j) BALLAST_INLINE_LAMBDA {
      low[j] = two_rows(rows, number * kPiece, j, 0, rest_);
      high[j] = two_rows(rows, number * kPiece, j, 1, rest_);
    });
    return PieceWords(low, high);
  }
  // Vector i of a piece. For int4, the low and high nibbles of the same bytes follow each other.
  BALLAST_INLINE static __m512i word(const PieceWords& words, std::size_t i) {
    if constexpr (type == StorageType::int4) {
      const auto low = _mm512_set1_epi8(15);
      const auto both = words.word(i / 8, i % 8 / 2);
      return _mm512_and_si512(i % 2 == 0 ? both : _mm512_srli_epi16(both, 4), low);
    } else if constexpr (type == StorageType::int8) {
      return _mm512_xor_si512(words.word(i / 4, i % 4), _mm512_set1_epi8(static_cast<char>(0x80)));
    } else {
      return words.word(i / 4, i % 4);
    }
  }
  // Index of the query's 32-bit element that vector i is multiplied with. Byte j of an int4 group
  // holds elements j and 16 + j.
  static constexpr std::size_t place(std::size_t i) {
    return type == StorageType::int4 ? i / 8 * 8 + i % 8 / 2 + i % 2 * 4 : i;
  }

 private:
  RowsView keys_;
  std::size_t groups_, used_, pieces_, in_place_, whole_;
  __mmask32 rest_;
  FilledUp last_;
};

// Keys of G groups, transposed piece by piece, as few queries use them.
template <StorageType type, std::size_t G, CacheLevel kLevel>
class FreshWords {
 public:
  static constexpr std::size_t kLines = kPieceLines * G;  // to prefetch per piece

  BALLAST_INLINE FreshWords(const Keys<type>& keys, std::size_t first, Prefetcher& prefetcher)
      : keys_(keys), rest_(prefetcher), prefetcher_(prefetcher), first_(first) {
    set_rows();
    unroll<4>([&](auto j) BALLAST_INLINE_LAMBDA { load(j); });
  }
  BALLAST_INLINE ~FreshWords() { rest_ = prefetcher_; }
  FreshWords(const FreshWords&) = delete;
  FreshWords& operator=(const FreshWords&) = delete;
  // Starts the loaded piece p. After the last piece, loading continues with the next G groups.
  BALLAST_INLINE void piece(std::size_t p) {
    lines_ = prefetcher_.template lines<kLevel>(kLines);
    unroll<G>([&](auto g) BALLAST_INLINE_LAMBDA {
      words_[g] = keys_.cleared(rows_[g], p, PieceWords(low_[g], high_[g]));
    });
    if (++loaded_ < keys_.pieces()) return;
    loaded_ = 0;
    // After the last groups, the same groups are loaded again.
    if (first_ + 2 * G <= keys_.groups()) first_ += G;
    set_rows();
  }
  BALLAST_INLINE __m512i word(std::size_t g, std::size_t i) const {
    return Keys<type>::word(words_[g], i);
  }
  // Call after vector i of all groups has been added to these sums.
  template <std::size_t Q>
  BALLAST_INLINE void after(std::size_t i, __m512i (&sums)[Q][G]) {
    unroll<Q>([&](auto q) BALLAST_INLINE_LAMBDA {
      unroll<G>([&](auto g) BALLAST_INLINE_LAMBDA { in_order(sums[q][g]); });
    });
    constexpr std::size_t kEvery = Keys<type>::kWords / kPieceLines;
    if (i % kEvery == 0) {
      unroll<G>([&](auto g) BALLAST_INLINE_LAMBDA { fetch(i / kEvery * G + g); });
    }
    // The next rows are loaded into registers that this piece no longer needs.
    constexpr std::size_t kHalf = Keys<type>::kWords / 2, kShare = kHalf / 4;
    if (i >= kHalf && i % kShare == kShare - 1) load((i - kHalf) / kShare);
  }
  BALLAST_INLINE void fetch(std::size_t line) const { prefetcher_.fetch<kLevel>(lines_, line); }
  // Loads a quarter of the next piece: rows j, j + 4, …
  BALLAST_INLINE void load(std::size_t j) {
    unroll<G>([&](auto g) BALLAST_INLINE_LAMBDA {
      low_[g][j] = Keys<type>::two_rows(rows_[g], loaded_ * kPiece, j, 0);
      high_[g][j] = Keys<type>::two_rows(rows_[g], loaded_ * kPiece, j, 1);
      in_order(low_[g][j]);
      in_order(high_[g][j]);
    });
  }

 private:
  BALLAST_INLINE void set_rows() {
    unroll<G>([&](auto g) BALLAST_INLINE_LAMBDA { rows_[g] = keys_.rows(first_ + g); });
  }

  const Keys<type>& keys_;
  Prefetcher& rest_;
  Prefetcher prefetcher_;  // a local copy stays in registers
  std::uintptr_t lines_ = 0;
  std::size_t first_;
  std::size_t loaded_ = 0;  // piece
  RowSet rows_[G];
  __m512i low_[G][4], high_[G][4];
  PieceWords words_[G];
};

// Keys transposed once and kept for many queries.
template <StorageType type>
class KeptWords {
 public:
  KeptWords(const __m512i* words, std::size_t count) : words_(words), at_(words), count_(count) {}
  void piece(std::size_t p) { at_ = words_ + p * Keys<type>::kWords; }
  BALLAST_INLINE __m512i word(std::size_t g, std::size_t i) const {
    auto word = _mm512_load_si512(at_ + g * count_ + i);
    in_order(word);  // otherwise GCC reloads it for each query
    return word;
  }
  template <std::size_t Q, std::size_t G>
  BALLAST_INLINE void after(std::size_t, __m512i (&sums)[Q][G]) {
    unroll<Q>([&](auto q) BALLAST_INLINE_LAMBDA {
      unroll<G>([&](auto g) BALLAST_INLINE_LAMBDA { in_order(sums[q][g]); });
    });
  }

 private:
  const __m512i* words_;
  const __m512i* at_;
  std::size_t count_;
};

}  // namespace
}  // namespace ballast::kernels::avx512
HWY_POP_ATTRIBUTES
