// Products of a batch of activations with weights as they lie, sixteen rows side by side.
#include <hwy/base.h>

#include <algorithm>
#include <iterator>

#include "base/fail.h"
#include "model/integer_dots.h"

#if defined(__x86_64__)

#include <immintrin.h>

// Everything from here on may only run where has_avx512_vnni() says so.
HWY_PUSH_ATTRIBUTES(BALLAST_INTEGERS_TARGET)
#include "model/integer_lanes-inl.h"

namespace ballast {
namespace integers {
namespace {

/// Activations whose sums stay in registers, two of each.
constexpr std::size_t kMostColumns = 6;

/// A span of sixteen rows: of each block of 32 numbers eight vectors, which hold four numbers of
/// each row, and the rows' float scales and offsets.
struct Span {
  __m512i quads[8][8];
  __m512 scales[8], offsets[8];
};

/// Unpacks the span at p.
template <typename Type>
__attribute__((noinline)) void unpack(const Bytes (&p)[kLanes], Span& out) {
  for (std::size_t b = 0; b < 8; ++b) {
    const std::size_t at = b * Type::kBytes;
    Bytes64<4> raw[kRaws<Type>];
    times<kRaws<Type>>([&](auto i) BALLAST_HERE { raw[i] = transposed(p, at + Type::kRaw[i]); });
    const FifthOfLanes fifth = fifth_of_lanes<Type>(p, at);
    times<2>([&](auto h) BALLAST_HERE {
      const Bytes64<4> numbers = Type::template numbers<h>(raw, fifth);
      times<4>([&](auto d) BALLAST_HERE { out.quads[b][4 * h + d] = numbers.v[d]; });
    });
    out.scales[b] = f16_of_lanes(p, at);
    if constexpr (Type::kOffset) out.offsets[b] = f16_of_lanes(p, at + 2);
  }
}

/// sums += in each lane four bytes of `quads` times the four at x + times · apart + at, which are
/// part of `span`. Address and broadcast are part of the instruction: GCC would spend instructions
/// and registers on both that are not there.
template <int times, std::size_t at>
BALLAST_INLINE void add_quad(__m512i& sums, __m512i quads, const std::int8_t* x, std::size_t apart,
                             const IntegerSpan& span) {
  if constexpr (times == 0) {
    asm("vpdpbusd %c3(%2)%{1to16%}, %1, %0" : "+v"(sums) : "v"(quads), "r"(x), "i"(at), "m"(span));
  } else {
    asm("vpdpbusd %c3(%2,%4,%c5)%{1to16%}, %1, %0"
        : "+v"(sums)
        : "v"(quads), "r"(x), "i"(at), "r"(apart), "i"(times), "m"(span));
  }
}

/// The same span of the rows that come next, be it in another call, which is asked for during
/// products: while rows are unpacked, memory could not keep up.
struct Ahead {
  Bytes first;
  std::size_t stride;
  std::size_t rows;  ///< for each block of the span

