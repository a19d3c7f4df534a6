// Integer GEMM of a small batch with AVX-512: Block32 types.
#include "gemm/kernels.h"

#if defined(__x86_64__)

// Code from here on needs has_avx512_vnni().
HWY_PUSH_ATTRIBUTES(BALLAST_AVX512_VNNI_TARGET)
#include "gemm/small_batch-inl.h"

namespace ballast::gemm::avx512 {
namespace {

/// What the zero point subtracts from the dots of each block, negative: zero point · Σ x. It is
/// divided by 64 where the zero point is a multiple, and then added before the shift by kLowBits.
template <typename Type, std::size_t M>
struct ZeroPointTerms {
  static constexpr bool kHigh = Type::kZeroPoint >= 1 << kLowBits;
  alignas(32) std::int32_t of[M][8];

  BALLAST_INLINE explicit ZeroPointTerms(const SmallBatchActivations* x) {
    if constexpr (Type::kZeroPoint == 0) return;
    const __m256i factor =
        _mm256_set1_epi32(-(kHigh ? Type::kZeroPoint >> kLowBits : Type::kZeroPoint));
    for (std::size_t c = 0; c < M; ++c) {
      const __m256i sums = load_256(x[c].sums32);
      store_256(of[c], _mm256_mullo_epi32(sums, factor));
    }
  }
};

/// Scale of a block of each row, and its fifth bits if the type has them.
template <typename Type>
class BlockHead {
 public:
  static constexpr bool kHasFifth = Type::kFifthBits != 0;
  FifthBitsOfLanes fifth;

  BALLAST_INLINE explicit BlockHead(const SixteenRows& rows) {
    static_assert(Type::kScale == 0);
    if constexpr (!kHasFifth) {
      rows.load_u16<0>(bits_);
    } else {
      __m512i second;
      rows.load_first_8(first_, second);
      if constexpr (Type::kFifthBits == 4) {
        fifth.bits = second;
      } else {
        static_assert(Type::kFifthBits == 2);
        fifth.bits = _mm512_or_si512(_mm512_srli_epi32(first_, 16), _mm512_slli_epi32(second, 16));
      }
    }
  }
  /// To be called late: what was stored word by word takes its time.
  BALLAST_INLINE __m512 scales() const {
    if constexpr (!kHasFifth) return f16_to_f32(bits_);
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(first_));
  }

 private:
  alignas(32) std::uint16_t bits_[kHasFifth ? 1 : kLanes];
  __m512i first_;
};

/// t[c] += block b's part.
template <typename Type, std::size_t M>
BALLAST_INLINE void add_block(const SixteenRows& rows, const SmallBatchActivations* x,
                              const ZeroPointTerms<Type, M>& zero_points, std::size_t b,
                              const char* next, __m512 (&t)[M]) {
  constexpr bool kHigh = ZeroPointTerms<Type, M>::kHigh;
  // The lines of sixteen blocks, rounded up, are prefetched during sixteen quads.
  constexpr int kLines = (kLanes * Type::kBytes + 63) / 64, kSteps = 16;
  const BlockHead<Type> head(rows);
  Vectors<4> raw[kCodeLoads<Type>];
  if constexpr (kCodeLoads<Type> == 2) {
    static_assert(Type::kCodes[1] == Type::kCodes[0] + 16);
    rows.load_32_bytes<Type::kCodes[0]>(raw);
  } else {
    raw[0] = rows.load_16_bytes<Type::kCodes[0]>();
  }
  __m512i quads[8];
  unroll<2>([&](auto h) BALLAST_INLINE_LAMBDA {
    const Vectors<4> codes = Type::template codes<h>(raw, head.fifth);
    unroll<4>([&](auto d) BALLAST_INLINE_LAMBDA { quads[4 * h + d] = codes.v[d]; });
  });
  __m512i dots[M];
  unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA {
    dots[c] = kHigh ? _mm512_set1_epi32(zero_points.of[c][b]) : _mm512_setzero_si512();
  });
  dot_quads<0, 0, kSteps, kLines>(dots, quads, x->blocks + b, next);
  unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA {
    dots[c] = _mm512_slli_epi32(dots[c], kLowBits);
    if constexpr (Type::kZeroPoint != 0 && !kHigh) {
      dots[c] = _mm512_add_epi32(dots[c], _mm512_set1_epi32(zero_points.of[c][b]));
    }
  });
  dot_quads<kLowBytes, 8, kSteps, kLines>(dots, quads, x->blocks + b, next);
  const __m512 scales = head.scales();
  unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA {
    t[c] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots[c]), scales, t[c]);
  });
}

}  // namespace

template <typename Type, std::size_t M>
BALLAST_INLINE void add_superblock(SixteenRows& rows, const SmallBatchActivations* x,
                                   PrefetchPacer& pacer, std::size_t elements, __m512 (&t)[M]) {
  const std::size_t blocks = elements / Type::kElements;
  const ZeroPointTerms<Type, M> zero_points(x);
  alignas(32) std::uint16_t min_bits[8][kLanes];
  for (std::size_t b = 0; b < blocks; ++b) {
    if constexpr (Type::kHasMin) rows.load_u16<Type::kMin>(min_bits[b]);
    add_block<Type>(rows, x, zero_points, b, pacer.step(kLanes * Type::kBytes), t);
    rows.advance(Type::kBytes);
  }
  for (std::size_t b = 0; Type::kHasMin && b < blocks; ++b) {
    const __m512 mins = f16_to_f32(min_bits[b]);
    unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA {
      const __m512 x_sum = _mm512_cvtepi32_ps(_mm512_set1_epi32(x[c].sums32[b]));
      t[c] = _mm512_fmadd_ps(x_sum, mins, t[c]);
    });
  }
}

void small_batch_gemm(TensorType type, const std::byte* w, std::size_t row_bytes, std::size_t n,
                      std::size_t k, const SmallBatchActivations* x, std::size_t m, float* out,
                      std::size_t out_stride) {
  if (m < kSmallBatchMinM) fail("{} activations are for gemv()", m);
  const SmallBatchArgs args = {bytes(w), row_bytes, n, k, x, m, out, out_stride};
  with_type(type, [&](auto t) {
    using Type = decltype(t);
    if constexpr (Type::kIsBlock32) {
      small_batch_of_type<Type>(args);
    } else {
      small_batch_k_types(type, args);
    }
  });
}

}  // namespace ballast::gemm::avx512
HWY_POP_ATTRIBUTES

#endif
