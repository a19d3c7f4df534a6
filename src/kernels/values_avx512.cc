// Weighted sums of a block of values: see attention_avx512.h.
#include <hwy/base.h>
#include <hwy/detect_targets.h>

#include <array>

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
  RowSet rows(std::size_t step) const {
    if ((step + 1) * kEntries > values_.rows) return last_.rows();
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
      : values_(values), upcoming_(upcoming), first_(first), rows_(values.rows(0)) {
    load();
  }
  BALLAST_INLINE void step(std::size_t s) {
    upcoming_.next_part();
    // After the last step there is nothing; its rows are loaded again.
    if (s + 1 < values_.steps()) rows_ = values_.rows(s + 1);
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
  Upcoming& upcoming_;
  std::size_t first_;
  RowSet rows_;
  __m512i raw_[Values<type>::raw(C)], columns_[C];
};

// … or kept for many queries.
class KeptColumns {
 public:
  KeptColumns(const __m512i* columns, std::size_t count)
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
BALLAST_INLINE void bf16_tile(Columns columns, const std::uint32_t* weights, std::size_t first,
                              const Added& added) {
  __m512i part[Q][C];
  times<Q>([&](auto q) BALLAST_HERE {
    times<C>([&](auto c) BALLAST_HERE { part[q][c] = _mm512_setzero_si512(); });
  });
  for (std::size_t s = 0; s < added.steps; ++s) {
    columns.step(s);
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
          bf16_tile<Q, C>(FreshColumns<StorageType::bf16, C>(values, first, upcoming), rounded,
                          first, added);
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
        bf16_tile<Q, C>(KeptColumns(kept + first, values.columns()), rounded + q * kPairs, first,
                        part);
      });
    }
  };
  of_columns.template operator()<4>();
  of_columns.template operator()<1>();
}

// ---- int8 and int4

constexpr std::size_t kTile = 4;

// The weights of a tile's queries times the scales of one group of columns, in 16 bits.
struct Codes {
  float unit[kTile];
  float offset[kTile];  // Σ w o, of int4
  alignas(64) std::uint8_t high[kTile][kEntryBlock];
  alignas(64) std::uint8_t low[kTile][kEntryBlock];

  // Of Q queries; offsets may be null.
  template <std::size_t Q>
  void set(const float* weights, const float* scales, const float* offsets, std::size_t vectors);
};

template <std::size_t Q>
void Codes::set(const float* weights, const float* scales, const float* offsets,
                std::size_t vectors) {
  const auto at = [&](std::size_t q, std::size_t v) BALLAST_HERE {
    return _mm512_loadu_ps(weights + q * kEntryBlock + v * kWide);
  };
  __m512 most[Q], sum[Q];
  times<Q>([&](auto q) BALLAST_HERE { most[q] = sum[q] = _mm512_setzero_ps(); });
  for (std::size_t v = 0; v < vectors; ++v) {
    const auto scale = _mm512_load_ps(scales + v * kWide);
    times<Q>([&](auto q) BALLAST_HERE {
      most[q] = _mm512_max_ps(most[q], _mm512_mul_ps(at(q, v), scale));
    });
    if (offsets == nullptr) continue;
    const auto offset = _mm512_load_ps(offsets + v * kWide);
    times<Q>([&](auto q) BALLAST_HERE { sum[q] = _mm512_fmadd_ps(at(q, v), offset, sum[q]); });
  }
  __m512 inverse[Q];
  times<Q>([&](auto q) BALLAST_HERE {
    const float largest = _mm512_reduce_max_ps(most[q]);
    unit[q] = largest / 65535.0f;
    // Below, the inverse would overflow: such values count as zeros.
    inverse[q] = _mm512_set1_ps(largest > 1e-33f ? 65535.0f / largest : 0.0f);
    offset[q] = offsets == nullptr ? 0.0f : _mm512_reduce_add_ps(sum[q]);
  });
  // A number below 2²³ added to it is rounded, and in the lowest bits.
  const auto round = _mm512_set1_ps(0x1p23f);
  // Bytes 0 of 32 words, then bytes 1.
  alignas(64) static constexpr auto kOrder = [] {
    std::array<std::uint8_t, 64> order{};
    for (std::size_t i = 0; i < 64; ++i) order[i] = static_cast<std::uint8_t>(i % 32 * 4 + i / 32);
    return order;
  }();
  const auto order = _mm512_load_si512(kOrder.data());
  for (std::size_t v = 0; v < vectors; v += 2) {
    const bool two = v + 1 < vectors;
    const auto scale = _mm512_load_ps(scales + v * kWide);
    const auto next = two ? _mm512_load_ps(scales + (v + 1) * kWide) : _mm512_setzero_ps();
    times<Q>([&](auto q) BALLAST_HERE {
      const auto code = [&](__m512 w, __m512 s) BALLAST_HERE {
        return (__m512i)_mm512_fmadd_ps(_mm512_mul_ps(w, s), inverse[q], round);
      };
      const auto bytes =
          _mm512_permutex2var_epi8(code(at(q, v), scale), order, code(at(q, v + 1), next));
      _mm256_store_si256(reinterpret_cast<__m256i*>(low[q] + v * kWide),
                         _mm512_castsi512_si256(bytes));
      _mm256_store_si256(reinterpret_cast<__m256i*>(high[q] + v * kWide),
                         _mm512_extracti64x4_epi64(bytes, 1));
    });
  }
}

