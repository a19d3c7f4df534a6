// Products of a few activations with weights as they lie, four rows at a time: all but what a span
// adds, which each set of instructions makes as is best there. Included after its vectors, inside a
// region of its target.
#pragma once

#include "gemm/prefetch-inl.h"
#include "gemm/quant_types-inl.h"

namespace ballast::gemm::BALLAST_VECTORS {

constexpr int kRows = 4;

BALLAST_INLINE __m128 f16_of_four(std::size_t at, const Bytes (&p)[kRows]) {
  auto bits = [&](int r) { return load<short>(p[r] + at); };
  return _mm_cvtph_ps(_mm_setr_epi16(bits(0), bits(1), bits(2), bits(3), 0, 0, 0, 0));
}

/// t[c] += what the offsets of a plain type's span add.
template <typename Type, std::size_t M>
BALLAST_INLINE void add_offsets(const Bytes (&p)[kRows], const IntegerSpan* const (&x)[M],
                                __m128 (&t)[M]) {
  if constexpr (!Type::kOffset) return;
  for (std::size_t b = 0; b < 8; ++b) {
    const __m128 offsets = f16_of_four(b * Type::kBytes + 2, p);
    unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA {
      t[c] = _mm_fmadd_ps(_mm_set1_ps(static_cast<float>(x[c]->sums[b])), offsets, t[c]);
    });
  }
}

/// sums[c][r] += what `spans` spans of four rows, `stride` bytes apart, add to the dots with M
/// activations, which are `x_stride` spans apart. span_of(Type(), p, x, t) makes t[c] what the span
/// at p adds to the dots of four rows with activation c.
template <typename Type, std::size_t M, bool kLong>
__attribute__((noinline)) void add_spans(Bytes first, std::size_t stride, std::size_t spans,
                                         const IntegerSpan* activations, std::size_t x_stride,
                                         float (*sums)[kRows]) {
  const Prefetch<kLong> prefetch(stride);
  const IntegerSpan* x[M];
  __m128 total[M];
  unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA {
    x[c] = activations + c * x_stride;
    total[c] = _mm_loadu_ps(sums[c]);
  });
  std::size_t at = 0;
  for (std::size_t i = 0; i < spans; ++i, at += kSpanBytes<Type>) {
    const Bytes q = first + at;
    prefetch.template rows<kSpanBytes<Type>>(q, at);
    __m128 t[M];
    span_of(Type(), {q, q + stride, q + 2 * stride, q + 3 * stride}, x, t);
    unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA {
      total[c] = _mm_fmadd_ps(t[c], _mm_set1_ps(x[c]->scale), total[c]);
      ++x[c];
    });
  }
  unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA { _mm_storeu_ps(sums[c], total[c]); });
}

/// sums[c][r] = the dot of row r of four with activation c of M.
template <typename Type, std::size_t M>
void four_dots(Bytes first, std::size_t stride, std::size_t n, const IntegerSpan* x,
               float (*sums)[kRows]) {
  std::fill_n(sums[0], M * kRows, 0.0f);
  const std::size_t whole = n / kSpan, rest = n % kSpan / Type::kNumbers * Type::kBytes;
  for_row_length(stride, [&](auto is_long) {
    add_spans<Type, M, is_long>(first, stride, whole, x, spans_of(n), sums);
  });
  if (rest == 0) return;
  std::uint8_t padded[kRows][kSpanBytes<Type>] = {};
  for (std::size_t r = 0; r < kRows; ++r) {
    std::memcpy(padded[r], first + r * stride + whole * kSpanBytes<Type>, rest);
  }
  add_spans<Type, M, false>(padded[0], sizeof(padded[0]), 1, x + whole, spans_of(n), sums);
}

/// integer_dots() of a type.
template <typename Type>
void all_dots(const std::byte* data, std::size_t stride, std::size_t count, std::size_t n,
              const IntegerSpan* x, std::size_t columns, float* out, std::size_t out_stride) {
  const Bytes rows = bytes(data);
  float sums[kRowColumns][kRows];
  for (std::size_t i = 0; i < count;) {
    // The last rows one by one, each as if it were four.
    const bool four = count - i >= kRows;
    for (std::size_t c = 0; c < columns;) {
      const std::size_t left = columns - c, turns = (left + kRowColumns - 1) / kRowColumns;
      const std::size_t at_once = (left + turns - 1) / turns;
      unroll<kRowColumns>([&](auto m) {
        if (at_once != m + 1) return;
        four_dots<Type, m + 1>(rows + i * stride, four ? stride : 0, n, x + c * spans_of(n), sums);
      });
      for (std::size_t k = 0; k < at_once; ++k, ++c) {
        std::copy_n(sums[k], four ? kRows : 1, out + c * out_stride + i);
      }
    }
    i += four ? kRows : 1;
  }
}

}  // namespace ballast::gemm::BALLAST_VECTORS
