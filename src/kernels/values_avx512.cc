// Weighted sums of a block of values: see attention_avx512.h.
#include <hwy/base.h>
#include <hwy/detect_targets.h>

#include <array>
#include <type_traits>

#include "kernels/attention_avx512.h"
#include "kernels/attention_kernels.h"

#if HWY_ARCH_X86 && defined(__GNUC__)
#include "kernels/avx512-inl.h"

HWY_PUSH_ATTRIBUTES(BALLAST_AVX512_TARGET)
namespace ballast::kernels::avx512 {
namespace {

constexpr std::size_t kMostQueries = 128;  // whose weights are rounded at a time

// The values of a block, entries interleaved: 16 columns of two entries (bf16) or of four (int8;
// int4 spread to bytes) in one vector.
template <StorageType type>
class Values {
 public:
  static constexpr std::size_t kEntries = type == StorageType::bf16 ? 2 : 4;  // of a step
  static constexpr std::size_t kGroupColumns = 2;                             // vectors

  // What fills up the last step has weight 0.
  explicit Values(const RowsView& values)
      : values_(values),
        steps_(up(values.rows, kEntries) / kEntries),
        columns_(up(values.dim, type == StorageType::int4 ? kQuantGroup : kWide) / kWide),
        rest_(static_cast<__mmask16>((1u << (values.dim % kWide)) - 1)),
        last_(values, values.rows / kEntries * kEntries) {}

  std::size_t steps() const { return steps_; }
  std::size_t columns() const { return columns_; }  // vectors
  std::size_t whole_columns() const { return values_.dim / kWide; }
  std::size_t whole_steps() const { return values_.rows / kEntries; }
  RowSet all_rows() const { return {values_.data, values_.stride}; }
  RowSet last_rows() const { return last_.rows(); }
  RowSet rows(std::size_t step) const {
    if (step >= whole_steps()) return last_rows();
    return {values_.data + step * kEntries * values_.stride, values_.stride};
  }
  // C columns from the first on, of 16 numbers each; of int4, and of int8 unless C is 1, both of a
  // group. Of bf16 all 16, unless C is 1. What column() makes them of, …
  static constexpr std::size_t raw(std::size_t columns) {
    return type == StorageType::int4 ? columns / 2 : columns;
  }
  template <std::size_t C>
  BALLAST_INLINE void load(const RowSet& rows, std::size_t first, std::size_t i,
                           __m512i* out) const {
    if constexpr (type == StorageType::bf16) {
      *out = load_pair<C == 1>(rows, first + i);
    } else if constexpr (type == StorageType::int4) {
      *out = first_rows(rows, (first / 2 + i) * kChunk);
    } else if constexpr (C == 1) {
      *out = first_rows(rows, first * kChunk);
    } else {
      // Both columns of two rows.
      const std::byte* at = opaque(rows.data + first * kChunk) + i * 2 * rows.stride;
      const auto a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
      const auto b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at + rows.stride));
      *out = _mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1);
    }
  }
  // … and column c of them.
  template <std::size_t C>
  BALLAST_INLINE static __m512i column(const __m512i* raw, std::size_t c) {
    if constexpr (type == StorageType::bf16) {
      return interleave_pair(raw[c]);
    } else if constexpr (type == StorageType::int4) {
      const auto four = interleave_four(raw[c / 2]);
      return _mm512_and_si512(c % 2 == 0 ? four : _mm512_srli_epi16(four, 4), _mm512_set1_epi8(15));
    } else if constexpr (C == 1) {
      return interleave_four(raw[0]);
    } else {
      return interleave_two(raw[0], raw[1], c);
    }
  }

 private:
  // Byte j of word i: of the i-th number, entry j.
  static __m512i words(int apart) {
    const auto word = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    return _mm512_add_epi8(_mm512_mullo_epi32(word, _mm512_set1_epi32(0x01010101)),
                           _mm512_set1_epi32(apart * 0x03020100));
  }
  BALLAST_INLINE static __m512i interleave_four(__m512i rows) {
    return _mm512_permutexvar_epi8(words(16), rows);
  }
  // Column c of two, of rows 0 and 1 and of rows 2 and 3.
  BALLAST_INLINE static __m512i interleave_two(__m512i a, __m512i b, std::size_t c) {
    const auto from = _mm512_set1_epi8(static_cast<char>(c * 16));
    return _mm512_permutex2var_epi8(a, _mm512_add_epi8(words(32), from), b);
  }

  template <bool kMaybeRest>
  BALLAST_INLINE __m512i load_pair(const RowSet& rows, std::size_t column) const {
    const std::byte* at = opaque(rows.data) + column * 2 * kWide;
    const bool rest = kMaybeRest && (column + 1) * kWide > values_.dim;
    const auto row = [&](const std::byte* data) BALLAST_HERE {
      if (rest) return _mm256_maskz_loadu_epi16(rest_, data);
      return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(data));
    };
    return _mm512_inserti64x4(_mm512_castsi256_si512(row(at)), row(at + rows.stride), 1);
  }
  BALLAST_INLINE static __m512i interleave_pair(__m512i pair) {
    const auto word = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    const auto order = _mm512_add_epi16(_mm512_mullo_epi32(word, _mm512_set1_epi32(0x00010001)),
                                        _mm512_set1_epi32(0x00100000));
    return _mm512_permutexvar_epi16(order, pair);
  }

  RowsView values_;
  std::size_t steps_, columns_;
  __mmask16 rest_;
  FilledUp last_;
};

