// Products of many activations with weights of all types but F32, with AVX2.
#include "model/integer_kernels.h"

#if defined(__x86_64__)

#include <hwy/base.h>
#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "base/fail.h"

// Everything from here on may only run where has_avx2() says so.
HWY_PUSH_ATTRIBUTES(BALLAST_AVX2_TARGET)
#include "model/integer_avx2-inl.h"
#include "model/integer_panels-inl.h"

namespace ballast::integers::avx2 {

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

}  // namespace ballast::integers::avx2
HWY_POP_ATTRIBUTES

#endif
