// AV kernel for int8 and int4 values: see avx512.h.
//
// Products of weights and scales (one scale per 32 elements) are quantized for a tile of queries. A
// weighted sum is then an exact integer sum times their unit. int8 values use 16-bit codes with one
// unit per block. int4 values use 8-bit codes with one unit per 64 entries. By estimate this adds
// an eighth of the storage error where one entry dominates, and less elsewhere (the test
// AddsLittleToWhatStorageLost measures it).
#include <hwy/base.h>
#include <hwy/detect_targets.h>

#include <type_traits>

#include "attention/kernels/attention_kernels.h"
#include "attention/kernels/avx512.h"

#if HWY_ARCH_X86 && defined(__GNUC__)
#include "attention/kernels/av_int_avx512-inl.h"

HWY_PUSH_ATTRIBUTES(BALLAST_AVX512_BF16_TARGET)
namespace ballast::kernels::avx512 {
namespace {

constexpr std::size_t kTile = 4;

// Tiles are separate functions: inlined beside the quantization of weights, their accumulators
// would spill to memory.
#define BALLAST_TILE __attribute__((noinline))

// Part p of a block is its steps p, p + 2, …. The maximum of a part is then found within vectors,
// in lanes 4 p … and 8 + 4 p …. Values s n + o are split into s (n − 8) + (o + 8 s), so that
// rounding errors of small weights do not add up. The second term, the centre, uses unrounded
// weights.
struct ByteCodes {
  static constexpr std::size_t kParts = 2;
  alignas(64) float unit[kTile][kWide];  // of part p in lanes 4 p …
  alignas(64) float offset[kTile];       // Σ w (o + 8 s)
  alignas(64) std::uint8_t code[kTile][kEntryBlock];

  BALLAST_INLINE void set(std::size_t q, const Weights& weights, const float* scales,
                          const float* centres) {
    auto sum = _mm512_setzero_ps();
    unroll<kVectors>([&](auto v) BALLAST_INLINE_LAMBDA {
      sum = _mm512_fmadd_ps(weights.of[v], _mm512_load_ps(centres + v * kWide), sum);
    });
    const Products products(weights, scales);
    auto most = _mm512_max_ps(products.most, _mm512_permute_ps(products.most, 0xB1));
    most = _mm512_max_ps(most, _mm512_permute_ps(most, 0x4E));
    most = _mm512_max_ps(most, _mm512_shuffle_f32x4(most, most, 0x4E));
    // Below 1e-33 the inverse would overflow: such products are quantized to zero.
    const auto large = _mm512_cmp_ps_mask(most, _mm512_set1_ps(1e-33f), _CMP_GT_OQ);
    const auto inverse = _mm512_maskz_div_ps(large, _mm512_set1_ps(255.0f), most);
    // The division by 16 undoes the factor of the columns, 16 (n − 8).
    _mm512_store_ps(unit[q], _mm512_mul_ps(most, _mm512_set1_ps(1.0f / (16.0f * 255.0f))));
    offsets[q] = sum;
    unroll<kVectors / 2>([&](auto i) BALLAST_INLINE_LAMBDA {
      store_half(code[q] + 2 * i * kWide, _mm512_castsi512_si256(products.codes(2 * i, inverse)));
    });
  }
  // Call after set() of Q queries: reduces all their offsets together.
  template <std::size_t Q>
  BALLAST_INLINE void finish() {
    __m512 of[kTile];
    unroll<kTile>([&](auto q)
                      BALLAST_INLINE_LAMBDA { of[q] = q < Q ? offsets[q] : _mm512_setzero_ps(); });
    const auto quads = added(added(of[0], of[2]), added(of[1], of[3]));
    const auto halves =
        _mm256_add_ps(_mm512_castps512_ps256(quads), _mm512_extractf32x8_ps(quads, 1));
    _mm_store_ps(offset,
                 _mm_add_ps(_mm256_castps256_ps128(halves), _mm256_extractf128_ps(halves, 1)));
  }

 private:
  BALLAST_INLINE static __m512 added(__m512 a, __m512 b) {
    return _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
  }