// Columns of the values, step by step: made on the way, …
template <StorageType type, std::size_t C>
class FreshColumns {
 public:
  BALLAST_INLINE FreshColumns(const Values<type>& values, std::size_t first, Upcoming& upcoming)
      : values_(values),
        whole_(values.whole_steps()),
        steps_(values.steps()),
        all_(values.all_rows()),
        rest_(upcoming),
        upcoming_(upcoming),
        first_(first),
        rows_(values.rows(0)) {
    load();
  }
  BALLAST_INLINE ~FreshColumns() { rest_ = upcoming_; }
  FreshColumns(const FreshColumns&) = delete;
  FreshColumns& operator=(const FreshColumns&) = delete;
  /// The step whose rows are loaded, before `next`. After the last one there is nothing; its rows
  /// are loaded again.
  BALLAST_INLINE void step(std::size_t, std::size_t next) {
    upcoming_.next_part();
    if (next < whole_) [[likely]] {
      rows_ = all_;
      rows_.data += next * Values<type>::kEntries * all_.stride;
    } else if (next < steps_) {
      rows_ = values_.last_rows();
    }
    if constexpr (kAtOnce) make();
  }
  BALLAST_INLINE __m512i column(std::size_t c) const { return columns_[c]; }
  // Before the first product with column c, …
  BALLAST_INLINE void before(std::size_t c) {
    if constexpr (!kAtOnce) columns_[c] = Values<type>::template column<1>(raw_ + c, 0);
  }
  // … and after it: loads what the next step needs.
  BALLAST_INLINE void after(std::size_t c) {
    if constexpr (kAtOnce) {
      if (c + 1 == C) load();
    } else {
      load(c);
    }
  }

 private:
  // Columns that are made of the same rows' bytes.
  static constexpr bool kAtOnce = type != StorageType::bf16;

  BALLAST_INLINE void make() {
    times<C>([&](auto c) BALLAST_HERE { columns_[c] = Values<type>::template column<C>(raw_, c); });
  }
  BALLAST_INLINE void load(std::size_t i) {
    values_.template load<C>(rows_, first_, i, &raw_[i]);
    in_order(raw_[i]);
  }
  BALLAST_INLINE void load() {
    times<Values<type>::raw(C)>([&](auto i) BALLAST_HERE { load(i); });
  }

  const Values<type>& values_;
  std::size_t whole_, steps_;
  RowSet all_;
  Upcoming& rest_;
  Upcoming upcoming_;  // a copy, which stays in registers
  std::size_t first_;
  RowSet rows_;
  __m512i raw_[Values<type>::raw(C)], columns_[C];
};

