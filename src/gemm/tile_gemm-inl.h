// GEMM by tiles, for AMX or what stands in for it in tests. Included after avx512-inl.h, inside a
// region of that target.
//
// A stage is one or two folds of a tile of activations: four tiles of int32 sums for each, stored
// to L1 and scaled there by vectors. The stage behind it is multiplied before the vectors work,
// because what a tile stores takes a while until vectors can load it.
#pragma once

#include "gemm/pack-inl.h"
#include "gemm/tile_gemm.h"

namespace ballast::gemm::avx512 {

constexpr std::size_t kTileM = TileActivations::kM;

/// How a type's super-block is cut into stages.
struct TilePlan {
  bool two_digits;        ///< of weights; else a stage has both halves of the panel
  int folds, depth;       ///< of elements; elements in each
  int mins, groups;       ///< folds of minima, and groups in each
  std::size_t first_sum;  ///< of TileActivations::sums, that the minima multiply
};

/// Codes times group scales fit a byte in Q2_K only: 3 · 15.
template <typename Type>
constexpr bool kHasTwoDigits = !Type::kIsBlock32 && !std::is_same_v<Type, TypeQ2_K>;

template <typename Type>
constexpr TilePlan tile_plan() {
  constexpr FoldPlan kPlan = fold_plan<Type>();
  constexpr std::size_t kFirst = kPlan.sums == ActivationPanel::kSums16 ? 8 : 0;
  return {kHasTwoDigits<Type>, kPlan.folds, 2 * kPlan.pairs, kPlan.mins, kPlan.min_pairs, kFirst};
}

/// The lower bytes of a quad's int16 pairs, in the order of the elements.
BALLAST_INLINE Vector merge_bytes(Vector even, Vector odd) {
  constexpr int kSelect = 0xca;  // mask ? even : odd
  return _mm512_ternarylogic_epi32(broadcast_32(0x00ff00ff), even, shift_left_16<8>(odd), kSelect);
}

/// 16 rows of a panel, to pack_panel().
template <typename Type>
struct TileSlice {
  TileWeights& panel;
  std::size_t half;
  static constexpr bool kSkips = false;

