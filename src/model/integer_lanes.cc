// Products of a batch of activations with weights as they lie, sixteen rows side by side.
#include <hwy/base.h>

#include <algorithm>
#include <cstring>

#include "base/fail.h"
#include "model/integer_dots.h"

#if defined(__x86_64__)

#include <immintrin.h>

// Everything from here on may only run where has_avx512_vnni() says so.
HWY_PUSH_ATTRIBUTES(BALLAST_INTEGERS_TARGET)
#include "model/integer_lanes-inl.h"

// Operands 1 to 4 of an instruction that reads the bytes `at` from here in row r of LaneRows, which
// are %c4(%1,%2,%c3).
#define BALLAST_ROW(r) \
  "r"(p_[kBase[r]]), "r"(kTimes[r] == 0 ? none_ : stride_), "i"(std::max(1, kTimes[r])), "i"(at)

namespace ballast {
namespace integers {
namespace {

/// Activations that are multiplied at once: sums of each, in integers and as numbers, and eight
/// vectors of weights stay in registers.
constexpr std::size_t kMostColumns = 8;

/// How far ahead of their use rows are asked for, at least, in bytes.
constexpr std::size_t kAhead = 24 << 10;

/// Sixteen rows at the same place. How a row is reached is part of the instruction that loads: GCC
/// would keep sixteen pointers, in vector registers even.
class LaneRows {
 public:
  LaneRows(Bytes first, std::size_t stride)
      : stride_(stride),
        p_{first, first + 3 * stride, first + 5 * stride, first + 10 * stride,
           first + 15 * stride} {
    asm("" : "+r"(none_));
  }

  BALLAST_INLINE void advance(std::size_t bytes) {
    for (Bytes& p : p_) p += bytes;
  }

  /// Of each row sixteen bytes, `at` from here: vector d has bytes 4d to 4d + 3.
  template <int at>
  BALLAST_INLINE Bytes64<4> sixteen() const {
    __m512i v[4];
    times<4>([&](auto a) BALLAST_HERE {
      const __m256i rest = _mm512_castsi512_si256(two_of_16<a + 8, at>());
      v[a] = _mm512_inserti64x4(two_of_16<a, at>(), rest, 1);
    });
    return transposed(v);
  }

  /// 32 bytes, the former and the latter half.
  template <int at>
  BALLAST_INLINE void thirty_two(Bytes64<4> (&out)[2]) const {
    __m512i v[2][4];
    times<2>([&](auto i) BALLAST_HERE {
      times<4>([&](auto a) BALLAST_HERE { v[i][a] = two_of_32<8 * i + a, at>(); });
    });
    const Bytes64<4> former = transposed(v[0]), latter = transposed(v[1]);
    times<4>([&](auto d) BALLAST_HERE {
      out[0].v[d] = _mm512_shuffle_i32x4(former.v[d], latter.v[d], 0x88);
      out[1].v[d] = _mm512_shuffle_i32x4(former.v[d], latter.v[d], 0xdd);
    });
  }

  /// Of each row the two or the four bytes there.
  template <int at>
  BALLAST_INLINE void words(std::uint16_t (&out)[kLanes]) const {
    times<kLanes>([&](auto r) BALLAST_HERE {
      std::uint32_t word;
      asm("movzwl %c4(%1,%2,%c3), %0" : "=r"(word) : BALLAST_ROW(r));
      // GCC would pack them in vector registers, in more and in slower instructions.
      asm("movw %w1, %0" : "=m"(out[r]) : "r"(word));
    });
  }
  template <int at>
  BALLAST_INLINE __m512i fours() const {
    alignas(64) std::uint32_t out[kLanes];
    times<kLanes>([&](auto r) BALLAST_HERE {
      std::uint32_t four;
      asm("movl %c4(%1,%2,%c3), %0" : "=r"(four) : BALLAST_ROW(r));
      asm("movl %1, %0" : "=m"(out[r]) : "r"(four));
    });
    return _mm512_load_si512(out);
  }

 private:
  // Row r is kTimes[r] strides behind p_[kBase[r]].
  static constexpr int kBase[kLanes] = {0, 0, 0, 1, 0, 2, 2, 1, 0, 2, 3, 1, 3, 2, 3, 4};
  static constexpr int kTimes[kLanes] = {0, 1, 2, 0, 4, 0, 1, 4, 8, 4, 0, 8, 2, 8, 4, 0};

