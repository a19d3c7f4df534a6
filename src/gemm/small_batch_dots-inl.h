// Products of several activations with weights as they lie, sixteen rows side by side: what plain
// types and K types share. Included inside regions of BALLAST_AVX512_VNNI_TARGET.
//
// Weights are unpacked where they are used: the processor does it while it waits for products, of
// which one starts in each cycle. Loads and products are instructions with their addresses: GCC
// would compute these in vector registers, and broadcast by instructions of their own.
#pragma once

#include "gemm/avx512-inl.h"
#include "gemm/small_batch-inl.h"

// Operands 1 to 4 of an instruction that reads the bytes `at` from here in row r of LaneRows, which
// are %c4(%1,%2,%c3).
#define BALLAST_ROW(r) \
  "r"(p_[kBase[r]]), "r"(kTimes[r] == 0 ? none_ : stride_), "i"(kScale[r]), "i"(at)

namespace ballast::gemm::avx512 {

/// Activations that are multiplied at once: sums of each in integers, and as numbers or of a whole
/// span, and the weights stay in registers.
constexpr std::size_t kLeastColumns = 3, kMostColumns = 8;

/// Sixteen rows at the same place. How a row is reached is part of the instruction that loads: GCC
/// would keep sixteen pointers, in vector registers even.
class LaneRows {
 public:
  LaneRows(Bytes first, std::size_t stride) : stride_(stride) {
    asm("" : "+r"(none_));
    constexpr std::size_t kRows[] = {0, 3, 5, 10, 15};
    unroll<5>([&](auto i) BALLAST_INLINE_LAMBDA { p_[i] = first + kRows[i] * stride; });
  }

  BALLAST_INLINE void advance(std::size_t bytes) {
    for (Bytes& p : p_) p += bytes;
  }

  /// Of each row sixteen bytes, `at` from here: vector d has bytes 4d to 4d + 3.
  template <int at>
  BALLAST_INLINE Vectors<4> sixteen() const {
    return transposed(quarters<at>().v);
  }
  /// The same, vector a as it is in rows a, a + 4, a + 8 and a + 12.
  template <int at>
  BALLAST_INLINE Vectors<4> quarters() const {
    Vectors<4> out;
    unroll<4>([&](auto a) BALLAST_INLINE_LAMBDA {
      const __m512i former = two_of_16<a, at>(), latter = two_of_16<a + 8, at>();
      out.v[a] = _mm512_inserti64x4(former, _mm512_castsi512_si256(latter), 1);
    });
    return out;
  }

  /// 32 bytes, the former and the latter half.
  template <int at>
  BALLAST_INLINE void thirty_two(Vectors<4> (&out)[2]) const {
    __m512i v[2][4];
    unroll<2>([&](auto i) BALLAST_INLINE_LAMBDA {
      unroll<4>([&](auto a) BALLAST_INLINE_LAMBDA { v[i][a] = two_of_32<8 * i + a, at>(); });
    });
    const Vectors<4> former = transposed(v[0]), latter = transposed(v[1]);
    unroll<4>([&](auto d) BALLAST_INLINE_LAMBDA {
      out[0].v[d] = _mm512_shuffle_i32x4(former.v[d], latter.v[d], 0x88);
      out[1].v[d] = _mm512_shuffle_i32x4(former.v[d], latter.v[d], 0xdd);
    });
  }

  /// Of each row the two or the four bytes there.
  template <int at>
  BALLAST_INLINE void words(std::uint16_t (&out)[kLanes]) const {
    unroll<kLanes>([&](auto r) BALLAST_INLINE_LAMBDA {
      std::uint32_t word;
      asm("movzwl %c4(%1,%2,%c3), %0" : "=r"(word) : BALLAST_ROW(r));
      // GCC would pack them in vector registers, in more and in slower instructions.
      std::uint16_t& to = out[r];
      asm("movw %w1, %0" : "=m"(to) : "r"(word));
    });
  }
  template <int at>
  BALLAST_INLINE __m512i fours() const {
    alignas(64) std::uint32_t out[kLanes];
    unroll<kLanes>([&](auto r) BALLAST_INLINE_LAMBDA {
      std::uint32_t four;
      asm("movl %c4(%1,%2,%c3), %0" : "=r"(four) : BALLAST_ROW(r));
      std::uint32_t& to = out[r];
      asm("movl %1, %0" : "=m"(to) : "r"(four));
    });
    return _mm512_load_si512(out);
  }