  BALLAST_INLINE void bytes(Vector w, std::size_t quad) const {
    store_lanes(panel.quads[half][0][quad], w);
  }
  BALLAST_INLINE void bytes(Vector w, Vector scale, std::size_t quad) const {
    pairs(mul_16(even_i16(w), scale), mul_16(odd_i16(w), scale), quad);
  }
  /// w = 64·high + low, low in [0, 63]; or one byte.
  BALLAST_INLINE void pairs(Vector even, Vector odd, std::size_t quad) const {
    const Vector low = merge_bytes(even, odd);
    if constexpr (!kHasTwoDigits<Type>) return store_lanes(panel.quads[half][0][quad], low);
    store_lanes(panel.quads[half][0][quad], and_bits(low, broadcast_8(63)));
    store_lanes(panel.quads[half][1][quad],
                merge_bytes(shift_right_signed_16<6>(even), shift_right_signed_16<6>(odd)));
  }
  BALLAST_INLINE void scale(std::size_t f, Floats v) const { store_f32(panel.scales[half][f], v); }
  BALLAST_INLINE void min(std::size_t g, Vector v) const { store_lanes(panel.mins[half][g], v); }
  BALLAST_INLINE void min_scale(std::size_t f, Floats v) const {
    store_f32(panel.min_scales[half][f], v);
  }
  BALLAST_INLINE void prefetch(std::size_t) const {}
};

/// Of each digit of the activations (high, low) the products with both operands of weights.
struct alignas(64) TileSums {
  std::int32_t of[2][2][kTileM][16];
};

/// `steps` tiles of each operand, one behind the other. Four sums hide the latency of a product.
template <typename Tiles>
BALLAST_INLINE void multiply_tiles(const std::int8_t* high, const std::int8_t* low,
                                   const std::int8_t* first, const std::int8_t* second, int steps,
                                   TileSums& sums) {
  constexpr std::size_t kRow = 64, kTile = 16 * kRow;
  Tiles::template zero<0>();
  Tiles::template zero<1>();
  Tiles::template zero<2>();
  Tiles::template zero<3>();
  for (int i = 0; i < steps; ++i) {
    Tiles::template load<4>(high, kRow);
    Tiles::template load<6>(first, kRow);
    Tiles::template dot_add<0, 4, 6>();
    Tiles::template load<7>(second, kRow);
    Tiles::template dot_add<1, 4, 7>();
    Tiles::template load<5>(low, kRow);
    Tiles::template dot_add<2, 5, 6>();
    Tiles::template dot_add<3, 5, 7>();
    high += kTile, low += kTile, first += kTile, second += kTile;
  }
  Tiles::template store<0>(sums.of[0][0], kRow);
  Tiles::template store<1>(sums.of[0][1], kRow);
  Tiles::template store<2>(sums.of[1][0], kRow);
  Tiles::template store<3>(sums.of[1][1], kRow);
}

/// A stage whose sums are not yet scaled.
struct TileStage {
  const TileActivations* x;
  float (*totals)[TileWeights::kN];
  int half, fold;
};

BALLAST_INLINE Vector times_64(Vector v) { return _mm512_slli_epi32(v, 6); }

/// Σ wᵢxᵢ of activation j and 16 rows.
template <bool kTwoDigits>
BALLAST_INLINE Vector whole_sum(const TileSums& sums, int half, std::size_t j) {
  const auto at = [&](int digit, int operand)
                      BALLAST_INLINE_LAMBDA { return load_lanes(sums.of[digit][operand][j]); };
  if constexpr (!kTwoDigits) return add_32(times_64(at(0, half)), at(1, half));
  const Vector middle = add_32(at(0, 0), at(1, 1));
  return add_32(times_64(add_32(times_64(at(0, 1)), middle)), at(1, 0));
}

/// Adds the minima of 16 rows to the sums t of M activations, the first of them j.
template <int M>
BALLAST_INLINE void add_minima(const TilePlan& plan, const TileWeights& w, int half,
                               const TileActivations& x, std::size_t j, Floats (&t)[M]) {
  for (int f = 0; f < plan.mins; ++f) {
    Vector sums[M];
    unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA { sums[c] = zero_vector(); });
    for (int g = f * plan.groups; g < (f + 1) * plan.groups; ++g) {
      const Vector min = load_lanes(w.mins[half][g]);
      unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA {
        const auto pair = load<std::int32_t>(
            reinterpret_cast<Bytes>(x.sums[j + c][plan.first_sum + static_cast<std::size_t>(g)]));
        dot_add_16(sums[c], min, broadcast_32(pair));
      });
    }
    const Floats scale = load_f32(w.min_scales[half][f]);
    unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA { t[c] = mul_add(to_f32(sums[c]), scale, t[c]); });
  }
}