  /// Rows r and r + 4.
  template <int r, int at>
  BALLAST_INLINE __m512i two_of_16() const {
    __m512i v;
    asm("vmovdqu32 %c4(%1,%2,%c3), %x0" : "=v"(v) : BALLAST_ROW(r));
    asm("vinserti32x4 $1, %c4(%1,%2,%c3), %t0, %t0" : "+v"(v) : BALLAST_ROW(r + 4));
    return v;
  }
  template <int r, int at>
  BALLAST_INLINE __m512i two_of_32() const {
    __m512i v;
    asm("vmovdqu32 %c4(%1,%2,%c3), %t0" : "=v"(v) : BALLAST_ROW(r));
    asm("vinserti64x4 $1, %c4(%1,%2,%c3), %0, %0" : "+v"(v) : BALLAST_ROW(r + 4));
    return v;
  }

  std::size_t stride_, none_ = 0;
  Bytes p_[5];
};

/// sums += in each lane four bytes of `quads` times the four `at` bytes behind x. The broadcast is
/// part of the instruction: GCC would spend an instruction and a register on it.
template <std::size_t at>
BALLAST_INLINE void add_quad(__m512i& sums, __m512i quads, const LaneSpan* x) {
  asm("vpdpbusd %c3(%2)%{1to16%}, %1, %0"
      : "+v"(sums)
      : "v"(quads), "r"(x), "i"(at), "m"(x[at / sizeof(LaneSpan)]));
}

/// What a block leaves for the end of its span.
template <typename Type, std::size_t M>
struct SpanOfLanes {
  __m512 t[M];
  /// Of each block what a number that stands for zero has added to a dot, negative; 64 times, where
  /// that leaves an integer.
  static constexpr bool kHigh = Type::kZero >= 64;
  alignas(32) std::int32_t zeros[M][8];
  alignas(32) std::uint16_t offsets[8][kLanes];

