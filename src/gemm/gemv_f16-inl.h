// Products of a few activations with 16-bit floats as they lie. Included once for each set of
// instructions, after its vectors, inside a region of its target.
#pragma once

#include "gemm/f16_to_i16-inl.h"
#include "gemm/prefetch-inl.h"

namespace ballast::gemm::BALLAST_VECTORS {

constexpr std::size_t kRows = 4;
constexpr std::size_t kBytes = 2, kSpanOfRow = kBytes * kSpan;

/// A span of four rows.
struct FourRows {
  Bytes p[kRows];
  FloatScales scales;
};

/// Goes through rows four by four, the last of them repeated if need be, span by span. Scales are
/// made a span ahead: they need all of its numbers, and all of its products need them.
template <typename Type>
class RowSpans {
 public:
  BALLAST_INLINE RowSpans(Bytes rows, std::size_t stride, std::size_t count, std::size_t n)
      : rows_(rows), stride_(stride), count_(count), n_(n) {
    set();
  }
  BALLAST_INLINE FourRows next() {
    const FourRows now = ahead_;
    at_ += kSpan;
    if (at_ >= n_) {
      at_ = 0;
      // Behind the last there is nothing: these are looked at again.
      if (row_ + kRows < count_) row_ += kRows;
    }
    set();
    return now;
  }

 private:
  BALLAST_INLINE void set() {
    const Bytes first = rows_ + row_ * stride_ + at_ * kBytes;
    const std::size_t last = count_ - row_ - 1;
    for (std::size_t r = 0; r < kRows; ++r) ahead_.p[r] = first + std::min(r, last) * stride_;
    if (n_ - at_ < kSpan) [[unlikely]]
      pad();
    ahead_.scales = float_scales<Type>(ahead_.p);
  }
  /// Puts zeros behind the rows' ends. What the caller still reads of other rows stays.
  __attribute__((noinline)) void pad() {
    other_ = !other_;
    std::memset(padded_[other_], 0, sizeof padded_[0]);
    for (std::size_t r = 0; r < kRows; ++r) {
      std::memcpy(padded_[other_][r], ahead_.p[r], (n_ - at_) * kBytes);
      ahead_.p[r] = padded_[other_][r];
    }
  }

  Bytes rows_;
  std::size_t stride_, count_, n_;
  std::size_t row_ = 0, at_ = 0;
  FourRows ahead_;
  bool other_ = false;
  alignas(64) std::uint8_t padded_[2][kRows][kSpanOfRow];
};

/// t[c] = what a span adds to the dots of four rows with activation c. ask(f) is called while fold
/// f is made.
template <typename Type, std::size_t M, typename Ask>
BALLAST_INLINE void span_of(const FourRows& rows, const WordSpan* const (&x)[M], __m128 (&t)[M],
                            const Ask& ask) {
  constexpr std::size_t kFold = kSpan / Type::kFolds;
  alignas(16) float factors[kRows];
  _mm_store_ps(factors, rows.scales.factors);
  unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA { t[c] = _mm_setzero_ps(); });
  const auto add_fold = [&](Vector(&v)[M][kRows]) BALLAST_INLINE_LAMBDA {
    unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA {
      const __m128 sums = _mm_cvtepi32_ps(add_quarters(add_four(v[c])));
      t[c] = _mm_fmadd_ps(sums, rows.scales.scales, t[c]);
    });
  };
  if constexpr (kSixteenRegisters) {
    // Row by row, in loops: unrolled they would not fit the processor's caches of instructions.
#pragma GCC unroll 1
    for (std::size_t f = 0; f < Type::kFolds; ++f) {
      ask(f);
      Vector v[M][kRows];
#pragma GCC unroll 1
      for (std::size_t r = 0; r < kRows; ++r) {
        const Floats factor = all_floats(factors[r]);
        Vector sums[M];
        unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA { sums[c] = zeros(); });
        unroll<kFold / 16>([&](auto i) BALLAST_INLINE_LAMBDA {
          const std::size_t at = f * kFold + 16 * i;
          const Vector words = sixteen_words<Type>(rows.p[r] + at * kBytes, factor);
          unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA {
            add_products(sums[c], words, x[c]->words[at / 16 * kLanes]);
          });
        });
        unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA { v[c][r] = sums[c]; });
      }
      add_fold(v);
    }
  } else {
    Floats factor[kRows];
    unroll<kRows>([&](auto r) BALLAST_INLINE_LAMBDA { factor[r] = all_floats(factors[r]); });
    unroll<Type::kFolds>([&](auto f) BALLAST_INLINE_LAMBDA {
      ask(f);
      Vector v[M][kRows];
      unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA {
        unroll<kRows>([&](auto r) BALLAST_INLINE_LAMBDA { v[c][r] = zeros(); });
      });
      unroll<kFold / 16>([&](auto i) BALLAST_INLINE_LAMBDA {
        constexpr std::size_t kAt = f * kFold + 16 * i;
        unroll<kRows>([&](auto r) BALLAST_INLINE_LAMBDA {
          const Vector words = sixteen_words<Type>(rows.p[r] + kAt * kBytes, factor[r]);
          unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA {
            add_products(v[c][r], words, x[c]->words[kAt / 16 * kLanes]);
          });
        });
      });
      add_fold(v);
    });
  }
}

/// out[c · out_stride + r] = <row r, activation c> for M activations.
template <typename Type, std::size_t M, bool kLong>
__attribute__((noinline)) void multiply_rows(Bytes rows, std::size_t stride, std::size_t count,
                                             std::size_t n, const WordSpan* activations, float* out,
                                             std::size_t out_stride) {
  const Prefetch<kLong> prefetch(stride);
  RowSpans<Type> spans(rows, stride, count, n);
  for (std::size_t i = 0; i < count; i += kRows) {
    const WordSpan* x[M];
    __m128 total[M];
    unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA {
      x[c] = activations + c * spans_of(n);
      total[c] = _mm_setzero_ps();
    });
    for (std::size_t at = 0; at < kBytes * n; at += kSpanOfRow) {
      const Bytes here = rows + i * stride + at;
      constexpr std::size_t kPart = kSpanOfRow / Type::kFolds;
      __m128 t[M];
      span_of<Type>(spans.next(), x, t, [&](auto f) BALLAST_INLINE_LAMBDA {
        prefetch.template rows<kPart>(here + f * kPart, at + f * kPart);
      });
      unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA {
        total[c] = _mm_fmadd_ps(t[c], _mm_set1_ps(x[c]->scale), total[c]);
        ++x[c];
      });
    }
    const auto left = static_cast<int>(std::min(kRows, count - i));
    const __m128i some = _mm_cmpgt_epi32(_mm_set1_epi32(left), _mm_setr_epi32(0, 1, 2, 3));
    unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA {
      _mm_maskstore_ps(out + c * out_stride + i, some, total[c]);
    });
  }
}

void integer_dots(TensorType type, const std::byte* rows, std::size_t row_bytes, std::size_t count,
                  std::size_t n, const WordSpan* x, std::size_t columns, float* out,
                  std::size_t out_stride) {
  if (columns > kMostWordColumns) fail("{} activations are for panels", columns);
  if (count == 0) return;
  with_float_type(type, [&](auto t) {
    unroll<kMostWordColumns>([&](auto m) {
      if (columns != m + 1) return;
      for_row_length(row_bytes, [&](auto is_long) {
        multiply_rows<decltype(t), m + 1, is_long>(bytes(rows), row_bytes, count, n, x, out,
                                                   out_stride);
      });
    });
  });
}

}  // namespace ballast::gemm::BALLAST_VECTORS