/// Scales the sums of a stage; with the last fold adds its super-block to the totals. `partial`
/// keeps t of gemm/int_gemm.h between stages.
template <bool kTwoDigits, int kFolds>
BALLAST_INLINE void scale_sums(const TilePlan& plan, const TileWeights& w, const TileStage& stage,
                               const TileSums (&sums)[kFolds], std::size_t rows,
                               float (&partial)[2][kTileM][16]) {
  constexpr int kTogether = 4;
  const bool first = stage.fold == 0, last = stage.fold + kFolds == plan.folds;
  const int begin = kTwoDigits ? stage.half : 0, end = kTwoDigits ? begin + 1 : 2;
  for (int half = begin; half < end; ++half) {
    Floats scales[kFolds];
    unroll<kFolds>([&](auto f) BALLAST_INLINE_LAMBDA {
      scales[f] = load_f32(w.scales[half][stage.fold + static_cast<int>(f)]);
    });
    for (std::size_t j = 0; j < rows; j += kTogether) {
      Floats t[kTogether];
      unroll<kTogether>([&](auto c) BALLAST_INLINE_LAMBDA {
        const Floats sum = to_f32(whole_sum<kTwoDigits>(sums[0], half, j + c));
        t[c] =
            first ? mul(sum, scales[0]) : mul_add(sum, scales[0], load_f32(partial[half][j + c]));
        if constexpr (kFolds == 2) {
          t[c] = mul_add(to_f32(whole_sum<kTwoDigits>(sums[1], half, j + c)), scales[1], t[c]);
        }
      });
      if (!last) {
        unroll<kTogether>([&](auto c)
                              BALLAST_INLINE_LAMBDA { store_f32(partial[half][j + c], t[c]); });
        continue;
      }
      add_minima(plan, w, half, *stage.x, j, t);
      unroll<kTogether>([&](auto c) BALLAST_INLINE_LAMBDA {
        float* total = stage.totals[j + c] + 16 * half;
        const Floats of_x = broadcast_f32(stage.x->scale[j + c]);
        store_f32(total, mul_add(t[c], of_x, load_f32(total)));
      });
    }
  }
}

template <typename Tiles, bool kTwoDigits, int kFolds>
void tile_microkernel_of(const TilePlan& plan, const TileWeights& w, const TileActivations* x,
                         std::size_t tiles, std::size_t rows,
                         float (*totals)[kTileM][TileWeights::kN]) {
  alignas(64) float partial[2][kTileM][16];
  TileSums sums[2][kFolds];
  TileStage waiting{};
  int buffer = 0;
  const std::size_t prefetched = (TileWeights::kN + tiles - 1) / tiles;  // rows each time
  const int steps = std::max(1, plan.depth / 64);
  for (std::size_t t = 0; t < tiles; ++t) {
    for (std::size_t r = t * prefetched; r < std::min(TileWeights::kN, (t + 1) * prefetched); ++r) {
      prefetch_row(w.next, r);
    }
    for (int half = 0; half < (kTwoDigits ? 2 : 1); ++half) {
      const auto* first = w.quads[half][0];
      const auto* second = kTwoDigits ? w.quads[half][1] : w.quads[1][0];
      for (int f = 0; f < plan.folds; f += kFolds) {
        for (int i = 0; i < kFolds; ++i) {
          const int element = (f + i) * plan.depth, step = element / 64, column = element % 64;
          multiply_tiles<Tiles>(x[t].high[step][0] + column, x[t].low[step][0] + column,
                                first[element / 4][0], second[element / 4][0], steps,
                                sums[buffer][i]);
        }
        if (waiting.x != nullptr) {
          scale_sums<kTwoDigits, kFolds>(plan, w, waiting, sums[1 - buffer], rows, partial);
        }
        waiting = {x + t, totals[t], half, f};
        buffer = 1 - buffer;
      }
    }
  }
  if (waiting.x != nullptr) {
    scale_sums<kTwoDigits, kFolds>(plan, w, waiting, sums[1 - buffer], rows, partial);
  }
}

template <typename Tiles>
void tile_microkernel_of_type(TensorType type, const TileWeights& w, const TileActivations* x,
                              std::size_t tiles, std::size_t rows,
                              float (*totals)[kTileM][TileWeights::kN]) {
  const TilePlan plan = with_any_type(type, [](auto t) { return tile_plan<decltype(t)>(); });
  const bool by_two = plan.folds > 1;
  const auto kernel = plan.two_digits ? by_two ? tile_microkernel_of<Tiles, true, 2>
                                               : tile_microkernel_of<Tiles, true, 1>
                      : by_two ? tile_microkernel_of<Tiles, false, 2>
                                      : tile_microkernel_of<Tiles, false, 1>;
  kernel(plan, w, x, tiles, rows, totals);
}

}  // namespace ballast::gemm::avx512
