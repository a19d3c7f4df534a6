// Products of a few activations with 16-bit floats as they lie, with AVX2.
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
#include "model/integer_words-inl.h"

namespace ballast::integers::avx2 {

void integer_dots(TensorType type, const std::byte* rows, std::size_t row_bytes, std::size_t count,
                  std::size_t n, const WordSpan* x, std::size_t columns, float* out,
                  std::size_t out_stride) {
  word_dots(type, rows, row_bytes, count, n, x, columns, out, out_stride);
}

}  // namespace ballast::integers::avx2
HWY_POP_ATTRIBUTES

#endif