// … or kept for many queries.
class KeptColumns {
 public:
  KeptColumns(const __m512i* columns, std::size_t count)
      : columns_(columns), at_(columns), count_(count) {}
  void step(std::size_t s, std::size_t) { at_ = columns_ + s * count_; }
  __m512i column(std::size_t c) const { return _mm512_load_si512(at_ + c); }
  void before(std::size_t) {}
  void after(std::size_t) {}

 private:
  const __m512i* columns_;
  const __m512i* at_;
  std::size_t count_;
};

template <StorageType type>
void keep(const Values<type>& values, const RowsView* next, __m512i* kept) {
  Upcoming upcoming(next, values.steps());
  for (std::size_t s = 0; s < values.steps(); ++s) {
    upcoming.next_part();
    const RowSet rows = values.rows(s);
    constexpr std::size_t C = type == StorageType::int4 ? 2 : 1;
    for (std::size_t c = 0; c < values.columns(); c += C) {
      __m512i raw;
      values.template load<C>(rows, c, 0, &raw);
      times<C>([&](auto i) BALLAST_HERE {
        _mm512_store_si512(kept + s * values.columns() + c + i,
                           Values<type>::template column<C>(&raw, i));
      });
    }
  }
}

inline void add_scaled(float* sums, float factor, __m512 more) {
  _mm512_storeu_ps(sums, _mm512_fmadd_ps(_mm512_loadu_ps(sums), _mm512_set1_ps(factor), more));
}

// What a tile needs beside its columns.
struct Added {
  std::size_t steps;
  const float* factors;
  float* sums;
  std::size_t stride;
};

// ---- bf16

constexpr std::size_t kPairs = kEntryBlock / 2;

template <std::size_t Q, std::size_t C, typename Columns>
BALLAST_INLINE void bf16_tile(Columns& columns, const std::uint32_t* weights, std::size_t first,
                              const Added& added) {
  __m512i part[Q][C];
  times<Q>([&](auto q) BALLAST_HERE {
    times<C>([&](auto c) BALLAST_HERE { part[q][c] = _mm512_setzero_si512(); });
  });
  for (std::size_t s = 0; s < added.steps; ++s) {
    columns.step(s, s + 1);
    times<Q>([&](auto q) BALLAST_HERE {
      const auto w = broadcast(weights + q * kPairs + s);
      times<C>([&](auto c) BALLAST_HERE {
        if constexpr (q == 0) columns.before(c);
        part[q][c] =
            (__m512i)_mm512_dpbf16_ps((__m512)part[q][c], (__m512bh)columns.column(c), (__m512bh)w);
        in_order(part[q][c]);
        if constexpr (q == 0) columns.after(c);
      });
    });
  }
  times<Q>([&](auto q) BALLAST_HERE {
    times<C>([&](auto c) BALLAST_HERE {
      add_scaled(added.sums + q * added.stride + (first + c) * kWide, added.factors[q],
                 (__m512)part[q][c]);
    });
  });
}

