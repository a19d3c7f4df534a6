// Integer GEMM on packed panels. Included after avx2-inl.h or avx512-inl.h, inside a region of that
// target.
//
// pack_weights() unpacks a super-block of 32 weight rows to int16, once for all activations; the
// panel stays in L1. microkernel() multiplies it with panels of six activations: a tile of totals
// is 2 · kLanes rows × 6 activations, in registers.
#pragma once

#include "gemm/pack-inl.h"

namespace ballast::gemm::BALLAST_ISA {

/// int32 in a line of a panel: kN / 2 rows.
constexpr std::size_t kPanelLine = WeightPanel::kN / 2;

/// kLanes rows of a panel, to pack_panel(). A quad takes two lines.
template <typename Type>
struct PanelSlice {
  WeightPanel& panel;
  std::size_t index;

  static constexpr bool kSkips = true;
  static constexpr std::size_t kOfHalf = kPanelLine / kLanes;
  static constexpr std::size_t kMins = kSuperblock / 2;
  static constexpr std::size_t kScales = fold_plan<Type>().all_pairs();

  BALLAST_INLINE void bytes(Vector w, std::size_t quad) const {
    pairs(even_i16(w), odd_i16(w), quad);
  }
  BALLAST_INLINE void bytes(Vector w, Vector scale, std::size_t quad) const {
    pairs(mul_16(even_i16(w), scale), mul_16(odd_i16(w), scale), quad);
  }
  BALLAST_INLINE void pairs(Vector even, Vector odd, std::size_t quad) const {
    store_lanes(line(2 * quad), even);
    store_lanes(line(2 * quad + 1), odd);
  }
  BALLAST_INLINE void scale(std::size_t f, Floats v) const { store_f32(line(kScales + f), v); }
  BALLAST_INLINE void min(std::size_t g, Vector v) const { store_lanes(line(kMins + g), v); }
  BALLAST_INLINE void min_scale(std::size_t f, Floats v) const {
    store_f32(line(kScales + Type::kFolds + f), v);
  }
  /// The steps of all slices prefetch the first half of the rows.
  BALLAST_INLINE void prefetch(std::size_t step) const {
    if (step % kOfHalf == 0) prefetch_row(panel.next, (8 * index + step) / kOfHalf);
  }

 private:
  BALLAST_INLINE std::int32_t* line(std::size_t i) const {
    return panel.lines[index / kOfHalf][i] + index % kOfHalf * kLanes;
  }
};

void pack_weights(TensorType type, const std::byte* w, std::size_t row_bytes, std::size_t n,
                  std::size_t k, std::size_t superblock, std::size_t ahead, WeightPanel& out) {
  with_any_type(type, [&](auto t) {
    using Type = decltype(t);
    pack_panel<Type, PanelSlice<Type>>(w, row_bytes, n, k, superblock, ahead, out);
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
  const int of_elements = plan.folds_of(panel.elements), of_mins = plan.mins_of(panel.elements);
  const int folds = of_elements + of_mins;
  std::size_t prefetched = WeightPanel::kN / 2;
  // Fold f of `count` pairs. `together` pairs are unrolled, a prefetch before them.
  const auto fold = [&](int f, int count, auto together, bool prefetches) BALLAST_INLINE_LAMBDA {
    Vector a[M], b[M];
    unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA { a[c] = b[c] = zero_vector(); });
    for (int i = 0; i < count; i += together) {
      if (prefetches) prefetch_row(panel.next, prefetched++);
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
  for (int f = 0; f < of_elements; ++f) {
    fold(f, plan.pairs, std::integral_constant<int, 8>(), prefetch_next);
  }
  while (prefetch_next && prefetched < WeightPanel::kN) prefetch_row(panel.next, prefetched++);
  const int missing = plan.folds - of_elements;
  first_scale += missing * kPanelLine;
  second_scale += missing * kPanelLine;
  rows.first += missing * plan.pairs * kPanelLine;
  rows.second += missing * plan.pairs * kPanelLine;
  pairs = x.pairs + plan.sums;
  for (int f = of_elements; f < folds; ++f) {
    fold(f, plan.min_pairs, std::integral_constant<int, 1>(), false);
  }
}

/// microkernel() of M activations.
template <int M>
void microkernel_of_m(const FoldPlan& plan, const WeightPanel& panel, const ActivationPanel& x,
                      bool prefetch_next, float (*totals)[WeightPanel::kN]) {
  // A tile takes one slice of each half of the panel, or both slices of a half.
  constexpr std::size_t kTiles = kPanelLine / kLanes;
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