  template <typename Type>
  BALLAST_INLINE void ask() {
    for (std::size_t r = 0; r < rows; ++r, first += stride) {
      times<(kSpanBytes<Type> + 63) / 64>([&](auto i) BALLAST_HERE {
        _mm_prefetch(reinterpret_cast<const char*>(first + 64 * i), _MM_HINT_T1);
      });
    }
  }
};

/// sums[c][r] += what the span adds to the dots of its rows with M activations, `x_stride` spans
/// apart. A function of its own, so that its sums stay in registers.
template <typename Type, std::size_t M>
__attribute__((noinline)) void add_span(const Span& span, const IntegerSpan* x,
                                        std::size_t x_stride, Ahead ahead, float (*sums)[kLanes]) {
  __m512 t[M];
  times<M>([&](auto c) BALLAST_HERE { t[c] = _mm512_setzero_ps(); });
  const std::size_t apart = x_stride * sizeof(IntegerSpan);
  for (std::size_t b = 0; b < 8; ++b) {
    __m512i high[M], low[M];
    times<M>([&](auto c) BALLAST_HERE { high[c] = low[c] = _mm512_setzero_si512(); });
    ahead.ask<Type>();
    // Two pointers and a distance lead to all columns.
    const std::int8_t* first = x->blocks[b / 4 * 2].high + b % 4 * 16;
    const std::int8_t* later = first + 3 * apart;
    times<8>([&](auto q) BALLAST_HERE {
      const __m512i quads = span.quads[b][q];
      constexpr std::size_t kHigh = q / 4 * sizeof(IntegerSpan::Digits) + q % 4 * 4;
      constexpr std::size_t kLow = kHigh + sizeof(IntegerSpan::Digits::high);
      times<M>([&](auto c) BALLAST_HERE {
        const std::int8_t* column = c < 3 ? first : later;
        const IntegerSpan& of_x = x[c * x_stride];
        add_quad<c % 3, kHigh>(high[c], quads, column, apart, of_x);
        add_quad<c % 3, kLow>(low[c], quads, column, apart, of_x);
      });
    });
    times<M>([&](auto c) BALLAST_HERE {
      __m512i fold = _mm512_add_epi32(_mm512_slli_epi32(high[c], kLowDigit), low[c]);
      if constexpr (Type::kZero != 0) {
        const __m512i of_x = _mm512_set1_epi32(x[c * x_stride].sums[b]);
        fold = _mm512_sub_epi32(fold, _mm512_mullo_epi32(of_x, _mm512_set1_epi32(Type::kZero)));
      }
      t[c] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(fold), span.scales[b], t[c]);
    });
  }
  for (std::size_t b = 0; Type::kOffset && b < 8; ++b) {
    times<M>([&](auto c) BALLAST_HERE {
      const auto of_x = static_cast<float>(x[c * x_stride].sums[b]);
      t[c] = _mm512_fmadd_ps(_mm512_set1_ps(of_x), span.offsets[b], t[c]);
    });
  }
  times<M>([&](auto c) BALLAST_HERE {
    const __m512 scale = _mm512_set1_ps(x[c * x_stride].scale);
    _mm512_storeu_ps(sums[c], _mm512_fmadd_ps(t[c], scale, _mm512_loadu_ps(sums[c])));
  });
}

template <typename Type>
void all_dots(Bytes rows, std::size_t stride, std::size_t count, std::size_t n,
              const IntegerSpan* x, std::size_t columns, float* out, std::size_t out_stride) {
  const std::size_t spans = spans_of(n);
  Span span;
  alignas(64) float sums[kMostLaneColumns][kLanes];
  for (std::size_t i = 0; i < count; i += kLanes) {
    const Bytes first = rows + i * stride;
    const std::size_t here = std::min<std::size_t>(kLanes, count - i);
    for (std::size_t c = 0; c < columns; ++c) _mm512_store_ps(sums[c], _mm512_setzero_ps());
    for (std::size_t s = 0; s < spans; ++s) {
      const std::size_t at = s * kSpanBytes<Type>;
      // The last row again and again, where there are fewer than sixteen.
      Bytes p[kLanes];
      for (std::size_t r = 0; r < kLanes; ++r) p[r] = first + std::min(r, here - 1) * stride + at;
      std::uint8_t padded[kLanes][kSpanBytes<Type>];
      const std::size_t numbers = std::min(kSpan, n - s * kSpan);
      for (std::size_t r = 0; numbers < kSpan && r < kLanes; ++r) {
        const std::size_t bytes = numbers / Type::kNumbers * Type::kBytes;
        std::fill(std::copy_n(p[r], bytes, padded[r]), std::end(padded[r]), std::uint8_t{0});
        p[r] = padded[r];
      }
      unpack<Type>(p, span);
      // In the first two turns, or in the only one.
      const std::size_t turns = (columns + kMostColumns - 1) / kMostColumns;
      Ahead ahead{first + kLanes * stride + at, stride, turns == 1 ? 2u : 1u};
      for (std::size_t c = 0, turn = 0; turn < turns; ++turn) {
        const std::size_t at_once = (columns - c + turns - turn - 1) / (turns - turn);
        times<kMostColumns>([&](auto m) {
          if (at_once != m + 1) return;
          add_span<Type, m + 1>(span, x + c * spans + s, spans, ahead, sums + c);
        });
        c += at_once;
        if (turn == 0) {
          ahead.first += 8 * ahead.rows * stride;
        } else {
          ahead.rows = 0;
        }
      }
    }
    const auto some = static_cast<__mmask16>((1u << here) - 1);
    for (std::size_t c = 0; c < columns; ++c) {
      _mm512_mask_storeu_ps(out + c * out_stride + i, some, _mm512_load_ps(sums[c]));
    }
  }
}

}  // namespace
}  // namespace integers

void integer_lane_dots(TensorType type, const std::byte* rows, std::size_t row_bytes,
                       std::size_t count, std::size_t n, const IntegerSpan* x, std::size_t columns,
                       float* out, std::size_t out_stride) {
  integers::with_type(type, [&](auto t) {
    if constexpr (decltype(t)::kPlain) {
      integers::all_dots<decltype(t)>(integers::bytes(rows), row_bytes, count, n, x, columns, out,
                                      out_stride);
    } else {
      fail("weights of type {} are not multiplied in lanes", to_string(type));
    }
  });
}

}  // namespace ballast
HWY_POP_ATTRIBUTES

#else

namespace ballast {

// multiplies_integers() is false everywhere else.
void integer_lane_dots(TensorType, const std::byte*, std::size_t, std::size_t, std::size_t,
                       const IntegerSpan*, std::size_t, float*, std::size_t) {
  fail("no integer products");
}

}  // namespace ballast

#endif
