// How rows of q4, q3 and q2 are read and their codes become codewords (rotated_avx512.h). Included
// within their target's attributes.
//
// A vector holds 16 bytes of four rows. A byte holds codes of two or four elements, and one
// permutation of a table of 64 bytes looks all of one field up: its index is six bits of each byte,
// so a table ignores the bits beside its field.
#pragma once

#include <array>

#include "attention/kernels/avx512-inl.h"
#include "attention/kernels/rotated.h"

HWY_PUSH_ATTRIBUTES(BALLAST_AVX512_BF16_TARGET)
namespace ballast::kernels::avx512 {
namespace {

static_assert(kChunk == kCodeChunk);
constexpr std::size_t kMaxChunks = kMaxDim / 2 / kChunk;  // of q4, the longest rows

// Of q3: which bytes of a chunk have their high bits in the upper bit of two.
template <StorageType type>
__mmask16 upper_bytes(const RowLayout<type>& layout, std::size_t chunk) {
  const std::size_t lower = layout.lower(chunk);
  return static_cast<__mmask16>(lower >= kChunk ? 0u : 0xFFFFu << lower);
}

// Tables of a field's codewords: plus 128 where the products take unsigned bytes.
template <StorageType type, bool kUnsigned>
class CodeTables {
 public:
  BALLAST_INLINE CodeTables() {
    unroll<kTables>([&](auto t) BALLAST_INLINE_LAMBDA {
      tables_[t] = _mm512_load_si512(kBytes.data() + 64 * t);
    });
  }
  // Of one field of each byte; high: where the third bit of q3 is set.
  template <std::size_t field>
  BALLAST_INLINE __m512i words(__m512i codes, __mmask64 high) const {
    // The last field lies above six bits.
    constexpr bool kShifts = field + 1 == kFields<type>;
    constexpr std::size_t kTable =
        kShifts ? kLowTables - 1 - (type == StorageType::q4 ? 0 : 1) : field;
    if constexpr (kShifts) codes = _mm512_srli_epi16(codes, 4);
    const auto low = _mm512_permutexvar_epi8(codes, tables_[kTable]);
    if constexpr (type != StorageType::q3) return low;
    return _mm512_mask_permutexvar_epi8(low, high, codes, tables_[kLowTables + kTable]);
  }

 private:
  // q4: the low four bits. q2 and q3: bits 0, 2 and 4 and on.
  static constexpr std::size_t kLowTables = type == StorageType::q4 ? 1 : 3;
  static constexpr std::size_t kTables = type == StorageType::q3 ? 2 * kLowTables : kLowTables;
  alignas(64) static constexpr auto kBytes = [] {
    std::array<std::uint8_t, 64 * kTables> bytes{};
    for (std::size_t t = 0; t < kTables; ++t) {
      for (std::size_t i = 0; i < 64; ++i) {
        int word = 0;
        if (type == StorageType::q4) word = kCodewords4[i % 16];
        const std::size_t low = i >> (2 * (t % kLowTables)) & 3;
        if (type == StorageType::q2) word = kCodewords2[low];
        if (type == StorageType::q3) word = kCodewords3[low + 4 * (t / kLowTables)];
        bytes[64 * t + i] = static_cast<std::uint8_t>(word + (kUnsigned ? 128 : 0));
      }
    }
    return bytes;
  }();

  __m512i tables_[kTables];
};

// Of q3: where the third bit of field f of each byte is set, from the high bits of the row. Bytes
// in `upper` have it in the upper bit of two.
template <std::size_t f>
BALLAST_INLINE __mmask64 third_bits(__m512i high, __mmask64 upper) {
  return _mm512_test_epi8_mask(
      high, _mm512_mask_blend_epi8(upper, _mm512_set1_epi8(1 << (2 * f)),
                                   _mm512_set1_epi8(static_cast<char>(2 << (2 * f)))));
}

// The rows of a block, sixteen at a time.
template <StorageType type>
class CodeRows {
 public:
  explicit CodeRows(const RowsView& rows)
      : rows_(copied(rows)), layout_(rows.dim), groups_(up(rows.rows, kWide) / kWide) {
    // Where 16 bytes of a row's last chunk end behind the block, its rows are copied.
    const std::size_t end = (rows.rows - 1) * rows.stride + row_bytes(type, rows.dim);
    in_place_ = rows.rows / kWide;
    while (in_place_ > 0 && (in_place_ * kWide - 1) * rows.stride + layout_.extent() > end) {
      --in_place_;
    }
  }
  const RowsView& view() const { return rows_; }
  const RowLayout<type>& layout() const { return layout_; }
  std::size_t groups() const { return groups_; }
  // Calls use(group, rows of the group).
  template <typename Use>
  BALLAST_INLINE void for_each_group(const Use& use) const {
    RowSet rows(rows_.data, rows_.stride);
    for (std::size_t g = 0; g < in_place_; ++g) {
      use(g, rows);
      rows.data += kWide * rows_.stride;
    }
    for (std::size_t g = in_place_; g < groups_; ++g) {
      const std::size_t begin = g * kWide;
      const FilledUp last(rows_.slice(begin, std::min(kWide, rows_.rows - begin)), 0);
      use(g, last.rows());
    }
  }
  // The scales of sixteen rows; 0 behind the last one.
  BALLAST_INLINE __m512 scales(std::size_t group) const {
    const std::size_t begin = group * kWide, left = rows_.rows - begin;
    const auto lanes = static_cast<__mmask16>(left >= kWide ? 0xFFFFu : (1u << left) - 1);
    const auto words = _mm256_maskz_loadu_epi16(lanes, rows_.scales + begin);
    return (__m512)_mm512_slli_epi32(_mm512_cvtepu16_epi32(words), 16);
  }

 private:
  RowsView rows_;
  RowLayout<type> layout_;
  std::size_t groups_, in_place_;
};

}  // namespace
}  // namespace ballast::kernels::avx512
HWY_POP_ATTRIBUTES
