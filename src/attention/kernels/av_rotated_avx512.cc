// Weighted sums of q4, q3 and q2 values: see rotated_avx512.h.
//
// A weight times the scale of its row is rounded to a byte, with a unit for 64 entries. What is
// rounded of small weights does not add up: codewords of rotated rows have no common part.
#include <hwy/base.h>
#include <hwy/detect_targets.h>

#include "attention/kernels/amx.h"
#include "attention/kernels/attention_kernels.h"
#include "attention/kernels/rotated_avx512.h"

#if HWY_ARCH_X86 && defined(__GNUC__)
#include "attention/kernels/av_rotated_avx512-inl.h"

HWY_PUSH_ATTRIBUTES(BALLAST_AVX512_BF16_TARGET)
namespace ballast::kernels::avx512 {
namespace {

template <StorageType type>
struct Values {
  static constexpr std::size_t F = kFields<type>;

  // Adds C chunks of all rows, from chunk `first` on, to the sums of Q queries.
  template <std::size_t Q, std::size_t C, CacheLevel kLevel>
  __attribute__((noinline)) static void add(const CodeRows<type>& values,
                                            const WeightCodes* weights, std::size_t first,
                                            const Sums& sums, Prefetcher& rest) {
    const CodeTables<type, false> tables;
    const RowLayout<type> layout = values.layout();
    Prefetcher prefetcher = rest;  // a copy, which stays in registers
    __m512i part[Q][C][F];
    const auto clear = [&]() BALLAST_INLINE_LAMBDA {
      all_of<Q, C>([&](auto q, auto c, auto f)
                       BALLAST_INLINE_LAMBDA { part[q][c][f] = _mm512_setzero_si512(); });
    };
    const auto finish = [&](std::size_t p) BALLAST_INLINE_LAMBDA {
      all_of<Q, C>([&](auto q, auto c, auto f) BALLAST_INLINE_LAMBDA {
        // Behind the field's end the next field begins.
        const std::size_t chunk = first + c;
        const auto lanes = static_cast<__mmask16>((1u << layout.elements(chunk)) - 1);
        float* at = sums.of(q) + f * layout.bytes + chunk * kChunk;
        const auto sum =
            _mm512_fmadd_ps(_mm512_cvtepi32_ps(part[q][c][f]), _mm512_set1_ps(weights[q].unit[p]),
                            _mm512_maskz_loadu_ps(lanes, at));
        _mm512_mask_storeu_ps(at, lanes, sum);
      });
    };
    clear();
    values.for_each_group([&](std::size_t group, const RowSet& rows) BALLAST_INLINE_LAMBDA {
      if (group == kPartGroups) {
        finish(0);
        clear();
      }
      for (std::size_t step = 0; step < 4; ++step) {
        const std::uintptr_t lines = prefetcher.template lines<kLevel>(C);
        const RowSet four(rows.data + step * 4 * rows.stride, rows.stride, rows.thrice);
        unroll<C>([&](auto c) BALLAST_INLINE_LAMBDA {
          const std::size_t chunk = first + c;
          prefetcher.template fetch<kLevel>(lines, c);
          const auto codes = interleaved(first_rows(four, chunk * kChunk));
          [[maybe_unused]] __m512i high;
          [[maybe_unused]] __mmask16 upper = 0;
          if constexpr (type == StorageType::q3) {
            const std::size_t at = layout.bytes + chunk * kChunk;
            upper = upper_bytes(layout, chunk);
            high = _mm512_mask_blend_epi32(upper, interleaved(first_rows(four, at)),
                                           interleaved(first_rows(four, at - layout.half)));
          }
          unroll<F>([&](auto f) BALLAST_INLINE_LAMBDA {
            __mmask64 third = 0;
            if constexpr (type == StorageType::q3) {
              const auto bit =
                  _mm512_mask_blend_epi32(upper, _mm512_set1_epi8(1 << (2 * f)),
                                          _mm512_set1_epi8(static_cast<char>(2 << (2 * f))));
              third = _mm512_test_epi8_mask(high, bit);
            }
            const auto word = tables.template words<f>(codes, third);
            unroll<Q>([&](auto q) BALLAST_INLINE_LAMBDA {
              const auto w = broadcast(reinterpret_cast<const std::uint32_t*>(
                  weights[q].codes + group * kWide + 4 * step));
              part[q][c][f] = _mm512_dpbusd_epi32(part[q][c][f], w, word);
            });
          });
        });
      }
    });
    finish(values.groups() > kPartGroups ? 1 : 0);
    rest = prefetcher;
  }

 private:
  template <std::size_t Q, std::size_t C, typename Action>
  BALLAST_INLINE static void all_of(const Action& action) {
    unroll<Q>([&](auto q) BALLAST_INLINE_LAMBDA {
      unroll<C>([&](auto c) BALLAST_INLINE_LAMBDA {
        unroll<F>([&](auto f) BALLAST_INLINE_LAMBDA { action(q, c, f); });
      });
    });
  }
};

template <StorageType type>
void av(const RowsView& rows, const float* weights, std::size_t count, const Sums& sums,
        const PrefetchRange* range) {
  const CodeRows<type> values(rows);
  const std::size_t chunks = values.layout().chunks;
  __m512 scales[kEntryBlock / kWide];
  for (std::size_t g = 0; g < kEntryBlock / kWide; ++g) {
    scales[g] = g < values.groups() ? values.scales(g) : _mm512_setzero_ps();
  }
  Prefetcher prefetcher(rows, range, values.groups() * chunks * 4);
  in_tiles<kFewQueries>(count, [&]<std::size_t Q>(std::size_t q) {
    WeightCodes codes[Q];
    const Sums of_tile = sums.from(q);
    for (std::size_t i = 0; i < Q; ++i) {
      codes[i].set(weights + (q + i) * kEntryBlock, scales);
      float* at = of_tile.of(i);
      const auto factor = _mm512_set1_ps(of_tile.factors[i]);
      for (std::size_t n = 0; n < sums.stride; n += kWide) {
        _mm512_storeu_ps(at + n, _mm512_mul_ps(_mm512_loadu_ps(at + n), factor));
      }
    }
    // As many sums as leave registers for codes and tables.
    constexpr std::size_t kMost = 16 / (Q * kFields<type>);
    std::size_t first = 0;
    for_cache_level([&]<CacheLevel kLevel>() {
      const auto of_chunks = [&]<std::size_t C>() {
        for (; first + C <= chunks; first += C) {
          Values<type>::template add<Q, C, kLevel>(values, codes, first, of_tile, prefetcher);
        }
      };
      if constexpr (kMost >= 4) of_chunks.template operator()<4>();
      if constexpr (kMost >= 2) of_chunks.template operator()<2>();
      of_chunks.template operator()<1>();
    });
  });
}

}  // namespace

void av_rotated(const RowsView& values, const float* weights, std::size_t count,
                const float* factors, float* sums, const PrefetchRange* range) {
  if (amx::multiplies(values.type, count)) {
    return amx::av_block(values, weights, count, factors, sums, range);
  }
  const Sums all{factors, sums, packed_size(values.dim)};
  const auto run = values.type == StorageType::q4   ? av<StorageType::q4>
                   : values.type == StorageType::q3 ? av<StorageType::q3>
                                                    : av<StorageType::q2>;
  run(values, weights, count, all, range);
}

}  // namespace ballast::kernels::avx512
HWY_POP_ATTRIBUTES
#else

namespace ballast::kernels::avx512 {

void av_rotated(const RowsView&, const float*, std::size_t, const float*, float*,
                const PrefetchRange*) {}

}  // namespace ballast::kernels::avx512

#endif
