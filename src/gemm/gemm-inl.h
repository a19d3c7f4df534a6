// Integer GEMM on packed panels. Included after avx2-inl.h or avx512-inl.h, inside a region of that
// target.
//
// pack_weights() unpacks a super-block of 32 weight rows to int16, once for all activations; the
// panel stays in L1. microkernel() multiplies it with panels of six activations: a tile of totals
// is 2 · kLanes rows × 6 activations, in registers.
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

/// int32 in a line of a panel: kN / 2 rows.
constexpr std::size_t kPanelLine = WeightPanel::kN / 2;

/// kLanes rows of a panel.
struct PanelSlice {
  WeightPanel& panel;
  std::size_t index;

  static constexpr std::size_t kOfHalf = kPanelLine / kLanes;
  std::int32_t* line(std::size_t i) const {
    return panel.lines[index / kOfHalf][i] + index % kOfHalf * kLanes;
  }
};

/// Prefetches row r of the next panel.
BALLAST_INLINE void prefetch_row(const WeightPanel& panel, std::size_t r) {
  const std::byte* row = panel.next.begin + r * panel.next.row_bytes;
  for (std::size_t i = 0; i < panel.next.bytes; i += 64) prefetch(row + i);
}
/// Packing a slice takes eight steps; the steps of all slices prefetch the first half of the rows.
BALLAST_INLINE void prefetch_step(PanelSlice slice, std::size_t step) {
  if (step % PanelSlice::kOfHalf == 0) {
    prefetch_row(slice.panel, (8 * slice.index + step) / PanelSlice::kOfHalf);
  }
}

/// Stores four int8 of each row as two pairs of int16: bytes 0 and 2, then 1 and 3.
BALLAST_INLINE void store_i16(Vector bytes, PanelSlice slice, std::size_t line) {
  store_lanes(slice.line(line), shift_right_signed_16<8>(shift_left_16<8>(bytes)));
  store_lanes(slice.line(line + 1), shift_right_signed_16<8>(bytes));
}
/// The same, times a group's scale.
BALLAST_INLINE void store_i16(Vector bytes, Vector scale, PanelSlice slice, std::size_t line) {
  const Vector even = shift_right_signed_16<8>(shift_left_16<8>(bytes));
  store_lanes(slice.line(line), mul_16(even, scale));
  store_lanes(slice.line(line + 1), mul_16(shift_right_signed_16<8>(bytes), scale));
}

/// The pair that multiplies a sum's high and low part: sum = 4·high + low.
BALLAST_INLINE Vector sum_pair() { return broadcast_32(1 << 16 | 4); }

/// Packs a super-block of kLanes rows. Block32 types.
template <typename Type>
requires(Type::kIsBlock32) BALLAST_INLINE void pack(const Bytes (&p)[kLanes], PanelSlice slice) {
  constexpr std::size_t kScales = fold_plan<Type>().all_pairs();
  for (std::size_t b = 0; b < 8; ++b) {
    prefetch_step(slice, b);
    const std::size_t at = b * Type::kBytes;
    Vectors<4> raw[kCodeLoads<Type>];
    unroll<kCodeLoads<Type>>(
        [&](auto i) BALLAST_INLINE_LAMBDA { raw[i] = load_transposed(p, at + Type::kCodes[i]); });
    const FifthBitsOfLanes fifth = fifth_bits_of_lanes<Type>(p, at);
    unroll<2>([&](auto h) BALLAST_INLINE_LAMBDA {
      const Vectors<4> codes = Type::template codes<h>(raw, fifth);
      unroll<4>([&](auto d) BALLAST_INLINE_LAMBDA {
        const Vector w = sub_8(codes.v[d], broadcast_8(Type::kZeroPoint));
        store_i16(w, slice, 16 * b + 8 * h + 2 * d);
      });
    });
    store_f32(slice.line(kScales + b), load_f16_of_lanes(p, at + Type::kScale));
    if constexpr (Type::kHasMin) {
      store_lanes(slice.line(kSuperblock / 2 + b), sum_pair());
      store_f32(slice.line(kScales + 8 + b), load_f16_of_lanes(p, at + Type::kMin));
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

/// The same for K types: int16 elements are codes times their group's scale.
template <typename Type>
requires(!Type::kIsBlock32 && !Type::kIsFloat) BALLAST_INLINE
    void pack(const Bytes (&p)[kLanes], PanelSlice slice) {
  constexpr std::size_t kScales = fold_plan<Type>().all_pairs();
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
    prefetch_step(slice, 2 * quarter);
    prefetch_step(slice, 2 * quarter + 1);
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
        store_i16(w, scale, slice, 16 * kChunk + 8 * kPiece + 2 * d);
      });
    });
  });
  const Floats scale = load_f16_of_lanes(p, Type::kScale);
  unroll<Type::kFolds>([&](auto f)
                           BALLAST_INLINE_LAMBDA { store_f32(slice.line(kScales + f), scale); });
  if constexpr (Type::kHasMin) {
    const Vectors<4> mins = load_transposed(min_rows, 0);
    unroll<256 / Type::kGroup>([&](auto g) BALLAST_INLINE_LAMBDA {
      const Vector min = broadcast_group_byte<g, false>(mins);
      store_lanes(slice.line(kSuperblock / 2 + g), mul_16(min, sum_pair()));
    });
    store_f32(slice.line(kScales + Type::kFolds), negate(load_f16_of_lanes(p, Type::kMin)));
  }
}

