// Queries and logits of q4, q3 and q2: see rotated_avx512.h.
//
// Products are exact integers, Σ q (c + 128) − 128 Σ q; the sums of four rows stand side by side
// until the row ends.
#include <hwy/base.h>
#include <hwy/detect_targets.h>

#include "attention/kernels/amx.h"
#include "attention/kernels/attention_kernels.h"
#include "attention/kernels/rotated_avx512.h"

#if HWY_ARCH_X86 && defined(__GNUC__)
#include "attention/kernels/rotated_avx512-inl.h"

HWY_PUSH_ATTRIBUTES(BALLAST_AVX512_BF16_TARGET)
namespace ballast::kernels::avx512 {
namespace {

template <StorageType type>
struct Keys {
  // Logits of Q queries.
  template <std::size_t Q, CacheLevel kLevel>
  static void dot(const CodeRows<type>& keys, const float* queries, std::size_t stride,
                  float* logits, Prefetcher& rest) {
    constexpr std::size_t F = kFields<type>;
    const CodeTables<type, true> tables;
    const RowLayout<type> layout = keys.layout();
    Prefetcher prefetcher = rest;  // a copy, which stays in registers
    __m512i start[Q];
    __m512 unit[Q];
    unroll<Q>([&](auto q) BALLAST_INLINE_LAMBDA {
      const PackedQuery query{queries + q * stride, stride};
      start[q] = _mm512_set1_epi32(query.start());
      unit[q] = _mm512_set1_ps(query.unit());
    });
    const auto* codes = reinterpret_cast<const std::int8_t*>(queries);
    keys.for_each_group([&](std::size_t group, const RowSet& rows) BALLAST_INLINE_LAMBDA {
      __m512i sums[Q][4];
      unroll<Q>([&](auto q) BALLAST_INLINE_LAMBDA {
        unroll<4>([&](auto r) BALLAST_INLINE_LAMBDA { sums[q][r] = _mm512_setzero_si512(); });
      });
      for (std::size_t p = 0; p < layout.chunks; ++p) {
        const std::uintptr_t lines = prefetcher.template lines<kLevel>(4);
        __m512i chunk[4], high[4];
        unroll<4>([&](auto r) BALLAST_INLINE_LAMBDA {
          chunk[r] = four_rows(rows, p * kChunk, r);
          in_order(chunk[r]);
          prefetcher.template fetch<kLevel>(lines, r);
        });
        [[maybe_unused]] __mmask64 upper = 0;
        if constexpr (type == StorageType::q3) {
          const std::size_t at = layout.bytes + p * kChunk;
          upper = 0x0001000100010001u * std::uint64_t{upper_bytes(layout, p)};
          unroll<4>([&](auto r) BALLAST_INLINE_LAMBDA {
            high[r] = _mm512_mask_blend_epi8(upper, four_rows(rows, at, r),
                                             four_rows(rows, at - layout.half, r));
          });
        }
        const std::int8_t* at = codes + p * kChunk;
        unroll<F>([&](auto f) BALLAST_INLINE_LAMBDA {
          __m512i word[4];
          unroll<4>([&](auto r) BALLAST_INLINE_LAMBDA {
            __mmask64 third = 0;
            if constexpr (type == StorageType::q3) third = third_bits<f>(high[r], upper);
            word[r] = tables.template words<f>(chunk[r], third);
          });
          unroll<Q>([&](auto q) BALLAST_INLINE_LAMBDA {
            const auto query = _mm512_broadcast_i32x4(
                _mm_loadu_si128(reinterpret_cast<const __m128i*>(at + q * stride * sizeof(float))));
            unroll<4>([&](auto r) BALLAST_INLINE_LAMBDA {
              sums[q][r] = _mm512_dpbusd_epi32(sums[q][r], word[r], query);
            });
          });
          at += layout.chunks * kChunk;
        });
      }
      const auto scale = keys.scales(group);
      unroll<Q>([&](auto q) BALLAST_INLINE_LAMBDA {
        const auto sum = _mm512_add_epi32(of_rows(sums[q]), start[q]);
        const auto product = _mm512_mul_ps(_mm512_cvtepi32_ps(sum), unit[q]);
        _mm512_storeu_ps(logits + q * kEntryBlock + group * kWide, _mm512_mul_ps(product, scale));
      });
    });
    rest = prefetcher;
  }

 private:
  // sums[r] has four parts of the sums of rows r, r + 4, r + 8 and r + 12.
  BALLAST_INLINE static __m512i of_rows(const __m512i (&sums)[4]) {
    const auto low = _mm512_add_epi32(_mm512_unpacklo_epi32(sums[0], sums[1]),
                                      _mm512_unpackhi_epi32(sums[0], sums[1]));
    const auto high = _mm512_add_epi32(_mm512_unpacklo_epi32(sums[2], sums[3]),
                                       _mm512_unpackhi_epi32(sums[2], sums[3]));
    return _mm512_add_epi32(_mm512_unpacklo_epi64(low, high), _mm512_unpackhi_epi64(low, high));
  }
};

template <StorageType type>
void qk(const RowsView& rows, const float* queries, std::size_t count, float* logits,
        const PrefetchRange* range) {
  const CodeRows<type> keys(rows);
  const std::size_t stride = packed_size(rows.dim);
  Prefetcher prefetcher(rows, range, keys.groups() * keys.layout().chunks * 4);
  in_tiles<kFewQueries>(count, [&]<std::size_t Q>(std::size_t q) {
    for_cache_level([&]<CacheLevel kLevel>() {
      Keys<type>::template dot<Q, kLevel>(keys, queries + q * stride, stride,
                                          logits + q * kEntryBlock, prefetcher);
    });
  });
}

}  // namespace

void qk_rotated(const RowsView& keys, const float* queries, std::size_t count, float* logits,
                const PrefetchRange* range) {
  if (amx::multiplies(keys.type, count)) {
    return amx::qk_block(keys, queries, count, logits, range);
  }
  const auto run = keys.type == StorageType::q4   ? qk<StorageType::q4>
                   : keys.type == StorageType::q3 ? qk<StorageType::q3>
                                                  : qk<StorageType::q2>;
  run(keys, queries, count, logits, range);
}

}  // namespace ballast::kernels::avx512
HWY_POP_ATTRIBUTES
#else

namespace ballast::kernels::avx512 {

void qk_rotated(const RowsView&, const float*, std::size_t, float*, const PrefetchRange*) {}

}  // namespace ballast::kernels::avx512

#endif
