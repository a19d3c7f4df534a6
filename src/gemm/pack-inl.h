// Unpacks a super-block of kLanes weight rows for GEMM, a row in each lane. Included after
// avx2-inl.h or avx512-inl.h, inside a region of that target.
//
// `Out` is a slice of the packed panel that a kernel wants: kLanes rows of it. It stores
//
//   bytes(w, quad)         int8 elements 4·quad to 4·quad + 3 of each row
//   bytes(w, scale, quad)  the same, each to be multiplied with an int16 scale
//   pairs(even, odd, quad) the same as int16: elements 0 and 2, and elements 1 and 3
//   scale(fold, v)         float32 scales of a fold
//   min(group, v)          what multiplies the pair of high and low of a sum of activations
//   min_scale(fold, v)     float32 scales of a fold of minima
//   prefetch(step)         step 0 to 7 of packing: prefetches some of what is packed next
//   kSkips                 whether it may be given the existing blocks of a Block32 type alone
#pragma once

#include "gemm/f16_to_i16-inl.h"
#include "gemm/lanes-inl.h"

namespace ballast::gemm::BALLAST_ISA {

/// The folds of a super-block in a panel.
struct FoldPlan {
  int folds, pairs;     ///< folds of elements, and pairs of int16 in each
  int mins, min_pairs;  ///< folds of minima, and pairs in each
  std::size_t sums;     ///< first pair of an ActivationPanel that the minima multiply
  constexpr int all_pairs() const { return folds * pairs + mins * min_pairs; }
  /// The first folds, which hold `elements` of the super-block: the others add nothing.
  int folds_of(std::size_t elements) const {
    return folds - static_cast<int>((kSuperblock - elements) / 2) / pairs;
  }
  int mins_of(std::size_t elements) const { return mins == 8 ? folds_of(elements) : mins; }
};

template <typename Type>
constexpr FoldPlan fold_plan() {
  constexpr int kPairs = kSuperblock / 2 / Type::kFolds;
  if constexpr (!Type::kHasMin) {
    return {Type::kFolds, kPairs, 0, 0, 0};
  } else if constexpr (Type::kIsBlock32) {
    return {Type::kFolds, kPairs, 8, 1, ActivationPanel::kSums32};
  } else {
    return {Type::kFolds, kPairs, 1, 256 / Type::kGroup,
            Type::kGroup == 32 ? ActivationPanel::kSums32 : ActivationPanel::kSums16};
  }
}

/// Prefetches row r of what is packed next. Its last line, too: with the super-block behind it,
/// that would come when it is needed.
BALLAST_INLINE void prefetch_row(const NextRows& next, std::size_t r) {
  const std::byte* row = next.begin + r * next.row_bytes;
  for (std::size_t i = 0; i < next.bytes; i += 64) prefetch(row + i);
  prefetch(row + next.bytes - 1);
}

/// Four int8 of each row as two pairs of int16: bytes 0 and 2, then 1 and 3.
BALLAST_INLINE Vector even_i16(Vector bytes) {
  return shift_right_signed_16<8>(shift_left_16<8>(bytes));
}
BALLAST_INLINE Vector odd_i16(Vector bytes) { return shift_right_signed_16<8>(bytes); }

/// The pair that multiplies a sum's high and low part: sum = 4·high + low.
BALLAST_INLINE Vector sum_pair() { return broadcast_32(1 << 16 | 4); }

/// Packs the first blocks of a super-block of kLanes rows. Block32 types.
template <typename Type, typename Out>
requires(Type::kIsBlock32) BALLAST_INLINE
    void pack(const Bytes (&p)[kLanes], Out out, std::size_t blocks = 8) {
  for (std::size_t b = 0; b < blocks; ++b) {
    out.prefetch(b);
    const std::size_t at = b * Type::kBytes;
    Vectors<4> raw[kCodeLoads<Type>];
    unroll<kCodeLoads<Type>>(
        [&](auto i) BALLAST_INLINE_LAMBDA { raw[i] = load_transposed(p, at + Type::kCodes[i]); });
    const FifthBitsOfLanes fifth = fifth_bits_of_lanes<Type>(p, at);
    unroll<2>([&](auto h) BALLAST_INLINE_LAMBDA {
      const Vectors<4> codes = Type::template codes<h>(raw, fifth);
      unroll<4>([&](auto d) BALLAST_INLINE_LAMBDA {
        const Vector w = sub_8(codes.v[d], broadcast_8(Type::kZeroPoint));
        out.bytes(w, 8 * b + 4 * h + d);
      });
    });
    out.scale(b, load_f16_of_lanes(p, at + Type::kScale));
    if constexpr (Type::kHasMin) {
      out.min(b, sum_pair());
      out.min_scale(b, load_f16_of_lanes(p, at + Type::kMin));
    }
  }
}

/// Byte g of each row in both int16 of its lane: in the upper byte of each, or in the lower.
template <int g, bool kUpper>
BALLAST_INLINE Vector broadcast_group_byte(const Vectors<4>& bytes) {
  constexpr int kByte = g % 4, kZero = 0x80;  // pshufb clears bytes with index 0x80
  constexpr int kIndex = kUpper ? kByte << 8 | kZero : kZero << 8 | kByte;
  auto lane = [](int i) {
    const int first = i * 4 << 8 | i * 4;  // of lane i in its 128 bits
    const int index = kUpper ? kIndex + (first & 0xff00) : kIndex + (first & 0xff);
    return index << 16 | index;
  };
  const __m128i index = _mm_setr_epi32(lane(0), lane(1), lane(2), lane(3));
  return shuffle_8(bytes.v[g / 4], broadcast_128(index));
}

/// The same for K types: elements are codes times their group's scale.
template <typename Type, typename Out>
requires(!Type::kIsBlock32 && !Type::kIsFloat) BALLAST_INLINE
    void pack(const Bytes (&p)[kLanes], Out out) {
  alignas(64) std::uint8_t scale_bytes[kLanes][16], min_bytes[kLanes][16];
  Bytes scale_rows[kLanes], min_rows[kLanes];
  for (int r = 0; r < kLanes; ++r) {
    const GroupScales groups = Type::group_scales(p[r]);
    store_128(scale_bytes[r], groups.scales);
    if (Type::kHasMin) store_128(min_bytes[r], groups.mins);
    scale_rows[r] = scale_bytes[r];
    min_rows[r] = min_bytes[r];
  }
  const Vectors<4> scales = load_transposed(scale_rows, 0);
  unroll<4>([&](auto quarter) BALLAST_INLINE_LAMBDA {
    constexpr int kHalf = quarter / 2, kPiece = quarter % 2;
    out.prefetch(2 * quarter);
    out.prefetch(2 * quarter + 1);
    Vectors<4> raw[kCodeLoads<Type>];
    unroll<kCodeLoads<Type>>([&](auto i) BALLAST_INLINE_LAMBDA {
      raw[i] = load_transposed(p, Type::kCodes[i][kHalf] + 16 * kPiece);
    });
    unroll<4>([&](auto j) BALLAST_INLINE_LAMBDA {
      constexpr int kChunk = chunk<Type>(j) + Type::kPartner * kHalf;
      constexpr int kGroup = Type::kGroup == 32 ? kChunk : 2 * kChunk + kPiece;
      const Vectors<4> codes = Type::template codes<j>(HalfCodes<Type, kHalf, 4>{raw});
      const Vector scale = shift_right_signed_16<8>(broadcast_group_byte<kGroup, true>(scales));
      unroll<4>([&](auto d) BALLAST_INLINE_LAMBDA {
        const Vector w = sub_8(codes.v[d], broadcast_8(Type::kZeroPoint));
        out.bytes(w, scale, 8 * kChunk + 4 * kPiece + d);
      });
    });
  });
  const Floats scale = load_f16_of_lanes(p, Type::kScale);
  unroll<Type::kFolds>([&](auto f) BALLAST_INLINE_LAMBDA { out.scale(f, scale); });
  if constexpr (Type::kHasMin) {
    const Vectors<4> mins = load_transposed(min_rows, 0);
    unroll<256 / Type::kGroup>([&](auto g) BALLAST_INLINE_LAMBDA {
      const Vector min = broadcast_group_byte<g, false>(mins);
      out.min(g, mul_16(min, sum_pair()));
    });
    out.min_scale(0, negate(load_f16_of_lanes(p, Type::kMin)));
  }
}

/// The same for F16 and BF16.
template <typename Type, typename Out>
requires(Type::kIsFloat) BALLAST_INLINE void pack(const Bytes (&p)[kLanes], Out out) {
  alignas(64) std::int16_t elements[kLanes][kSuperblock];
  alignas(64) float factors[kLanes], scales[kLanes];
  for (std::size_t r = 0; r < kLanes; r += 4) {
    const FloatScales of_four = float_scales<Type>({p[r], p[r + 1], p[r + 2], p[r + 3]});
    _mm_store_ps(factors + r, of_four.factors);
    _mm_store_ps(scales + r, of_four.scales);
  }
  constexpr std::size_t kRowsPerStep = kLanes / 8;
  Bytes rows[kLanes];
  for (std::size_t r = 0; r < kLanes; ++r) {
    if (r % kRowsPerStep == 0) out.prefetch(r / kRowsPerStep);
    const Floats factor = broadcast_f32(factors[r]);
    unroll<kSuperblock / (2 * kLanes)>([&](auto b) BALLAST_INLINE_LAMBDA {
      const Bytes at = p[r] + 4 * kLanes * b;
      const Vector first = to_i16<Type>(at, factor);
      const Vector second = to_i16<Type>(at + 2 * kLanes, factor);
      store_lanes(elements[r] + 2 * kLanes * b, pack_pairs(first, second));
    });
    rows[r] = reinterpret_cast<Bytes>(elements[r]);
  }
  for (std::size_t i = 0; i < kSuperblock / 8; ++i) {
    const Vectors<4> pairs = load_transposed(rows, 16 * i);
    out.pairs(pairs.v[0], pairs.v[1], 2 * i);
    out.pairs(pairs.v[2], pairs.v[3], 2 * i + 1);
  }
  unroll<Type::kFolds>([&](auto f) BALLAST_INLINE_LAMBDA { out.scale(f, load_f32(scales)); });
}

/// Packs a slice with n rows, the first at `first`, of which k elements of the super-block exist.
template <typename Type, typename Out>
void pack_slice(Bytes first, std::size_t stride, std::size_t n, std::size_t k, Out out) {
  Bytes p[kLanes];
  for (std::size_t r = 0; r < kLanes; ++r) p[r] = first + std::min(r, n - 1) * stride;
  if (k == kSuperblock) return pack<Type>(p, out);
  if constexpr (Type::kIsBlock32 && Out::kSkips) {
    for (std::size_t b = k / Type::kElements; b < 8; ++b) out.prefetch(b);
    return pack<Type>(p, out, k / Type::kElements);
  }
  std::uint8_t padded[kLanes][kSuperblockBytes<Type>] = {};
  for (std::size_t r = 0; r < kLanes; ++r) {
    std::memcpy(padded[r], p[r], k / Type::kElements * Type::kBytes);
    p[r] = padded[r];
  }
  pack<Type>(p, out);
}

/// Packs super-block `superblock` of n rows of k elements: slices of kLanes rows, Out{panel, i} the
/// i-th. Sets panel.next to the same rows' next super-block, behind the last to the first one of
/// the rows `ahead` rows later.
template <typename Type, typename Out, typename Panel>
void pack_panel(const std::byte* w, std::size_t row_bytes, std::size_t n, std::size_t k,
                std::size_t superblock, std::size_t ahead, Panel& panel) {
  constexpr std::size_t kBytes = kSuperblockBytes<Type>;
  const std::size_t elements = std::min(kSuperblock, k - superblock * kSuperblock);
  const Bytes first = bytes(w) + superblock * kBytes;
  const bool last = superblock + 1 == superblocks(k);
  if constexpr (Out::kSkips) panel.elements = elements;
  panel.next = {w + (last ? ahead * row_bytes : (superblock + 1) * kBytes), row_bytes, kBytes};
  for (std::size_t r = 0; r < n; r += kLanes) {
    pack_slice<Type>(first + r * row_bytes, row_bytes, std::min<std::size_t>(kLanes, n - r),
                     elements, Out{panel, r / kLanes});
  }
}

}  // namespace ballast::gemm::BALLAST_ISA
