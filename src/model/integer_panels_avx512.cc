// Products of many activations with weights of all types but F32, with AVX-512.
#include "model/integer_kernels.h"

#if defined(__x86_64__)

#include <hwy/base.h>
#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/fail.h"

// Everything from here on may only run where has_avx512_vnni() says so.
HWY_PUSH_ATTRIBUTES(BALLAST_AVX512_TARGET)
#include "model/integer_floats-inl.h"
#include "model/integer_panels-inl.h"

namespace ballast::integers::avx512 {

/// Numbers 0 to 15 and 16 to 31, in the lower words of their lanes, in the order of IntegerTile's
/// pairs.
BALLAST_INLINE __m512i pairs_of_words(__m512i former, __m512i latter) {
  alignas(64) static constexpr auto kOrder = [] {
    std::array<std::int16_t, 32> order{};
    for (std::size_t i = 0; i < 32; ++i) {
      constexpr std::size_t kOfFour[] = {0, 2, 1, 3};
      order[i] = static_cast<std::int16_t>(2 * (i / 4 * 4 + kOfFour[i % 4]));
    }
    return order;
  }();
  return _mm512_permutex2var_epi16(former, _mm512_load_si512(kOrder.data()), latter);
}

template <typename Type>
requires(Type::kFloat) BALLAST_INLINE void fill(const Bytes (&p)[kLanes], Part part) {
  alignas(64) std::int16_t words[kLanes][kSpan];
  alignas(64) float factors[kLanes], scales[kLanes];
  for (std::size_t r = 0; r < kLanes; r += 4) {
    const FloatScales of_four = float_scales<Type>({p[r], p[r + 1], p[r + 2], p[r + 3]});
    _mm_store_ps(factors + r, of_four.factors);
    _mm_store_ps(scales + r, of_four.scales);
  }
  Bytes rows[kLanes];
  for (std::size_t r = 0; r < kLanes; ++r) {
    if (r % 2 == 0) ask(part, r / 2);
    const __m512 factor = _mm512_set1_ps(factors[r]);
    times<kSpan / 32>([&](auto b) BALLAST_HERE {
      const __m512i former = float_words<Type>(p[r] + 64 * b, factor);
      const __m512i latter = float_words<Type>(p[r] + 64 * b + 32, factor);
      _mm512_store_si512(words[r] + 32 * b, pairs_of_words(former, latter));
    });
    rows[r] = reinterpret_cast<Bytes>(words[r]);
  }
  for (std::size_t i = 0; i < kSpan / 8; ++i) {
    const Vectors<4> pairs = transposed(rows, 16 * i);
    times<4>([&](auto d) BALLAST_HERE { store_lanes(part.line(4 * i + d), pairs.v[d]); });
  }
  times<Type::kFolds>([&](auto f) BALLAST_HERE {
    store_floats(part.line(folding<Type>().all_pairs() + f), load_floats(scales));
  });
}

void fill_panel(TensorType type, const std::byte* rows, std::size_t row_bytes, std::size_t count,
                std::size_t n, std::size_t span, std::size_t ahead, IntegerPanel& out) {
  with_any_type(
      type, [&](auto t) { fill_all<decltype(t)>(rows, row_bytes, count, n, span, ahead, out); });
}

void multiply_panel(TensorType type, const IntegerPanel& panel, const IntegerTile& x,
                    std::size_t columns, bool ask, float (*totals)[IntegerPanel::kRows]) {
  const Folding how = with_any_type(type, [](auto t) { return folding<decltype(t)>(); });
  multiply_panel_by(how, panel, x, columns, ask, totals);
}

}  // namespace ballast::integers::avx512
HWY_POP_ATTRIBUTES

#endif