 private:
  // Row r is kTimes[r] strides behind p_[kBase[r]].
  static constexpr int kBase[kLanes] = {0, 0, 0, 1, 0, 2, 2, 1, 0, 2, 3, 1, 3, 2, 3, 4};
  static constexpr int kTimes[kLanes] = {0, 1, 2, 0, 4, 0, 1, 4, 8, 4, 0, 8, 2, 8, 4, 0};
  static constexpr int kScale[kLanes] = {1, 1, 2, 1, 4, 1, 1, 4, 8, 4, 1, 8, 2, 8, 4, 1};

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
BALLAST_INLINE void add_quad(__m512i& sums, __m512i quads, const void* x) {
  asm("vpdpbusd %c3(%2)%{1to16%}, %1, %0"
      : "+v"(sums)
      : "v"(quads), "r"(x), "i"(at), "m"(static_cast<const LaneSpan*>(x)[at / sizeof(LaneSpan)]));
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

/// Up to sixteen rows of n weights, and which of several turns the activations are multiplied in.
struct Turn {
  Bytes first;
  std::size_t stride, count, n;
  std::size_t columns, number, turns;
};

/// Asks memory for rows that come next. Each turn asks for its share.
class Ahead {
 public:
  explicit Ahead(const Turn& turn)
      : there_(reinterpret_cast<const char*>(turn.first)),
        next_(there_ + std::max(kAhead, kLanes * turn.stride)),
        others_(turn.turns - 1),
        until_(turn.number) {}

  /// Where the next so many bytes are; in another's share, where some are that are there.
  const char* step(std::size_t bytes) {
    const char* next = until_ == 0 ? next_ : there_;
    until_ = until_ == 0 ? others_ : until_ - 1;
    next_ += bytes;
    return next;
  }

 private:
  static constexpr std::size_t kAhead = 24 << 10;

  const char *there_, *next_;
  std::size_t others_, until_;
};

/// dots[c] += the products of N quads with the digits of activation c that are `at` bytes behind x.
/// Meanwhile, as steps `step` on of `steps`, asks for some of `lines` lines of 64 bytes.
template <std::size_t at, int step, int steps, int lines, int N, std::size_t M>
BALLAST_INLINE void add_quads(__m512i (&dots)[M], const __m512i (&quads)[N], const void* x,
                              const char* ask) {
  unroll<N>([&](auto q) BALLAST_INLINE_LAMBDA {
    constexpr int kStep = step + q, kLine = kStep * lines / steps;
    if constexpr (kStep == 0 || (kStep - 1) * lines / steps != kLine) {
      _mm_prefetch(ask + 64 * kLine, _MM_HINT_T1);
    }
    unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA {
      add_quad<c * sizeof(LaneSpan) + at + 4 * q>(dots[c], quads[q], x);
    });
  });
}

constexpr std::size_t kLowDigits = 32;  ///< bytes from a block's high digits to its low ones

/// out[c · out_stride + r] = <row r, activation c> for M activations. What a span adds is
/// add_span()'s, of plain types in integer_lanes.cc, of K types in integer_lanes_k.cc.
template <typename Type, std::size_t M>
__attribute__((noinline)) void multiply_rows(const Turn& turn, const LaneSpan* x, float* out,
                                             std::size_t out_stride) {
  constexpr std::size_t kBytes = kSpanBytes<Type>;
  Ahead ahead(turn);
  __m512 totals[M];
  for (std::size_t c = 0; c < M; ++c) totals[c] = _mm512_setzero_ps();
  for (std::size_t s = 0; s < spans_of(turn.n); ++s, x += turn.columns) {
    Bytes first = turn.first + s * kBytes;
    const std::size_t numbers = std::min(kSpan, turn.n - s * kSpan);
    std::uint8_t padded[kLanes][kBytes];
    const bool whole = turn.count == kLanes && numbers == kSpan;
    if (!whole) {
      pad<Type>(first, turn.stride, turn.count, numbers, padded);
      first = padded[0];
      // LaneRows' loads do not tell what memory they read: it has to be written by now.
      asm volatile("" : "+r"(first) : : "memory");
    }
    LaneRows rows(first, whole ? turn.stride : kBytes);
    __m512 t[M];
    unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA { t[c] = _mm512_setzero_ps(); });
    add_span<Type>(rows, x, ahead, t);
    unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA {
      totals[c] = _mm512_fmadd_ps(t[c], _mm512_set1_ps(x[c].scale), totals[c]);
    });
  }
  const auto some = static_cast<__mmask16>((1u << turn.count) - 1);
  for (std::size_t c = 0; c < M; ++c) _mm512_mask_storeu_ps(out + c * out_stride, some, totals[c]);
}

/// The rows and activations of integer_lane_dots().
struct LaneDots {
  Bytes first;
  std::size_t stride, count, n;
  const LaneSpan* x;
  std::size_t columns;
  float* out;
  std::size_t out_stride;
};

template <typename Type>
void multiply_all(const LaneDots& d) {
  const std::size_t turns = (d.columns + kMostColumns - 1) / kMostColumns;
  for (std::size_t i = 0; i < d.count; i += kLanes) {
    Turn turn = {d.first + i * d.stride,
                 d.stride,
                 std::min<std::size_t>(kLanes, d.count - i),
                 d.n,
                 d.columns,
                 0,
                 turns};
    for (std::size_t c = 0; turn.number < turns; ++turn.number) {
      const std::size_t left = turns - turn.number, at_once = (d.columns - c + left - 1) / left;
      unroll<kMostColumns - kLeastColumns + 1>([&](auto m) {
        if (at_once != m + kLeastColumns) return;
        multiply_rows<Type, m + kLeastColumns>(turn, d.x + c, d.out + c * d.out_stride + i,
                                               d.out_stride);
      });
      c += at_once;
    }
  }
}

/// Those of K types, which are compiled by themselves.
void multiply_k_type(TensorType type, const LaneDots& dots);

}  // namespace ballast::gemm::avx512