void bf16_sums(const Values<StorageType::bf16>& values, const float* weights, std::size_t count,
               const Added& added, const RowsView* next) {
  alignas(64) std::uint32_t rounded[kMostQueries * kPairs];
  for (std::size_t i = 0; i < count * kEntryBlock; i += kWide) {
    const auto words = _mm512_cvtneps_pbh(_mm512_loadu_ps(weights + i));
    _mm256_store_si256(reinterpret_cast<__m256i*>(rounded + i / 2), (__m256i)words);
  }
  std::size_t first = 0;
  if (count <= kFewQueries) {
    const std::size_t whole = values.whole_columns();
    const std::size_t passes = whole / 4 + values.columns() - whole / 4 * 4;
    Upcoming upcoming(next, passes * values.steps());
    in_tiles<kFewQueries>(count, [&]<std::size_t Q>(std::size_t) {
      const auto of_columns = [&]<std::size_t C>() {
        for (; first + C <= (C > 1 ? whole : values.columns()); first += C) {
          FreshColumns<StorageType::bf16, C> columns(values, first, upcoming);
          bf16_tile<Q, C>(columns, rounded, first, added);
        }
      };
      of_columns.template operator()<4>();
      of_columns.template operator()<1>();
    });
    return;
  }
  __m512i kept[kPairs * kMaxDim / kWide];
  keep(values, next, kept);
  // Columns outside, so that their values stay in the first-level cache.
  const auto of_columns = [&]<std::size_t C>() {
    for (; first + C <= values.columns(); first += C) {
      in_tiles<6>(count, [&]<std::size_t Q>(std::size_t q) {
        const Added part{added.steps, added.factors + q, added.sums + q * added.stride,
                         added.stride};
        KeptColumns columns(kept + first, values.columns());
        bf16_tile<Q, C>(columns, rounded + q * kPairs, first, part);
      });
    }
  };
  of_columns.template operator()<4>();
  of_columns.template operator()<1>();
}

// ---- int8 and int4
//
// Weights times the scales of a group of columns become integers, of a tile's queries at a time: a
// weighted sum is then one of integers, exact, times their unit. Those of int8 have 16 bits and a
// unit for the block. Where values are int4 8 bits do, with a unit for 32 entries: by estimate that
// rounds a tenth of what storage has where one entry outweighs the others, and less elsewhere (the
// test AddsLittleToWhatStorageLost measures it).

constexpr std::size_t kTile = 4;

// Tiles are functions of their own: sums that share a function with all that makes codes would be
// kept in memory.
#define BALLAST_TILE __attribute__((noinline))

// A number below 2²³ added to it is rounded, and in the lowest bits.
inline __m512i rounded(__m512 x, __m512 factor) {
  return (__m512i)_mm512_fmadd_ps(x, factor, _mm512_set1_ps(0x1p23f));
}

// Bytes 0 of 32 words, then bytes 1.
inline __m512i low_bytes(__m512i a, __m512i b) {
  alignas(64) static constexpr auto kOrder = [] {
    std::array<std::uint8_t, 64> order{};
    for (std::size_t i = 0; i < 64; ++i) order[i] = static_cast<std::uint8_t>(i % 32 * 4 + i / 32);
    return order;
  }();
  return _mm512_permutex2var_epi8(a, _mm512_load_si512(kOrder.data()), b);
}

// Vector v of the weights of query q.
inline __m512 weights_at(const float* weights, std::size_t q, std::size_t v) {
  return _mm512_loadu_ps(weights + q * kEntryBlock + v * kWide);
}

inline void store_half(std::uint8_t* at, __m256i bytes) {
  _mm256_store_si256(reinterpret_cast<__m256i*>(at), bytes);
}

inline const std::uint32_t* four_codes(const std::uint8_t* at) {
  return reinterpret_cast<const std::uint32_t*>(at);
}

// Gives products of weights and scales to `use`, two vectors at a time: query, the first's number,
// both.
template <std::size_t Q, typename Use>
BALLAST_INLINE void for_pairs(const float* weights, const float* scales, std::size_t vectors,
                              const Use& use) {
  for (std::size_t v = 0; v < vectors; v += 2) {
    const __mmask16 both = v + 1 < vectors ? 0xFFFF : 0;
    const auto scale = _mm512_load_ps(scales + v * kWide);
    const auto next = _mm512_maskz_load_ps(both, scales + (v + 1) * kWide);
    times<Q>([&](auto q) BALLAST_HERE {
      use(q, v, _mm512_mul_ps(weights_at(weights, q, v), scale),
          _mm512_maskz_mul_ps(both, weights_at(weights, q, v + 1), next));
    });
  }
}

struct WideCodes {
  float unit[kTile];
  alignas(64) std::uint8_t high[kTile][kEntryBlock];
  alignas(64) std::uint8_t low[kTile][kEntryBlock];

