// AV kernel for bf16 values: see avx512.h.
#include <hwy/base.h>
#include <hwy/detect_targets.h>

#include "attention/kernels/amx.h"
#include "attention/kernels/attention_kernels.h"
#include "attention/kernels/avx512.h"

#if HWY_ARCH_X86 && defined(__GNUC__)
#include "attention/kernels/av_pairs_avx512-inl.h"

HWY_PUSH_ATTRIBUTES(BALLAST_AVX512_BF16_TARGET)
#include "simd/bf16_tiles-inl.h"
namespace ballast::kernels::avx512 {
namespace {

constexpr std::size_t kMostQueries = 128;  // whose weights are rounded to bf16 at a time

constexpr std::size_t kPairs = kEntryBlock / 2;

// Columns interleaved step by step, as few queries use them.
template <std::size_t C, CacheLevel kLevel>
class FreshPairs {
 public:
  BALLAST_INLINE FreshPairs(const Pairs& values, std::size_t first, Prefetcher& prefetcher)
      : values_(values),
        whole_(values.whole()),
        count_(values.count()),
        all_(values.all_rows()),
        rest_(prefetcher),
        prefetcher_(prefetcher),
        first_(first),
        rows_(values.rows(0)) {
    unroll<C>([&](auto c) BALLAST_INLINE_LAMBDA { load(c); });
  }
  BALLAST_INLINE ~FreshPairs() { rest_ = prefetcher_; }
  FreshPairs(const FreshPairs&) = delete;
  FreshPairs& operator=(const FreshPairs&) = delete;
  // Starts step s, whose rows are loaded already, and selects the rows of the next step. After the
  // last step it selects the same rows again.
  BALLAST_INLINE void step(std::size_t s) {
    lines_ = prefetcher_.template lines<kLevel>(C);
    if (s + 1 < whole_) [[likely]] {
      rows_ = all_;
      rows_.data += (s + 1) * 2 * all_.stride;
    } else if (s + 1 < count_) {
      rows_ = values_.last_rows();
    }
  }
  BALLAST_INLINE __m512i column(std::size_t c) const { return columns_[c]; }
  // Interleaves column c; called before its first multiply-add.
  BALLAST_INLINE void before(std::size_t c) { columns_[c] = Pairs::interleave(raw_[c]); }
  // Loads column c of the next step; called after the first multiply-add with column c.
  BALLAST_INLINE void after(std::size_t c) {
    prefetcher_.fetch<kLevel>(lines_, c);
    load(c);
  }

 private:
  BALLAST_INLINE void load(std::size_t c) {
    raw_[c] = values_.load<C == 1>(rows_, first_ + c);
    in_order(raw_[c]);
  }

  const Pairs& values_;
  std::size_t whole_, count_;
  RowSet all_;
  Prefetcher& rest_;
  Prefetcher prefetcher_;  // a local copy stays in registers
  std::size_t first_;
  RowSet rows_;
  std::uintptr_t lines_ = 0;
  __m512i raw_[C], columns_[C];
};

// Columns interleaved once and kept for many queries.
class KeptPairs {
 public:
  KeptPairs(const __m512i* columns, std::size_t count)
      : columns_(columns), at_(columns), count_(count) {}
  void step(std::size_t s) { at_ = columns_ + s * count_; }
  __m512i column(std::size_t c) const { return _mm512_load_si512(at_ + c); }
  void before(std::size_t) {}
  void after(std::size_t) {}