/// The same for F16 and BF16.
template <typename Type>
requires(Type::kIsFloat) BALLAST_INLINE void pack(const Bytes (&p)[kLanes], PanelSlice slice) {
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
    if (r % kRowsPerStep == 0) prefetch_step(slice, r / kRowsPerStep);
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
    unroll<4>([&](auto d)
                  BALLAST_INLINE_LAMBDA { store_lanes(slice.line(4 * i + d), pairs.v[d]); });
  }
  unroll<Type::kFolds>([&](auto f) BALLAST_INLINE_LAMBDA {
    store_f32(slice.line(fold_plan<Type>().all_pairs() + f), load_f32(scales));
  });
}

/// Packs a slice with n rows, the first at `first`, of which k elements of the super-block exist.
template <typename Type>
void pack_slice(Bytes first, std::size_t stride, std::size_t n, std::size_t k, PanelSlice slice) {
  Bytes p[kLanes];
  for (std::size_t r = 0; r < kLanes; ++r) p[r] = first + std::min(r, n - 1) * stride;
  if (k == kSuperblock) return pack<Type>(p, slice);
  std::uint8_t padded[kLanes][kSuperblockBytes<Type>] = {};
  for (std::size_t r = 0; r < kLanes; ++r) {
    std::memcpy(padded[r], p[r], k / Type::kElements * Type::kBytes);
    p[r] = padded[r];
  }
  pack<Type>(p, slice);
}

/// pack_weights() of one type.
template <typename Type>
void pack_weights_of_type(const std::byte* w, std::size_t row_bytes, std::size_t n, std::size_t k,
                          std::size_t superblock, std::size_t ahead, WeightPanel& out) {
  constexpr std::size_t kBytes = kSuperblockBytes<Type>;
  const std::size_t elements = std::min(kSuperblock, k - superblock * kSuperblock);
  const Bytes first = bytes(w) + superblock * kBytes;
  const bool last = superblock + 1 == superblocks(k);
  out.next = {w + (last ? ahead * row_bytes : (superblock + 1) * kBytes), row_bytes, kBytes};
  for (std::size_t r = 0; r < n; r += kLanes) {
    pack_slice<Type>(first + r * row_bytes, row_bytes, std::min<std::size_t>(kLanes, n - r),
                     elements, {out, r / kLanes});
  }
}

void pack_weights(TensorType type, const std::byte* w, std::size_t row_bytes, std::size_t n,
                  std::size_t k, std::size_t superblock, std::size_t ahead, WeightPanel& out) {
  with_any_type(type, [&](auto t) {
    pack_weights_of_type<decltype(t)>(w, row_bytes, n, k, superblock, ahead, out);
  });
}

/// Two slices of a panel: their lines and their totals.
struct TileRows {
  const std::int32_t *first, *second;
  float *first_totals, *second_totals;
};