  template <std::size_t Q>
  void set(const float* weights, const float* scales, const float*, std::size_t vectors) {
    __m512 most[Q], inverse[Q];
    times<Q>([&](auto q) BALLAST_HERE { most[q] = _mm512_setzero_ps(); });
    for (std::size_t v = 0; v < vectors; ++v) {
      const auto scale = _mm512_load_ps(scales + v * kWide);
      times<Q>([&](auto q) BALLAST_HERE {
        most[q] = _mm512_max_ps(most[q], _mm512_mul_ps(weights_at(weights, q, v), scale));
      });
    }
    times<Q>([&](auto q) BALLAST_HERE {
      const float largest = _mm512_reduce_max_ps(most[q]);
      unit[q] = largest / 65535.0f;
      // Below, the inverse would overflow: such values count as zeros.
      inverse[q] = _mm512_set1_ps(largest > 1e-33f ? 65535.0f / largest : 0.0f);
    });
    for_pairs<Q>(weights, scales, vectors,
                 [&](auto q, std::size_t v, __m512 a, __m512 b) BALLAST_HERE {
                   const auto bytes = low_bytes(rounded(a, inverse[q]), rounded(b, inverse[q]));
                   store_half(low[q] + v * kWide, _mm512_castsi512_si256(bytes));
                   store_half(high[q] + v * kWide, _mm512_extracti64x4_epi64(bytes, 1));
                 });
  }
};

template <typename Columns, std::size_t Q, std::size_t C, typename... Where>
BALLAST_TILE void integer_tile(const WideCodes& codes, std::size_t first, const Added& added,
                               Where&... where) {
  Columns columns(where...);
  __m512i high[Q][C], low[Q][C];
  times<Q>([&](auto q) BALLAST_HERE {
    times<C>([&](auto c) BALLAST_HERE { high[q][c] = low[q][c] = _mm512_setzero_si512(); });
  });
  const std::uint8_t* at = codes.high[0];
  constexpr std::size_t kLow = kTile * kEntryBlock;  // bytes from high to low
  for (std::size_t s = 0; s < added.steps; ++s, at += 4) {
    columns.step(s, s + 1);
    times<Q>([&](auto q) BALLAST_HERE {
      const auto h = broadcast(four_codes(at + q * kEntryBlock));
      times<C>([&](auto c) BALLAST_HERE {
        if constexpr (q == 0) columns.before(c);
        high[q][c] = _mm512_dpbusd_epi32(high[q][c], h, columns.column(c));
        if constexpr (q == 0) {
          in_order(high[q][c]);
          columns.after(c);
        }
      });
      const auto l = broadcast(four_codes(at + kLow + q * kEntryBlock));
      times<C>([&](auto c) BALLAST_HERE {
        low[q][c] = _mm512_dpbusd_epi32(low[q][c], l, columns.column(c));
      });
    });
  }
  times<Q>([&](auto q) BALLAST_HERE {
    const auto unit = _mm512_set1_ps(codes.unit[q]);
    times<C>([&](auto c) BALLAST_HERE {
      const auto all = _mm512_add_epi32(_mm512_slli_epi32(high[q][c], 8), low[q][c]);
      add_scaled(added.sums + q * added.stride + (first + c) * kWide, added.factors[q],
                 _mm512_mul_ps(_mm512_cvtepi32_ps(all), unit));
    });
  });
}

// Part p of a block are its steps p, p + 4, …: so the largest product of a part is found without
// going across vectors. Values s n + o are taken as s (n − 8) + (o + 8 s), so that what is rounded
// of small weights does not add up; the second term keeps the weights as they are.
struct ByteCodes {
  static constexpr std::size_t kParts = 4;
  alignas(64) float unit[kTile][kWide];          // of part p in lanes 4 p …
  alignas(64) std::int32_t start[kTile][kWide];  // −8 Σ codes, likewise
  float offset[kTile];                           // Σ w (o + 8 s)
  alignas(64) std::uint8_t code[kTile][kEntryBlock];

