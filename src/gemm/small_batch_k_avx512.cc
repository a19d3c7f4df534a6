// Integer GEMM of a small batch with AVX-512: K types.
#include "gemm/kernels.h"

#if defined(__x86_64__)

#include <type_traits>

// Code from here on needs has_avx512_vnni().
HWY_PUSH_ATTRIBUTES(BALLAST_AVX512_VNNI_TARGET)
#include "gemm/small_batch-inl.h"

namespace ballast::gemm::avx512 {
namespace {

/// Group scales and minima of a block of sixteen rows: byte g of lane r is group g's of row r.
struct LaneGroupScales {
  Vectors<4> scales, mins;
};

template <typename Type>
BALLAST_INLINE LaneGroupScales load_group_scales(const SixteenRows& rows) {
  LaneGroupScales out;
  if constexpr (std::is_same_v<Type, TypeQ2_K>) {
    const Vectors<4> both = rows.load_16_bytes<quant::kQ2_K.group_scales>();
    out = {bit_field<0, 4>(both), bit_field<4, 4>(both)};
  } else if constexpr (std::is_same_v<Type, TypeQ3_K>) {
    // The last 16 bytes of the block: two of them are codes.
    static_assert(Type::kBytes - 14 == quant::kQ3_K.group_scales);
    Vectors<4> last = rows.load_untransposed<Type::kBytes - 16>();
    unroll<4>([&](auto a) BALLAST_INLINE_LAMBDA { last.v[a] = _mm512_bsrli_epi128(last.v[a], 2); });
    const Vectors<4> fours = transpose_4x4(last.v);
    const __m512i a = fours.v[0], b = fours.v[1], c = fours.v[2];
    const __m512i four = _mm512_set1_epi8(0x0f), two = _mm512_set1_epi8(0x30);
    auto six = [&](__m512i low, __m512i high) BALLAST_INLINE_LAMBDA {
      const __m512i bits =
          _mm512_or_si512(_mm512_and_si512(low, four), _mm512_and_si512(high, two));
      return _mm512_sub_epi8(bits, _mm512_set1_epi8(32));
    };
    out.scales = {{six(a, _mm512_slli_epi32(c, 4)), six(b, _mm512_slli_epi32(c, 2)),
                   six(_mm512_srli_epi32(a, 4), c),
                   six(_mm512_srli_epi32(b, 4), _mm512_srli_epi32(c, 2))}};
  } else if constexpr (std::is_same_v<Type, TypeQ6_K>) {
    out.scales = rows.load_16_bytes<quant::kQ6_K.group_scales>();
  } else {
    Vectors<4> first = rows.load_untransposed<0>();
    unroll<4>([&](auto a) BALLAST_INLINE_LAMBDA { first.v[a] = unpack_6bit(first.v[a]); });
    const Vectors<4> both = transpose_4x4(first.v);
    out.scales.v[0] = both.v[0], out.scales.v[1] = both.v[1];
    out.mins.v[0] = both.v[2], out.mins.v[1] = both.v[3];
  }
  return out;
}

/// Byte g % 4 of vector g / 4, sign-extended to int32.
template <int g>
BALLAST_INLINE __m512i group(const Vectors<4>& bytes) {
  return _mm512_srai_epi32(_mm512_slli_epi32(bytes.v[g / 4], 24 - g % 4 * 8), 24);
}

}  // namespace

template <typename Type, std::size_t M>
BALLAST_INLINE void add_superblock(SixteenRows& rows, const SmallBatchActivations* x,
                                   PrefetchPacer& pacer, std::size_t /*elements*/, __m512 (&t)[M]) {
  // A quarter at a time: 16 elements of each of four chunks.
  constexpr int kQuarter = kLanes * Type::kBytes / 4, kLines = (kQuarter + 63) / 64, kSteps = 32;
  alignas(32) std::uint16_t scale_bits[kLanes], min_bits[kLanes];
  rows.load_u16<Type::kScale>(scale_bits);
  if constexpr (Type::kHasMin) rows.load_u16<Type::kMin>(min_bits);
  const LaneGroupScales groups = load_group_scales<Type>(rows);
  // What the zero point subtracts from the dots of 16 elements, negative.
  alignas(64) std::int32_t zero_points[M][16];
  for (std::size_t c = 0; Type::kZeroPoint != 0 && c < M; ++c) {
    const __m512i sums = _mm512_loadu_si512(x[c].sums16);
    _mm512_store_si512(zero_points[c],
                       _mm512_mullo_epi32(sums, _mm512_set1_epi32(-Type::kZeroPoint)));
  }
  __m512i totals[M];
  unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA { totals[c] = _mm512_setzero_si512(); });
  unroll<2>([&](auto half) BALLAST_INLINE_LAMBDA {
    Vectors<4> scales = groups.scales;
    for (std::size_t piece = 0; piece < 2; ++piece) {
      const char* next = pacer.step(kQuarter);
      const auto* x_piece = reinterpret_cast<const char*>(x) + 16 * piece;
      Vectors<4> raw[kCodeLoads<Type>];
      unroll<kCodeLoads<Type>>([&](auto i) BALLAST_INLINE_LAMBDA {
        constexpr int kAt = Type::kCodes[i][half];
        raw[i] = rows.load_16_bytes<kAt>();
      });
      unroll<4>([&](auto j) BALLAST_INLINE_LAMBDA {
        constexpr int kChunk = chunk<Type>(j) + Type::kPartner * half;
        constexpr int kGroup = Type::kGroup == 32 ? kChunk : 2 * kChunk;
        constexpr std::size_t kAt = kChunk * sizeof(x->blocks[0]);
        const Vectors<4> quads = Type::template codes<j>(HalfCodes<Type, half, 4>{raw});
        __m512i dots[M];
        unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA { dots[c] = _mm512_setzero_si512(); });
        dot_quads<kAt, 8 * j, kSteps, kLines>(dots, quads.v, x_piece, next);
        unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA {
          dots[c] = _mm512_slli_epi32(dots[c], kLowBits);
          if constexpr (Type::kZeroPoint != 0) {
            const __m512i zero = _mm512_set1_epi32(zero_points[c][2 * kChunk + piece]);
            dots[c] = _mm512_add_epi32(dots[c], zero);
          }
        });
        dot_quads<kAt + kLowBytes, 8 * j + 4, kSteps, kLines>(dots, quads.v, x_piece, next);
        const __m512i scale = group<kGroup>(scales);
        unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA {
          totals[c] = _mm512_add_epi32(totals[c], _mm512_mullo_epi32(dots[c], scale));
        });
      });
      if constexpr (Type::kGroup == 16) {
        unroll<4>([&](auto i)
                      BALLAST_INLINE_LAMBDA { scales.v[i] = _mm512_srli_epi32(scales.v[i], 8); });
      }
      rows.advance(16);
    }
    rows.advance(-std::size_t{32});
    if constexpr (Type::kFolds == 2 || half == 1) {
      const __m512 scale = f16_to_f32(scale_bits);
      unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA {
        t[c] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(totals[c]), scale, t[c]);
        totals[c] = _mm512_setzero_si512();
      });
    }
  });
  if constexpr (Type::kHasMin) {
    unroll<256 / Type::kGroup>([&](auto g) BALLAST_INLINE_LAMBDA {
      const __m512i min = group<g>(groups.mins);
      unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA {
        const std::int32_t sum = Type::kGroup == 32 ? x[c].sums32[g % 8] : x[c].sums16[g];
        const __m512i of_group = _mm512_mullo_epi32(min, _mm512_set1_epi32(sum));
        totals[c] = _mm512_add_epi32(totals[c], of_group);
      });
    });
    const __m512 negative = _mm512_sub_ps(_mm512_setzero_ps(), f16_to_f32(min_bits));
    unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA {
      t[c] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(totals[c]), negative, t[c]);
    });
  }
}

void small_batch_k_types(TensorType type, const SmallBatchArgs& args) {
  with_type(type, [&](auto t) {
    if constexpr (!decltype(t)::kIsBlock32) small_batch_of_type<decltype(t)>(args);
  });
}

}  // namespace ballast::gemm::avx512
HWY_POP_ATTRIBUTES

#endif