 private:
  const __m512i* columns_;
  const __m512i* at_;
  std::size_t count_;
};

template <std::size_t Q, std::size_t C, typename Columns>
BALLAST_INLINE void add_tile(Columns& columns, const std::uint32_t* weights, std::size_t steps,
                             std::size_t first, const Sums& sums) {
  __m512i part[Q][C];
  unroll<Q>([&](auto q) BALLAST_INLINE_LAMBDA {
    unroll<C>([&](auto c) BALLAST_INLINE_LAMBDA { part[q][c] = _mm512_setzero_si512(); });
  });
  for (std::size_t s = 0; s < steps; ++s) {
    columns.step(s);
    unroll<Q>([&](auto q) BALLAST_INLINE_LAMBDA {
      const auto w = broadcast(weights + q * kPairs + s);
      unroll<C>([&](auto c) BALLAST_INLINE_LAMBDA {
        if constexpr (q == 0) columns.before(c);
        part[q][c] =
            (__m512i)_mm512_dpbf16_ps((__m512)part[q][c], (__m512bh)columns.column(c), (__m512bh)w);
        in_order(part[q][c]);
        if constexpr (q == 0) columns.after(c);
      });
    });
  }
  unroll<Q>([&](auto q) BALLAST_INLINE_LAMBDA {
    unroll<C>([&](auto c) BALLAST_INLINE_LAMBDA { sums.add(q, first + c, (__m512)part[q][c]); });
  });
}

// The same in the order of tiles (simd/bf16_tiles-inl.h).
template <std::size_t Q, std::size_t C, typename Columns>
BALLAST_INLINE void add_tile_in_order(Columns& columns, const std::uint32_t* weights,
                                      std::size_t steps, std::size_t first, const Sums& sums) {
  __m512i part[Q][C];
  // In memory, from where they are needed every eighth step only.
  alignas(64) float half[Q][C][kWide], sum[Q][C][kWide];
  const auto all = [&](const auto& action) BALLAST_INLINE_LAMBDA {
    unroll<Q>([&](auto q) BALLAST_INLINE_LAMBDA {
      unroll<C>([&](auto c) BALLAST_INLINE_LAMBDA { action(q, c); });
    });
  };
  const auto clear = [&](auto q, auto c)
                         BALLAST_INLINE_LAMBDA { part[q][c] = _mm512_setzero_si512(); };
  all(clear);
  all([&](auto q, auto c) BALLAST_INLINE_LAMBDA { _mm512_store_si512(sum[q][c], part[q][c]); });
  constexpr std::size_t kHalf = kTileStepWords / 2;
  for (std::size_t begin = 0; begin < steps; begin += kHalf) {
    const std::size_t end = std::min(begin + kHalf, steps);
    for (std::size_t s = begin; s < end; ++s) {
      columns.step(s);
      unroll<Q>([&](auto q) BALLAST_INLINE_LAMBDA {
        const auto w = broadcast(weights + q * kPairs + s);
        unroll<C>([&](auto c) BALLAST_INLINE_LAMBDA {
          if constexpr (q == 0) columns.before(c);
          part[q][c] = (__m512i)_mm512_dpbf16_ps((__m512)part[q][c], (__m512bh)columns.column(c),
                                                 (__m512bh)w);
          in_order(part[q][c]);
          if constexpr (q == 0) columns.after(c);
        });
      });
    }
    if (begin % kTileStepWords == 0) {
      all([&](auto q, auto c)
              BALLAST_INLINE_LAMBDA { _mm512_store_si512(half[q][c], part[q][c]); });
      all(clear);
      if (end < steps) continue;
    }
    all([&](auto q, auto c) BALLAST_INLINE_LAMBDA {
      _mm512_store_ps(sum[q][c], add_tile_step(_mm512_load_ps(sum[q][c]),
                                               _mm512_load_ps(half[q][c]), (__m512)part[q][c]));
    });
    all(clear);
  }
  all([&](auto q, auto c)
          BALLAST_INLINE_LAMBDA { sums.add(q, first + c, _mm512_load_ps(sum[q][c])); });
}

template <bool kAsTiles>
void add_pairs(const Pairs& values, const float* weights, std::size_t count, const Sums& sums,
               const PrefetchRange* range) {
  alignas(64) std::uint32_t rounded[kMostQueries * kPairs];
  for (std::size_t i = 0; i < count * kEntryBlock; i += kWide) {
    const auto words = _mm512_cvtneps_pbh(_mm512_loadu_ps(weights + i));
    _mm256_store_si256(reinterpret_cast<__m256i*>(rounded + i / 2), (__m256i)words);
  }
  std::size_t first = 0;
  if (count <= kFewQueries) {
    const std::size_t whole = values.whole_columns();
    Prefetcher prefetcher(values.view(), range, values.columns() * values.count());
    in_tiles<kFewQueries>(count, [&]<std::size_t Q>(std::size_t) {
      const auto of_columns = [&]<std::size_t C>() {
        for (; first + C <= (C > 1 ? whole : values.columns()); first += C) {
          for_cache_level([&]<CacheLevel kLevel>() {
            FreshPairs<C, kLevel> columns(values, first, prefetcher);
            if constexpr (kAsTiles) {
              add_tile_in_order<Q, C>(columns, rounded, values.count(), first, sums);
            } else {
              add_tile<Q, C>(columns, rounded, values.count(), first, sums);
            }
          });
        }
      };
      of_columns.template operator()<4>();
      of_columns.template operator()<1>();
    });
    return;
  }
  if constexpr (kAsTiles) {
    static_assert(amx::least_queries(StorageType::bf16) <= kFewQueries + 1, "tiles multiply more");
    return;
  }
  __m512i kept[kPairs * kMaxDim / kWide];
  Prefetcher prefetcher(values.view(), range, values.columns() * values.count());
  for (std::size_t s = 0; s < values.count(); ++s) {
    const RowSet rows = values.rows(s);
    for (std::size_t c = 0; c < values.columns(); ++c) {
      prefetcher.fetch(prefetcher.lines(1), 0);
      const auto column = Pairs::interleave(values.load<true>(rows, c));
      _mm512_store_si512(kept + s * values.columns() + c, column);
    }
  }
  // Columns form the outer loop, so that their values stay in the L1 cache for all queries.
  const auto of_columns = [&]<std::size_t C>() {
    for (; first + C <= values.columns(); first += C) {
      in_tiles<6>(count, [&]<std::size_t Q>(std::size_t q) {
        KeptPairs columns(kept + first, values.columns());
        add_tile<Q, C>(columns, rounded + q * kPairs, values.count(), first, sums.from(q));
      });
    }
  };
  of_columns.template operator()<4>();
  of_columns.template operator()<1>();
}

// A function of its own, so that its stack is none of av_block()'s.
__attribute__((noinline)) void add_as_tiles(const Pairs& values, const float* weights,
                                            std::size_t count, const Sums& sums,
                                            const PrefetchRange* range) {
  const RoundingOfTiles rounding;
  add_pairs<true>(values, weights, count, sums, range);
}

}  // namespace

void av_block(const RowsView& values, const float* weights, std::size_t count, const float* factors,
              float* sums, const PrefetchRange* range) {
  if (values.rows == 0) return;
  if (amx::multiplies(values.type, count)) {
    return amx::av_block(values, weights, count, factors, sums, range);
  }
  if (values.type != StorageType::bf16) {
    return av_integers(values, weights, count, factors, sums, range);
  }
  const Pairs pairs(values);
  const Sums all{factors, sums, packed_size(values.dim)};
  if (has_amx_bf16()) return add_as_tiles(pairs, weights, count, all, range);
  for (std::size_t q = 0; q < count; q += kMostQueries) {
    add_pairs<false>(pairs, weights + q * kEntryBlock, std::min(kMostQueries, count - q),
                     all.from(q), range);
  }
}

}  // namespace ballast::kernels::avx512
HWY_POP_ATTRIBUTES

#else

namespace ballast::kernels::avx512 {

void av_block(const RowsView&, const float*, std::size_t, const float*, float*,
              const PrefetchRange*) {}

}  // namespace ballast::kernels::avx512

#endif