  template <std::size_t Q>
  void set(const float* weights, const float* scales, const float* offsets, std::size_t vectors) {
    __m512 most[Q], sum[Q], inverse[Q];
    __m512i total[Q];
    times<Q>([&](auto q) BALLAST_HERE {
      most[q] = sum[q] = _mm512_setzero_ps();
      total[q] = _mm512_setzero_si512();
    });
    const auto eight = _mm512_set1_ps(8.0f);
    for (std::size_t v = 0; v < vectors; ++v) {
      const auto scale = _mm512_load_ps(scales + v * kWide);
      const auto centre = _mm512_fmadd_ps(scale, eight, _mm512_load_ps(offsets + v * kWide));
      times<Q>([&](auto q) BALLAST_HERE {
        const auto w = weights_at(weights, q, v);
        most[q] = _mm512_max_ps(most[q], _mm512_mul_ps(w, scale));
        sum[q] = _mm512_fmadd_ps(w, centre, sum[q]);
      });
    }
    times<Q>([&](auto q) BALLAST_HERE {
      most[q] = _mm512_max_ps(most[q], _mm512_permute_ps(most[q], 0xB1));
      most[q] = _mm512_max_ps(most[q], _mm512_permute_ps(most[q], 0x4E));
      // Below, the inverse would overflow: such values count as zeros.
      const auto large = _mm512_cmp_ps_mask(most[q], _mm512_set1_ps(1e-33f), _CMP_GT_OQ);
      inverse[q] = _mm512_maskz_div_ps(large, _mm512_set1_ps(255.0f), most[q]);
      _mm512_store_ps(unit[q], _mm512_mul_ps(most[q], _mm512_set1_ps(1.0f / 255.0f)));
      offset[q] = _mm512_reduce_add_ps(sum[q]);
    });
    for_pairs<Q>(
        weights, scales, vectors, [&](auto q, std::size_t v, __m512 a, __m512 b) BALLAST_HERE {
          const auto first = rounded(a, inverse[q]), second = rounded(b, inverse[q]);
          total[q] = _mm512_add_epi32(total[q], _mm512_add_epi32(first, second));
          store_half(code[q] + v * kWide, _mm512_castsi512_si256(low_bytes(first, second)));
        });
    // What is not the code in each of them, a part's four lanes of all vectors.
    const auto others = _mm512_set1_epi32(static_cast<int>(0x4B000000u * 4 * up(vectors, 2)));
    times<Q>([&](auto q) BALLAST_HERE {
      auto sums = total[q];
      sums = _mm512_add_epi32(sums, _mm512_shuffle_epi32(sums, _MM_PERM_CDAB));
      sums = _mm512_add_epi32(sums, _mm512_shuffle_epi32(sums, _MM_PERM_BADC));
      _mm512_store_si512(start[q], _mm512_slli_epi32(_mm512_sub_epi32(others, sums), 3));
    });
  }
};

template <typename Columns, std::size_t Q, std::size_t C, typename... Where>
BALLAST_TILE void integer_tile(const ByteCodes& codes, std::size_t first, const Added& added,
                               Where&... where) {
  Columns columns(where...);
  constexpr std::size_t kParts = ByteCodes::kParts;
  __m512 sums[Q][C];
  times<Q>([&](auto q) BALLAST_HERE {
    times<C>([&](auto c) BALLAST_HERE { sums[q][c] = _mm512_set1_ps(codes.offset[q]); });
  });
  times<kParts>([&](auto p) BALLAST_HERE {
    __m512i part[Q][C];
    times<Q>([&](auto q) BALLAST_HERE {
      const auto start = _mm512_set1_epi32(codes.start[q][4 * p]);
      times<C>([&](auto c) BALLAST_HERE { part[q][c] = start; });
    });
    const std::uint8_t* at = codes.code[0] + 4 * p;
    for (std::size_t s = p; s < added.steps; s += kParts, at += 4 * kParts) {
      std::size_t next = s + kParts;
      if (next >= added.steps) next = p + 1 < kParts ? p + 1 : added.steps;
      columns.step(s, next);
      times<Q>([&](auto q) BALLAST_HERE {
        const auto code = broadcast(four_codes(at + q * kEntryBlock));
        times<C>([&](auto c) BALLAST_HERE {
          if constexpr (q == 0) columns.before(c);
          part[q][c] = _mm512_dpbusd_epi32(part[q][c], code, columns.column(c));
          in_order(part[q][c]);
          if constexpr (q == 0) columns.after(c);
        });
      });
    }
    times<Q>([&](auto q) BALLAST_HERE {
      const auto unit = _mm512_set1_ps(codes.unit[q][4 * p]);
      times<C>([&](auto c) BALLAST_HERE {
        sums[q][c] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(part[q][c]), unit, sums[q][c]);
      });
    });
  });
  times<Q>([&](auto q) BALLAST_HERE {
    times<C>([&](auto c) BALLAST_HERE {
      add_scaled(added.sums + q * added.stride + (first + c) * kWide, added.factors[q], sums[q][c]);
    });
  });
}