/// Adds a super-block to the totals of 2 · kLanes rows and M activations. The totals of an
/// activation are kN apart from those of the next.
template <int M>
BALLAST_INLINE void microkernel_tile(const FoldPlan& plan, const WeightPanel& panel,
                                     const ActivationPanel& x, bool prefetch_next, TileRows rows) {
  alignas(64) float sums[2][M][kLanes];
  const std::int32_t* first_scale = rows.first + plan.all_pairs() * kPanelLine;
  const std::int32_t* second_scale = rows.second + plan.all_pairs() * kPanelLine;
  const std::int16_t(*pairs)[ActivationPanel::kM][2] = x.pairs;
  const int folds = plan.folds + plan.mins;
  std::size_t prefetched = WeightPanel::kN / 2;
  // Fold f of `count` pairs. `together` pairs are unrolled, a prefetch before them.
  const auto fold = [&](int f, int count, auto together, bool prefetches) BALLAST_INLINE_LAMBDA {
    Vector a[M], b[M];
    unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA { a[c] = b[c] = zero_vector(); });
    for (int i = 0; i < count; i += together) {
      if (prefetches) prefetch_row(panel, prefetched++);
      unroll<together>([&](auto i) BALLAST_INLINE_LAMBDA {
        const Vector u = load_lanes(rows.first + i * kPanelLine);
        const Vector v = load_lanes(rows.second + i * kPanelLine);
        unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA {
          Vector pair;
          asm("vpbroadcastd %1, %0" : "=v"(pair) : "m"(pairs[i][c]));
          dot_add_16(a[c], u, pair);
          dot_add_16(b[c], v, pair);
        });
      });
      rows.first += together * kPanelLine;
      rows.second += together * kPanelLine;
      pairs += together;
    }
    const Floats u = load_f32(first_scale), v = load_f32(second_scale);
    first_scale += kPanelLine;
    second_scale += kPanelLine;
    const bool last = f + 1 == folds;
    unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA {
      Floats s = to_f32(a[c]), t = to_f32(b[c]);
      if (f == 0) {
        s = mul(s, u);
        t = mul(t, v);
      } else {
        s = mul_add(s, u, load_f32(sums[0][c]));
        t = mul_add(t, v, load_f32(sums[1][c]));
      }
      if (!last) {
        store_f32(sums[0][c], s);
        store_f32(sums[1][c], t);
      } else {
        const Floats scale = broadcast_f32(x.scale[c]);
        float* first = rows.first_totals + c * WeightPanel::kN;
        float* second = rows.second_totals + c * WeightPanel::kN;
        store_f32(first, mul_add(s, scale, load_f32(first)));
        store_f32(second, mul_add(t, scale, load_f32(second)));
      }
    });
  };
  for (int f = 0; f < plan.folds; ++f) {
    fold(f, plan.pairs, std::integral_constant<int, 8>(), prefetch_next);
  }
  pairs = x.pairs + plan.sums;
  for (int f = plan.folds; f < folds; ++f) {
    fold(f, plan.min_pairs, std::integral_constant<int, 1>(), false);
  }
}

/// microkernel() of M activations.
template <int M>
void microkernel_of_m(const FoldPlan& plan, const WeightPanel& panel, const ActivationPanel& x,
                      bool prefetch_next, float (*totals)[WeightPanel::kN]) {
  // A tile takes one slice of each half of the panel, or both slices of a half.
  constexpr std::size_t kTiles = PanelSlice::kOfHalf;
  constexpr std::size_t kHalf = kTiles == 1 ? 1 : 0, kAside = kTiles == 1 ? 0 : kLanes;
  for (std::size_t tile = 0; tile < kTiles; ++tile) {
    float* of_rows = totals[0] + tile * kPanelLine;
    microkernel_tile<M>(
        plan, panel, x, prefetch_next && tile == 0,
        {panel.lines[tile][0], panel.lines[tile + kHalf][0] + kAside, of_rows, of_rows + kLanes});
  }
}

void microkernel(TensorType type, const WeightPanel& w, const ActivationPanel& x, std::size_t m,
                 bool prefetch_next, float (*totals)[WeightPanel::kN]) {
  static_assert(ActivationPanel::kM == 6);
  static constexpr decltype(&microkernel_of_m<1>) kOfM[] = {
      microkernel_of_m<1>, microkernel_of_m<2>, microkernel_of_m<3>,
      microkernel_of_m<4>, microkernel_of_m<5>, microkernel_of_m<6>};
  const FoldPlan plan = with_any_type(type, [](auto t) { return fold_plan<decltype(t)>(); });
  kOfM[m - 1](plan, w, x, prefetch_next, totals);
}

}  // namespace ballast::gemm::BALLAST_ISA
