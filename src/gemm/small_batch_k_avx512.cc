// Products of several activations with weights of K types, sixteen rows side by side, with AVX-512.
#include "gemm/kernels.h"

#if defined(__x86_64__)

#include <type_traits>

// Everything from here on may only run where has_avx512_vnni() says so.
HWY_PUSH_ATTRIBUTES(BALLAST_AVX512_VNNI_TARGET)
#include "gemm/small_batch_dots-inl.h"

namespace ballast::gemm::avx512 {
namespace {

/// The integers of a block's groups in sixteen rows: byte g of lane r is group g's of row r.
struct GroupsOfLanes {
  Vectors<4> scales, offsets;
};

template <typename Type>
BALLAST_INLINE GroupsOfLanes groups_of(const LaneRows& rows) {
  GroupsOfLanes out;
  if constexpr (std::is_same_v<Type, TypeQ2_K>) {
    const Vectors<4> both = rows.sixteen<0>();
    out = {field<0, 4>(both), field<4, 4>(both)};
  } else if constexpr (std::is_same_v<Type, TypeQ3_K>) {
    // Sixteen bytes that end with the block.
    Vectors<4> last = rows.quarters<Type::kBytes - 16>();
    unroll<4>([&](auto a) BALLAST_INLINE_LAMBDA { last.v[a] = _mm512_bsrli_epi128(last.v[a], 2); });
    const Vectors<4> fours = transposed(last.v);
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
    out.scales = rows.sixteen<192>();
  } else {
    Vectors<4> first = rows.quarters<0>();
    unroll<4>([&](auto a) BALLAST_INLINE_LAMBDA { first.v[a] = six_bits(first.v[a]); });
    const Vectors<4> both = transposed(first.v);
    out.scales.v[0] = both.v[0], out.scales.v[1] = both.v[1];
    out.offsets.v[0] = both.v[2], out.offsets.v[1] = both.v[3];
  }
  return out;
}

/// Byte g % 4 of vector g / 4, as integers.
template <int g>
BALLAST_INLINE __m512i group(const Vectors<4>& bytes) {
  return _mm512_srai_epi32(_mm512_slli_epi32(bytes.v[g / 4], 24 - g % 4 * 8), 24);
}

}  // namespace

template <typename Type, std::size_t M>
BALLAST_INLINE void add_span(LaneRows& rows, const LaneSpan* x, Ahead& ahead, __m512 (&t)[M]) {
  // A quarter of a span, at a time: sixteen numbers each of four chunks.
  constexpr int kQuarter = kLanes * Type::kBytes / 4, kLines = (kQuarter + 63) / 64, kSteps = 32;
  alignas(32) std::uint16_t scale_bits[kLanes], offset_bits[kLanes];
  rows.words<Type::kScale>(scale_bits);
  if constexpr (Type::kOffset) rows.words<Type::kScale + 2>(offset_bits);
  const GroupsOfLanes groups = groups_of<Type>(rows);
  // For sixteen numbers of each activation, what those that stand for zero have added, negative.
  alignas(64) std::int32_t zeros[M][16];
  for (std::size_t c = 0; Type::kZero != 0 && c < M; ++c) {
    const __m512i sums = _mm512_loadu_si512(x[c].sums16);
    _mm512_store_si512(zeros[c], _mm512_mullo_epi32(sums, _mm512_set1_epi32(-Type::kZero)));
  }
  __m512i totals[M];
  unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA { totals[c] = _mm512_setzero_si512(); });
  unroll<2>([&](auto latter) BALLAST_INLINE_LAMBDA {
    Vectors<4> scales = groups.scales;
    for (std::size_t piece = 0; piece < 2; ++piece) {
      const char* ask = ahead.step(kQuarter);
      const auto* digits = reinterpret_cast<const char*>(x) + 16 * piece;
      Vectors<4> raw[kRaws<Type>];
      unroll<kRaws<Type>>([&](auto i) BALLAST_INLINE_LAMBDA {
        constexpr int kAt = Type::kRaw[i][latter];
        raw[i] = rows.sixteen<kAt>();
      });
      unroll<4>([&](auto j) BALLAST_INLINE_LAMBDA {
        constexpr int kChunk = chunk<Type>(j) + Type::kDistance * latter;
        constexpr int kGroup = Type::kGroup == 32 ? kChunk : 2 * kChunk;
        constexpr std::size_t kAt = kChunk * sizeof(x->blocks[0]);
        const Vectors<4> quads = Type::template numbers<j>(RawHalf<Type, latter, 4>{raw});
        __m512i dots[M];
        unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA { dots[c] = _mm512_setzero_si512(); });
        add_quads<kAt, 8 * j, kSteps, kLines>(dots, quads.v, digits, ask);
        unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA {
          dots[c] = _mm512_slli_epi32(dots[c], kLowDigit);
          if constexpr (Type::kZero != 0) {
            const __m512i zero = _mm512_set1_epi32(zeros[c][2 * kChunk + piece]);
            dots[c] = _mm512_add_epi32(dots[c], zero);
          }
        });
        add_quads<kAt + kLowDigits, 8 * j + 4, kSteps, kLines>(dots, quads.v, digits, ask);
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
    if constexpr (Type::kFolds == 2 || latter == 1) {
      const __m512 scale = f16_of(scale_bits);
      unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA {
        t[c] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(totals[c]), scale, t[c]);
        totals[c] = _mm512_setzero_si512();
      });
    }
  });
  if constexpr (Type::kOffset) {
    unroll<256 / Type::kGroup>([&](auto g) BALLAST_INLINE_LAMBDA {
      const __m512i offset = group<g>(groups.offsets);
      unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA {
        const std::int32_t sum = Type::kGroup == 32 ? x[c].sums32[g % 8] : x[c].sums16[g];
        const __m512i of_group = _mm512_mullo_epi32(offset, _mm512_set1_epi32(sum));
        totals[c] = _mm512_add_epi32(totals[c], of_group);
      });
    });
    const __m512 negative = _mm512_sub_ps(_mm512_setzero_ps(), f16_of(offset_bits));
    unroll<M>([&](auto c) BALLAST_INLINE_LAMBDA {
      t[c] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(totals[c]), negative, t[c]);
    });
  }
}

void multiply_k_type(TensorType type, const LaneDots& dots) {
  with_type(type, [&](auto t) {
    if constexpr (!decltype(t)::kPlain) multiply_all<decltype(t)>(dots);
  });
}

}  // namespace ballast::gemm::avx512
HWY_POP_ATTRIBUTES

#endif