template <StorageType type>
void integer_sums(const RowsView& rows, const float* weights, std::size_t count, const Added& added,
                  const RowsView* next) {
  const Values<type> values(rows);
  const Scales scales(rows);
  const std::size_t vectors = up(rows.rows, kWide) / kWide;
  const std::size_t groups = up(values.columns(), 2) / 2;
  const bool few = count <= kFewQueries;
  __m512i kept[kEntryBlock / 4 * kMaxDim / kWide];
  if (!few) keep(values, next, kept);
  Upcoming upcoming(few ? next : nullptr, groups * values.steps());
  std::conditional_t<type == StorageType::int8, WideCodes, ByteCodes> codes[kMaxGroups];
  in_tiles<kTile>(count, [&]<std::size_t Q>(std::size_t q) {
    // Of all groups, before the first sum: none waits for codes.
    for (std::size_t group = 0; group < groups; ++group) {
      codes[group].template set<Q>(weights + q * kEntryBlock, scales.at(group),
                                   type == StorageType::int4 ? scales.at(groups + group) : nullptr,
                                   vectors);
    }
    const Added part{added.steps, added.factors + q, added.sums + q * added.stride, added.stride};
    for (std::size_t group = 0; group < groups; ++group) {
      const std::size_t first = 2 * group;
      const auto run = [&]<std::size_t C>() {
        if (few) {
          integer_tile<FreshColumns<type, C>, Q, C>(codes[group], first, part, values, first,
                                                    upcoming);
        } else {
          const __m512i* at = kept + first;
          const std::size_t columns = values.columns();
          integer_tile<KeptColumns, Q, C>(codes[group], first, part, at, columns);
        }
      };
      if (type == StorageType::int4 || 2 * group + 2 <= values.columns()) {
        run.template operator()<2>();
      } else if constexpr (type == StorageType::int8) {
        run.template operator()<1>();
      }
    }
  });
}

}  // namespace

void accumulate_block(const RowsView& values, const float* weights, std::size_t count,
                      const float* factors, float* sums, const RowsView* next) {
  if (values.rows == 0) return;
  const std::size_t entries = values.type == StorageType::bf16 ? 2 : 4;
  const Added added{up(values.rows, entries) / entries, factors, sums, packed_size(values.dim)};
  if (values.type == StorageType::int8) {
    return integer_sums<StorageType::int8>(values, weights, count, added, next);
  }
  if (values.type == StorageType::int4) {
    return integer_sums<StorageType::int4>(values, weights, count, added, next);
  }
  const Values<StorageType::bf16> pairs(values);
  for (std::size_t q = 0; q < count; q += kMostQueries) {
    const Added part{added.steps, factors + q, sums + q * added.stride, added.stride};
    bf16_sums(pairs, weights + q * kEntryBlock, std::min(kMostQueries, count - q), part, next);
  }
}

}  // namespace ballast::kernels::avx512
HWY_POP_ATTRIBUTES

#else

namespace ballast::kernels::avx512 {

void accumulate_block(const RowsView&, const float*, std::size_t, const float*, float*,
                      const RowsView*) {}

}  // namespace ballast::kernels::avx512

#endif
