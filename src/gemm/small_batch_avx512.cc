// Products of several activations with weights of the types in blocks of 32, sixteen rows side by
// side, with AVX-512.
#include "gemm/kernels.h"

#if defined(__x86_64__)

// Everything from here on may only run where has_avx512_vnni() says so.
HWY_PUSH_ATTRIBUTES(BALLAST_AVX512_VNNI_TARGET)
#include "gemm/small_batch_dots-inl.h"

namespace ballast::gemm::avx512 {
namespace {

/// For a block of each activation, what the numbers that stand for zero have added to its dots,
/// negative; divided by 64, where that leaves an integer.
template <typename Type, std::size_t M>
struct Zeros {
  static constexpr bool kHigh = Type::kZero >= 1 << kLowDigit;
  alignas(32) std::int32_t of[M][8];

  BALLAST_INLINE explicit Zeros(const LaneSpan* x) {
    if constexpr (Type::kZero == 0) return;
    const __m256i factor = _mm256_set1_epi32(-(kHigh ? Type::kZero >> kLowDigit : Type::kZero));
    for (std::size_t c = 0; c < M; ++c) {
      const __m256i sums = load_32(reinterpret_cast<Bytes>(x[c].sums32));
      store_32(of[c], _mm256_mullo_epi32(sums, factor));
    }
  }
};

/// t[c] += what block b adds.
template <typename Type, std::size_t M>
BALLAST_INLINE void add_block(const LaneRows& rows, const LaneSpan* x, const Zeros<Type, M>& zeros,
                              std::size_t b, const char* ask, __m512 (&t)[M]) {
  constexpr bool kHigh = Zeros<Type, M>::kHigh;
  // As many lines as sixteen blocks have, or a part of one more.
  constexpr int kLines = (kLanes * Type::kBytes + 63) / 64, kSteps = 16;
  alignas(32) std::uint16_t scale_bits[kLanes];
  rows.words<0>(scale_bits);
  Vectors<4> raw[kRaws<Type>];
  if constexpr (kRaws<Type> == 2) {
    static_assert(Type::kRaw[1] == Type::kRaw[0] + 16);
    rows.thirty_two<Type::kRaw[0]>(raw);
  } else {
    raw[0] = rows.sixteen<Type::kRaw[0]>();
  }
  FifthOfLanes fifth;
  if constexpr (Type::kFifth != 0) fifth.bits = rows.fours<Type::kFifth>();
  __m512i quads[8];
  unroll<2>([&](auto h) BALLAST_INLINE_LAMBDA {
    const Vectors<4> numbers = Type::template numbers<h>(raw, fifth);
    unroll<4>([&](auto d) BALLAST_INLINE_LAMBDA { quads[4 * h + d] = numbers.v[d]; });
  });
  __m512i dots[M];
  unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA {
    dots[c] = kHigh ? _mm512_set1_epi32(zeros.of[c][b]) : _mm512_setzero_si512();
  });
  add_quads<0, 0, kSteps, kLines>(dots, quads, x->blocks + b, ask);
  unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA {
    dots[c] = _mm512_slli_epi32(dots[c], kLowDigit);
    if constexpr (Type::kZero != 0 && !kHigh) {
      dots[c] = _mm512_add_epi32(dots[c], _mm512_set1_epi32(zeros.of[c][b]));
    }
  });
  add_quads<kLowDigits, 8, kSteps, kLines>(dots, quads, x->blocks + b, ask);
  const __m512 scales = f16_of(scale_bits);
  unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA {
    t[c] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots[c]), scales, t[c]);
  });
}

}  // namespace

template <typename Type, std::size_t M>
BALLAST_INLINE void add_span(LaneRows& rows, const LaneSpan* x, Ahead& ahead, __m512 (&t)[M]) {
  const Zeros<Type, M> zeros(x);
  alignas(32) std::uint16_t offset_bits[8][kLanes];
  for (std::size_t b = 0; b < 8; ++b) {
    if constexpr (Type::kOffset) rows.words<2>(offset_bits[b]);
    add_block<Type>(rows, x, zeros, b, ahead.step(kLanes * Type::kBytes), t);
    rows.advance(Type::kBytes);
  }
  for (std::size_t b = 0; Type::kOffset && b < 8; ++b) {
    const __m512 offsets = f16_of(offset_bits[b]);
    unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA {
      const __m512 of_x = _mm512_cvtepi32_ps(_mm512_set1_epi32(x[c].sums32[b]));
      t[c] = _mm512_fmadd_ps(of_x, offsets, t[c]);
    });
  }
}

void integer_lane_dots(TensorType type, const std::byte* rows, std::size_t row_bytes,
                       std::size_t count, std::size_t n, const LaneSpan* x, std::size_t columns,
                       float* out, std::size_t out_stride) {
  if (columns < kLeastColumns) fail("{} activations are for integer_dots()", columns);
  const LaneDots dots = {bytes(rows), row_bytes, count, n, x, columns, out, out_stride};
  with_type(type, [&](auto t) {
    using Type = decltype(t);
    if constexpr (Type::kPlain) {
      multiply_all<Type>(dots);
    } else {
      multiply_k_type(type, dots);
    }
  });
}

}  // namespace ballast::gemm::avx512
HWY_POP_ATTRIBUTES

#endif