  BALLAST_INLINE void begin(const LaneSpan* x) {
    times<M>([&](auto c) BALLAST_HERE {
      t[c] = _mm512_setzero_ps();
      if constexpr (Type::kZero != 0) {
        const __m256i sums = load_32(reinterpret_cast<Bytes>(x[c].sums32));
        const int factor = kHigh ? -(Type::kZero >> kLowDigit) : -Type::kZero;
        store_32(zeros[c], _mm256_mullo_epi32(sums, _mm256_set1_epi32(factor)));
      }
    });
  }
};

/// Adds block b to dots with M activations. Meanwhile asks for lines of 64 bytes from `ask` on.
template <typename Type, std::size_t M>
BALLAST_INLINE void add_block(const LaneRows& rows, const LaneSpan* x, std::size_t b,
                              const char* ask, SpanOfLanes<Type, M>& span) {
  constexpr bool kHigh = SpanOfLanes<Type, M>::kHigh;
  alignas(32) std::uint16_t scale_bits[kLanes];
  rows.words<0>(scale_bits);
  if constexpr (Type::kOffset) rows.words<2>(span.offsets[b]);
  Bytes64<4> raw[kRaws<Type>];
  if constexpr (kRaws<Type> == 2) {
    static_assert(Type::kRaw[1] == Type::kRaw[0] + 16);
    rows.thirty_two<Type::kRaw[0]>(raw);
  } else {
    raw[0] = rows.sixteen<Type::kRaw[0]>();
  }
  FifthOfLanes fifth;
  if constexpr (Type::kFifth != 0) fifth.bits = rows.fours<Type::kFifth>();
  const Bytes64<4> quads[] = {Type::template numbers<0>(raw, fifth),
                              Type::template numbers<1>(raw, fifth)};
  __m512i dots[M];
  times<M>([&](auto c) BALLAST_HERE {
    dots[c] = kHigh ? _mm512_set1_epi32(span.zeros[c][b]) : _mm512_setzero_si512();
  });
  const auto* of_block = reinterpret_cast<const LaneSpan*>(x->blocks + b);
  auto add = [&](auto digit) BALLAST_HERE {
    times<8>([&](auto q) BALLAST_HERE {
      // As many lines in all as sixteen rows have in a block, or a part of one more.
      constexpr int kLine = 8 * digit + q;
      if constexpr (4 * kLine < Type::kBytes) _mm_prefetch(ask + 64 * kLine, _MM_HINT_T1);
      times<M>([&](auto c) BALLAST_HERE {
        constexpr std::size_t kAt = c * sizeof(LaneSpan) + 32 * digit + 4 * q;
        add_quad<kAt>(dots[c], quads[q / 4].v[q % 4], of_block);
      });
    });
  };
  add(std::integral_constant<int, 0>());
  times<M>([&](auto c) BALLAST_HERE {
    dots[c] = _mm512_slli_epi32(dots[c], kLowDigit);
    if constexpr (Type::kZero != 0 && !kHigh) {
      dots[c] = _mm512_add_epi32(dots[c], _mm512_set1_epi32(span.zeros[c][b]));
    }
  });
  add(std::integral_constant<int, 1>());
  const __m512 scales = f16_of(scale_bits);
  times<M>([&](auto c) BALLAST_HERE {
    span.t[c] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots[c]), scales, span.t[c]);
  });
}

/// `count` rows of a span, 1 to 16, as zeros where there is nothing: rows, and numbers behind the
/// first `numbers`.
template <typename Type>
__attribute__((noinline)) void pad(Bytes first, std::size_t stride, std::size_t count,
                                   std::size_t numbers, std::uint8_t (*out)[kSpanBytes<Type>]) {
  const std::size_t bytes = numbers / Type::kNumbers * Type::kBytes;
  for (std::size_t r = 0; r < kLanes; ++r) {
    std::memset(out[r], 0, kSpanBytes<Type>);
    if (r < count) std::memcpy(out[r], first + r * stride, bytes);
  }
}

/// Up to sixteen rows of n weights, and the activations of which some are multiplied with them in
/// one of several turns.
struct Turn {
  Bytes first;
  std::size_t stride, count, n;
  std::size_t columns, number, turns;
};

/// out[c · out_stride + r] = <row r, activation c> for M activations. Weights are unpacked where
/// they are used: the processor does it while it waits for products, of which one starts in each
/// cycle.
template <typename Type, std::size_t M>
__attribute__((noinline)) void multiply_rows(const Turn& turn, const LaneSpan* x, float* out,
                                             std::size_t out_stride) {
  constexpr std::size_t kBytes = kSpanBytes<Type>;
  const char* here = reinterpret_cast<const char*>(turn.first);
  const char* ask = here + std::max(kAhead, kLanes * turn.stride);
  std::size_t until_asked = turn.number;
  __m512 totals[M];
  for (std::size_t c = 0; c < M; ++c) totals[c] = _mm512_setzero_ps();
  for (std::size_t s = 0; s < spans_of(turn.n); ++s, x += turn.columns) {
    const Bytes first = turn.first + s * kBytes;
    const std::size_t numbers = std::min(kSpan, turn.n - s * kSpan);
    std::uint8_t padded[kLanes][kBytes];
    const bool whole = turn.count == kLanes && numbers == kSpan;
    if (!whole) pad<Type>(first, turn.stride, turn.count, numbers, padded);
    LaneRows rows(whole ? first : padded[0], whole ? turn.stride : kBytes);
    SpanOfLanes<Type, M> span;
    span.begin(x);
    for (std::size_t b = 0; b < 8; ++b) {
      // Each turn asks for its share; else for what is there.
      const bool asks = until_asked == 0;
      until_asked = asks ? turn.turns - 1 : until_asked - 1;
      add_block<Type, M>(rows, x, b, asks ? ask : here, span);
      rows.advance(Type::kBytes);
      ask += kLanes * Type::kBytes;
    }
    for (std::size_t b = 0; Type::kOffset && b < 8; ++b) {
      const __m512 offsets = f16_of(span.offsets[b]);
      times<M>([&](auto c) BALLAST_HERE {
        const __m512 of_x = _mm512_cvtepi32_ps(_mm512_set1_epi32(x[c].sums32[b]));
        span.t[c] = _mm512_fmadd_ps(of_x, offsets, span.t[c]);
      });
    }
    times<M>([&](auto c) BALLAST_HERE {
      totals[c] = _mm512_fmadd_ps(span.t[c], _mm512_set1_ps(x[c].scale), totals[c]);
    });
  }
  const auto some = static_cast<__mmask16>((1u << turn.count) - 1);
  for (std::size_t c = 0; c < M; ++c) _mm512_mask_storeu_ps(out + c * out_stride, some, totals[c]);
}

template <typename Type>
void all_dots(Bytes first, std::size_t stride, std::size_t count, std::size_t n, const LaneSpan* x,
              std::size_t columns, float* out, std::size_t out_stride) {
  const std::size_t turns = (columns + kMostColumns - 1) / kMostColumns;
  for (std::size_t i = 0; i < count; i += kLanes) {
    Turn turn = {
        first + i * stride, stride, std::min<std::size_t>(kLanes, count - i), n, columns, 0, turns};
    for (std::size_t c = 0; turn.number < turns; ++turn.number) {
      const std::size_t at_once = (columns - c + turns - turn.number - 1) / (turns - turn.number);
      times<kMostColumns>([&](auto m) {
        if (at_once != m + 1) return;
        multiply_rows<Type, m + 1>(turn, x + c, out + c * out_stride + i, out_stride);
      });
      c += at_once;
    }
  }
}

}  // namespace
}  // namespace integers

void integer_lane_dots(TensorType type, const std::byte* rows, std::size_t row_bytes,
                       std::size_t count, std::size_t n, const LaneSpan* x, std::size_t columns,
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
                       const LaneSpan*, std::size_t, float*, std::size_t) {
  fail("no integer products");
}

}  // namespace ballast

#endif