template <std::size_t Q, std::size_t C, typename Columns>
BALLAST_INLINE void integer_tile(Columns columns, const Codes& codes, std::size_t first,
                                 const Added& added) {
  __m512i high[Q][C], low[Q][C];
  times<Q>([&](auto q) BALLAST_HERE {
    times<C>([&](auto c) BALLAST_HERE { high[q][c] = low[q][c] = _mm512_setzero_si512(); });
  });
  const std::uint8_t* at = codes.high[0];
  constexpr std::size_t kLow = kTile * kEntryBlock;  // bytes from high to low
  for (std::size_t s = 0; s < added.steps; ++s, at += 4) {
    columns.step(s);
    times<Q>([&](auto q) BALLAST_HERE {
      const auto h = broadcast(reinterpret_cast<const std::uint32_t*>(at + q * kEntryBlock));
      times<C>([&](auto c) BALLAST_HERE {
        if constexpr (q == 0) columns.before(c);
        high[q][c] = _mm512_dpbusd_epi32(high[q][c], h, columns.column(c));
        if constexpr (q == 0) {
          in_order(high[q][c]);
          columns.after(c);
        }
      });
      const auto l = broadcast(reinterpret_cast<const std::uint32_t*>(at + kLow + q * kEntryBlock));
      times<C>([&](auto c) BALLAST_HERE {
        low[q][c] = _mm512_dpbusd_epi32(low[q][c], l, columns.column(c));
      });
    });
  }
  times<Q>([&](auto q) BALLAST_HERE {
    const auto unit = _mm512_set1_ps(codes.unit[q]);
    const auto offset = _mm512_set1_ps(codes.offset[q]);
    times<C>([&](auto c) BALLAST_HERE {
      const auto all = _mm512_add_epi32(_mm512_slli_epi32(high[q][c], 8), low[q][c]);
      add_scaled(added.sums + q * added.stride + (first + c) * kWide, added.factors[q],
                 _mm512_fmadd_ps(_mm512_cvtepi32_ps(all), unit, offset));
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
  Codes codes;
  for (std::size_t group = 0; group < groups; ++group) {
    in_tiles<kTile>(count, [&]<std::size_t Q>(std::size_t q) {
      codes.set<Q>(weights + q * kEntryBlock, scales.at(group),
                   type == StorageType::int4 ? scales.at(groups + group) : nullptr, vectors);
      const Added part{added.steps, added.factors + q, added.sums + q * added.stride, added.stride};
      const auto run = [&]<std::size_t C>() {
        if (few) {
          integer_tile<Q, C>(FreshColumns<type, C>(values, 2 * group, upcoming), codes, 2 * group,
                             part);
        } else {
          integer_tile<Q, C>(KeptColumns(kept + 2 * group, values.columns()), codes, 2 * group,
                             part);
        }
      };
      if (type == StorageType::int4 || 2 * group + 2 <= values.columns()) {
        run.template operator()<2>();
      } else if constexpr (type == StorageType::int8) {
        run.template operator()<1>();
      }
    });
  }
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