  __m512 offsets[kTile];
};

// Cache lines that four rows of `columns` columns span.
template <StorageType type>
constexpr std::size_t lines_of(std::size_t columns) {
  return type == StorageType::int4 ? columns / 2 : columns;
}

// Columns interleaved step by step, as few queries use them.
template <StorageType type, std::size_t C, CacheLevel kLevel>
class FreshColumns {
 public:
  static constexpr bool kKept = false;

  BALLAST_INLINE FreshColumns(const Integers<type>& values, std::size_t first,
                              Prefetcher& prefetcher)
      : rest_(prefetcher),
        prefetcher_(prefetcher),
        all_(values.all_rows()),
        last_(values.last_rows()),
        at_(all_.data) {
    const std::size_t offset = first * kChunk / (type == StorageType::int4 ? 2 : 1);
    all_.data += offset;
    last_.data += offset;
  }
  BALLAST_INLINE ~FreshColumns() { rest_ = prefetcher_; }
  FreshColumns(const FreshColumns&) = delete;
  FreshColumns& operator=(const FreshColumns&) = delete;
  BALLAST_INLINE void begin(std::size_t step) { at_ = all_.data + step * 4 * all_.stride; }
  // Interleaves the current step, then advances by `apart` steps.
  BALLAST_INLINE void next(std::size_t apart, __m512i (&columns)[C]) {
    constexpr std::size_t kLines = lines_of<type>(C);
    const std::uintptr_t lines = prefetcher_.template lines<kLevel>(kLines);
    prefetcher_.fetch<kLevel>(lines, 0);
    Integers<type>::interleave({at_, all_.stride, all_.thrice}, columns);
    if constexpr (kLines > 1) prefetcher_.fetch<kLevel>(lines, 1);
    at_ += apart * 4 * all_.stride;
  }
  // Interleaves the last step, which has fewer than four rows.
  BALLAST_INLINE void last(__m512i (&columns)[C]) { Integers<type>::interleave(last_, columns); }

 private:
  Prefetcher& rest_;
  Prefetcher prefetcher_;  // a local copy stays in registers
  RowSet all_, last_;
  const std::byte* at_;
};

// Columns interleaved once and kept for many queries.
template <std::size_t C>
class KeptColumns {
 public:
  static constexpr bool kKept = true;

  KeptColumns(const __m512i* columns, std::size_t count, std::size_t steps)
      : columns_(columns), at_(columns), count_(count), steps_(steps) {}
  void begin(std::size_t step) { at_ = columns_ + step * count_; }
  BALLAST_INLINE void next(std::size_t apart, __m512i (&columns)[C]) {
    load(at_, columns);
    at_ += apart * count_;
  }
  BALLAST_INLINE void last(__m512i (&columns)[C]) {
    load(columns_ + (steps_ - 1) * count_, columns);
  }

 private:
  BALLAST_INLINE static void load(const __m512i* at, __m512i (&columns)[C]) {
    unroll<C>([&](auto c) BALLAST_INLINE_LAMBDA {
      columns[c] = _mm512_load_si512(at + c);
      in_order(columns[c]);  // otherwise GCC reloads it for each query
    });
  }

  const __m512i* columns_;
  const __m512i* at_;
  std::size_t count_, steps_;
};

template <StorageType type>
void keep(const Integers<type>& values, Prefetcher& prefetcher, __m512i* kept) {
  const auto of_columns = [&]<std::size_t C>(std::size_t first) {
    FreshColumns<type, C, CacheLevel::either> fresh(values, first, prefetcher);
    fresh.begin(0);
    __m512i columns[C];
    for (std::size_t s = 0; s < values.count(); ++s) {
      if (s < values.whole()) {
        fresh.next(1, columns);
      } else {
        fresh.last(columns);
      }
      unroll<C>([&](auto c) BALLAST_INLINE_LAMBDA {
        _mm512_store_si512(kept + s * values.columns() + first + c, columns[c]);
      });
    }
  };
  std::size_t c = 0;
  for (; c + 2 <= values.columns(); c += 2) of_columns.template operator()<2>(c);
  if constexpr (type == StorageType::int8) {
    if (c < values.columns()) of_columns.template operator()<1>(c);
  }
}

template <typename Columns, std::size_t Q, std::size_t C, typename... Where>
BALLAST_TILE void add_tile(const WideCodes<kTile>* codes, const Steps<4>& steps, std::size_t first,
                           const Sums& sums, Where&... where) {
  Columns columns(where...);
  __m512i high[Q][C], low[Q][C];
  unroll<Q>([&](auto q) BALLAST_INLINE_LAMBDA {
    unroll<C>([&](auto c)
                  BALLAST_INLINE_LAMBDA { high[q][c] = low[q][c] = _mm512_setzero_si512(); });
  });
  const std::uint8_t* at = codes->high[0];
  const auto multiply = [&](const __m512i(&column)[C]) BALLAST_INLINE_LAMBDA {
    constexpr std::size_t kLow = kTile * kEntryBlock;  // bytes from high to low
    unroll<Q>([&](auto q) BALLAST_INLINE_LAMBDA {
      const auto h = broadcast(four_codes(at + q * kEntryBlock));
      unroll<C>([&](auto c) BALLAST_INLINE_LAMBDA {
        high[q][c] = _mm512_dpbusd_epi32(high[q][c], h, column[c]);
      });
      const auto l = broadcast(four_codes(at + kLow + q * kEntryBlock));
      unroll<C>([&](auto c) BALLAST_INLINE_LAMBDA {
        low[q][c] = _mm512_dpbusd_epi32(low[q][c], l, column[c]);
      });
    });
    at += 4;
  };
  columns.begin(0);
  __m512i column[C];
  for (std::size_t s = 0; s < steps.whole(); ++s) {
    columns.next(1, column);
    multiply(column);
  }
  if (steps.whole() < steps.count()) {
    columns.last(column);
    multiply(column);
  }
  unroll<Q>([&](auto q) BALLAST_INLINE_LAMBDA {
    const auto unit = _mm512_set1_ps(codes->unit[q]);
    unroll<C>([&](auto c) BALLAST_INLINE_LAMBDA {
      const auto all = _mm512_add_epi32(_mm512_slli_epi32(high[q][c], 8), low[q][c]);
      sums.add(q, first + c, _mm512_mul_ps(_mm512_cvtepi32_ps(all), unit));
    });
  });
}

// codes: first the group of the first column, then the groups after it.
template <typename Columns, std::size_t Q, std::size_t C, typename... Where>
BALLAST_TILE void add_tile(const ByteCodes* codes, const Steps<4>& steps, std::size_t first,
                           const Sums& sums, Where&... where) {
  Columns columns(where...);
  constexpr std::size_t kParts = ByteCodes::kParts, kGroups = C / 2;
  // The float sums stay in memory between parts: a part's accumulators need all registers.
  const Sums of_tile = sums;
  const auto sums_of = [&](std::size_t q)
                           BALLAST_INLINE_LAMBDA { return opaque(of_tile.of(q) + first * kWide); };
  unroll<Q>([&](auto q) BALLAST_INLINE_LAMBDA {
    float* at = sums_of(q);
    const auto factor = _mm512_set1_ps(of_tile.factors[q]);
    unroll<kGroups>([&](auto g) BALLAST_INLINE_LAMBDA {
      const auto offset = _mm512_set1_ps(codes[g].offset[q]);
      unroll<2>([&](auto i) BALLAST_INLINE_LAMBDA {
        float* sum = at + (2 * g + i) * kWide;
        _mm512_storeu_ps(sum, _mm512_fmadd_ps(_mm512_loadu_ps(sum), factor, offset));
      });
    });
  });
  for (std::size_t p = 0; p < kParts; ++p) {
    __m512i part[Q][C], column[C];
    unroll<Q>([&](auto q) BALLAST_INLINE_LAMBDA {
      unroll<C>([&](auto c) BALLAST_INLINE_LAMBDA { part[q][c] = _mm512_setzero_si512(); });
    });
    const std::uint8_t* at = codes->code[0] + 4 * p;
    const auto multiply = [&]() BALLAST_INLINE_LAMBDA {
      unroll<Q>([&](auto q) BALLAST_INLINE_LAMBDA {
        unroll<kGroups>([&](auto g) BALLAST_INLINE_LAMBDA {
          const auto code = broadcast(four_codes(at + g * sizeof(ByteCodes) + q * kEntryBlock));
          unroll<2>([&](auto i) BALLAST_INLINE_LAMBDA {
            auto& sum = part[q][2 * g + i];
            sum = _mm512_dpbusd_epi32(sum, code, column[2 * g + i]);
            if constexpr (Columns::kKept) in_order(sum);
          });
        });
      });
      at += 4 * kParts;
    };
    columns.begin(p);
    const std::size_t whole = (steps.whole() + kParts - 1 - p) / kParts;
    for (std::size_t s = whole; s > 0; --s) {
      columns.next(kParts, column);
      multiply();
    }
    if (p + whole * kParts < steps.count()) {
      columns.last(column);
      multiply();
    }
    unroll<Q>([&](auto q) BALLAST_INLINE_LAMBDA {
      float* all = sums_of(q);
      unroll<C>([&](auto c) BALLAST_INLINE_LAMBDA {
        const auto unit = _mm512_set1_ps(codes[c / 2].unit[q][4 * p]);
        float* sum = all + c * kWide;
        const auto more = _mm512_cvtepi32_ps(part[q][c]);
        _mm512_storeu_ps(sum, _mm512_fmadd_ps(more, unit, _mm512_loadu_ps(sum)));
      });
    });
  }
}

template <StorageType type>
void add_integers(const RowsView& rows, const float* weights, std::size_t count, const Sums& sums,
                  const PrefetchRange* range) {
  const Integers<type> values(rows);
  const Scales<type == StorageType::int4> scales(rows);
  const std::size_t groups = up(values.columns(), 2) / 2;
  const bool few = count <= kFewQueries;
  __m512i kept[kEntryBlock / 4 * kMaxDim / kWide];
  Prefetcher prefetcher(rows, range, values.count() * lines_of<type>(values.columns()));
  if (!few) keep(values, prefetcher, kept);
  std::conditional_t<type == StorageType::int8, WideCodes<kTile>, ByteCodes> codes[kMaxGroups];
  in_tiles<kTile>(count, [&]<std::size_t Q>(std::size_t q) {
    // Quantize the weights for all groups before the first tile, so that no tile waits for codes.
    for (std::size_t i = 0; i < Q; ++i) {
      const Weights of_query(weights + (q + i) * kEntryBlock);
      for (std::size_t group = 0; group < groups; ++group) {
        codes[group].set(i, of_query, scales.at(group),
                         type == StorageType::int4 ? scales.at(groups + group) : nullptr);
      }
    }
    if constexpr (type == StorageType::int4) {
      for (std::size_t group = 0; group < groups; ++group) codes[group].template finish<Q>();
    }
    const Sums part = sums.from(q);
    // int4 takes two groups at a time: half a cache line of a row, as int8 does.
    for (std::size_t group = 0, next_group = 0; group < groups; group = next_group) {
      next_group = std::min(group + (type == StorageType::int4 ? 2 : 1), groups);
      const std::size_t first = 2 * group;
      const auto run = [&]<std::size_t C>() {
        if (few) {
          for_cache_level([&]<CacheLevel kLevel>() {
            add_tile<FreshColumns<type, C, kLevel>, Q, C>(codes + group, values, first, part,
                                                          values, first, prefetcher);
          });
        } else {
          const __m512i* at = kept + first;
          const std::size_t columns = values.columns();
          const std::size_t steps = values.count();
          add_tile<KeptColumns<C>, Q, C>(codes + group, values, first, part, at, columns, steps);
        }
      };
      if constexpr (type == StorageType::int4) {
        next_group - group == 2 ? run.template operator()<4>() : run.template operator()<2>();
      } else {
        first + 2 <= values.columns() ? run.template operator()<2>() : run.template operator()<1>();
      }
    }
  });
}

}  // namespace

void av_integers(const RowsView& values, const float* weights, std::size_t count,
                 const float* factors, float* sums, const PrefetchRange* range) {
  const Sums all{factors, sums, packed_size(values.dim)};
  if (values.type == StorageType::int8) {
    return add_integers<StorageType::int8>(values, weights, count, all, range);
  }
  add_integers<StorageType::int4>(values, weights, count, all, range);
}

}  // namespace ballast::kernels::avx512
HWY_POP_ATTRIBUTES
#endif
