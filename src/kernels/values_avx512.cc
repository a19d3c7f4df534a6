// Weighted sums of a block of values: see attention_avx512.h.
#include <hwy/base.h>
#include <hwy/detect_targets.h>

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
  RowSet rows(std::size_t step) const {
    if ((step + 1) * kEntries > values_.rows) return last_.rows();
    return {values_.data + step * kEntries * values_.stride, values_.stride};
  }
  // Columns first … first + C − 1; of int4 an even number of them, from an even one on.
  template <std::size_t C>
  void read(const RowSet& rows, std::size_t first, __m512i* out) const {
    if constexpr (type == StorageType::bf16) {
      for (std::size_t c = 0; c < C; ++c) out[c] = interleave_pair(rows, first + c);
    } else if constexpr (type == StorageType::int8) {
      for (std::size_t c = 0; c < C; ++c) out[c] = interleave_four(rows, (first + c) * kChunk);
    } else {
      const auto low = _mm512_set1_epi8(15);
      for (std::size_t c = 0; c < C; c += 2) {
        const auto both = interleave_four(rows, (first + c) / 2 * kChunk);
        out[c] = _mm512_and_si512(both, low);
        out[c + 1] = _mm512_and_si512(_mm512_srli_epi16(both, 4), low);
      }
    }
  }

 private:
  static __m512i interleave_four(const RowSet& rows, std::size_t at) {
    // Byte j of word i is byte i of row j.
    const auto word = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    const auto order = _mm512_add_epi8(_mm512_mullo_epi32(word, _mm512_set1_epi32(0x01010101)),
                                       _mm512_set1_epi32(0x30201000));
    return _mm512_permutexvar_epi8(order, four_chunks(rows.data + at, rows.stride));
  }

  __m512i interleave_pair(const RowSet& rows, std::size_t column) const {
    const auto word = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    const auto order = _mm512_add_epi16(_mm512_mullo_epi32(word, _mm512_set1_epi32(0x00010001)),
                                        _mm512_set1_epi32(0x00100000));
    const std::byte* at = rows.data + column * 2 * kWide;
    const bool whole = (column + 1) * kWide <= values_.dim;
    const auto mask = whole ? static_cast<__mmask16>(0xFFFF) : rest_;
    const auto a = _mm256_maskz_loadu_epi16(mask, at);
    const auto b = _mm256_maskz_loadu_epi16(mask, at + rows.stride);
    return _mm512_permutexvar_epi16(order, _mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1));
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
  FreshColumns(const Values<type>& values, std::size_t first, const Upcoming& upcoming)
      : values_(values), upcoming_(upcoming), first_(first) {
    // All passes over the entries share the rows of what comes next.
    const std::size_t passes = up(values.columns(), C) / C;
    share_ = up(Values<type>::kEntries, passes) / passes;
    next_ = first / C * values.steps() * share_;
  }
  void step(std::size_t s) {
    upcoming_.fetch(next_ + s * share_, share_);
    values_.template read<C>(values_.rows(s), first_, columns_);
  }
  __m512i column(std::size_t c) const { return columns_[c]; }

 private:
  const Values<type>& values_;
  const Upcoming& upcoming_;
  std::size_t first_, next_, share_;
  __m512i columns_[C];
};

// … or kept for many queries.
class KeptColumns {
 public:
  KeptColumns(const __m512i* columns, std::size_t count)
      : columns_(columns), at_(columns), count_(count) {}
  void step(std::size_t s) { at_ = columns_ + s * count_; }
  __m512i column(std::size_t c) const { return _mm512_load_si512(at_ + c); }

 private:
  const __m512i* columns_;
  const __m512i* at_;
  std::size_t count_;
};

template <StorageType type>
void keep(const Values<type>& values, const Upcoming& upcoming, __m512i* kept) {
  for (std::size_t s = 0; s < values.steps(); ++s) {
    upcoming.fetch(s * Values<type>::kEntries, Values<type>::kEntries);
    const RowSet rows = values.rows(s);
    constexpr std::size_t C = type == StorageType::int4 ? 2 : 1;
    for (std::size_t c = 0; c < values.columns(); c += C) {
      __m512i out[C];
      values.template read<C>(rows, c, out);
      for (std::size_t i = 0; i < C; ++i) {
        _mm512_store_si512(kept + s * values.columns() + c + i, out[i]);
      }
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
inline void bf16_tile(Columns columns, const std::uint32_t* weights, std::size_t first,
                      const Added& added) {
  __m512 part[Q][C];
  for (auto& of_query : part) {
    for (auto& column : of_query) column = _mm512_setzero_ps();
  }
  for (std::size_t s = 0; s < added.steps; ++s) {
    columns.step(s);
    __m512i value[C];
    for (std::size_t c = 0; c < C; ++c) value[c] = columns.column(c);
    for (std::size_t q = 0; q < Q; ++q) {
      const auto w = broadcast(weights + q * kPairs + s);
      for (std::size_t c = 0; c < C; ++c) {
        part[q][c] = _mm512_dpbf16_ps(part[q][c], (__m512bh)value[c], (__m512bh)w);
      }
    }
  }
  for (std::size_t q = 0; q < Q; ++q) {
    for (std::size_t c = 0; c < C; ++c) {
      add_scaled(added.sums + q * added.stride + (first + c) * kWide, added.factors[q], part[q][c]);
    }
  }
}

void bf16_sums(const Values<StorageType::bf16>& values, const float* weights, std::size_t count,
               const Added& added, const Upcoming& upcoming) {
  alignas(64) std::uint32_t rounded[kMostQueries * kPairs];
  for (std::size_t i = 0; i < count * kEntryBlock; i += kWide) {
    const auto words = _mm512_cvtneps_pbh(_mm512_loadu_ps(weights + i));
    _mm256_store_si256(reinterpret_cast<__m256i*>(rounded + i / 2), (__m256i)words);
  }
  std::size_t first = 0;
  if (count <= kFewQueries) {
    in_tiles<kFewQueries>(count, [&]<std::size_t Q>(std::size_t) {
      const auto of_columns = [&]<std::size_t C>() {
        for (; first + C <= values.columns(); first += C) {
          bf16_tile<Q, C>(FreshColumns<StorageType::bf16, C>(values, first, upcoming), rounded,
                          first, added);
        }
      };
      if constexpr (Q < 3) of_columns.template operator()<8>();
      of_columns.template operator()<4>();
      of_columns.template operator()<1>();
    });
    return;
  }
  __m512i kept[kPairs * kMaxDim / kWide];
  keep(values, upcoming, kept);
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

  void set(std::size_t q, const float* weights, const float* scales, std::size_t vectors);
  void set_offset(std::size_t q, const float* weights, const float* offsets, std::size_t vectors);
};

void Codes::set(std::size_t q, const float* weights, const float* scales, std::size_t vectors) {
  __m512 product[kEntryBlock / kWide];
  auto most = _mm512_setzero_ps();
  for (std::size_t v = 0; v < kEntryBlock / kWide; ++v) {
    product[v] = v < vectors ? _mm512_mul_ps(_mm512_loadu_ps(weights + v * kWide),
                                             _mm512_load_ps(scales + v * kWide))
                             : _mm512_setzero_ps();
    most = _mm512_max_ps(most, product[v]);
  }
  const float largest = _mm512_reduce_max_ps(most);
  unit[q] = largest / 65535.0f;
  // Below, the inverse would overflow: such values count as zeros.
  const auto inverse = _mm512_set1_ps(largest > 1e-33f ? 65535.0f / largest : 0.0f);
  const auto order = _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0);
  const auto byte = _mm512_set1_epi16(255);
  for (std::size_t v = 0; v < kEntryBlock / kWide; v += 4) {
    __m512i code[4];
    for (std::size_t i = 0; i < 4; ++i) {
      code[i] = _mm512_cvtps_epi32(_mm512_mul_ps(product[v + i], inverse));
    }
    const auto a = _mm512_packus_epi32(code[0], code[1]);
    const auto b = _mm512_packus_epi32(code[2], code[3]);
    const auto lows = _mm512_packus_epi16(_mm512_and_si512(a, byte), _mm512_and_si512(b, byte));
    const auto highs = _mm512_packus_epi16(_mm512_srli_epi16(a, 8), _mm512_srli_epi16(b, 8));
    _mm512_store_si512(low[q] + v * kWide, _mm512_permutexvar_epi32(order, lows));
    _mm512_store_si512(high[q] + v * kWide, _mm512_permutexvar_epi32(order, highs));
  }
}

void Codes::set_offset(std::size_t q, const float* weights, const float* offsets,
                       std::size_t vectors) {
  auto sum = _mm512_setzero_ps();
  for (std::size_t v = 0; v < vectors; ++v) {
    sum = _mm512_fmadd_ps(_mm512_loadu_ps(weights + v * kWide), _mm512_load_ps(offsets + v * kWide),
                          sum);
  }
  offset[q] = _mm512_reduce_add_ps(sum);
}

template <std::size_t Q, std::size_t C, typename Columns>
inline void integer_tile(Columns columns, const Codes& codes, std::size_t first,
                         const Added& added) {
  __m512i high[Q][C], low[Q][C];
  for (std::size_t q = 0; q < Q; ++q) {
    for (std::size_t c = 0; c < C; ++c) high[q][c] = low[q][c] = _mm512_setzero_si512();
  }
  for (std::size_t s = 0; s < added.steps; ++s) {
    columns.step(s);
    __m512i value[C];
    for (std::size_t c = 0; c < C; ++c) value[c] = columns.column(c);
    for (std::size_t q = 0; q < Q; ++q) {
      const auto h = broadcast(reinterpret_cast<const std::uint32_t*>(codes.high[q]) + s);
      const auto l = broadcast(reinterpret_cast<const std::uint32_t*>(codes.low[q]) + s);
      for (std::size_t c = 0; c < C; ++c) {
        high[q][c] = _mm512_dpbusd_epi32(high[q][c], h, value[c]);
        low[q][c] = _mm512_dpbusd_epi32(low[q][c], l, value[c]);
      }
    }
  }
  for (std::size_t q = 0; q < Q; ++q) {
    const auto unit = _mm512_set1_ps(codes.unit[q]);
    const auto offset = _mm512_set1_ps(codes.offset[q]);
    for (std::size_t c = 0; c < C; ++c) {
      const auto all = _mm512_add_epi32(_mm512_slli_epi32(high[q][c], 8), low[q][c]);
      add_scaled(added.sums + q * added.stride + (first + c) * kWide, added.factors[q],
                 _mm512_fmadd_ps(_mm512_cvtepi32_ps(all), unit, offset));
    }
  }
}

template <StorageType type>
void integer_sums(const RowsView& rows, const float* weights, std::size_t count, const Added& added,
                  const Upcoming& upcoming) {
  const Values<type> values(rows);
  const Scales scales(rows);
  const std::size_t vectors = up(rows.rows, kWide) / kWide;
  const std::size_t groups = up(values.columns(), 2) / 2;
  const bool few = count <= kFewQueries;
  __m512i kept[kEntryBlock / 4 * kMaxDim / kWide];
  if (!few) keep(values, upcoming, kept);
  Codes codes;
  for (std::size_t group = 0; group < groups; ++group) {
    in_tiles<kTile>(count, [&]<std::size_t Q>(std::size_t q) {
      for (std::size_t i = 0; i < Q; ++i) {
        const float* w = weights + (q + i) * kEntryBlock;
        codes.set(i, w, scales.at(group), vectors);
        codes.offset[i] = 0.0f;
        if (type == StorageType::int4) codes.set_offset(i, w, scales.at(groups + group), vectors);
      }
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
  const Upcoming upcoming(next);
  const std::size_t entries = values.type == StorageType::bf16 ? 2 : 4;
  const Added added{up(values.rows, entries) / entries, factors, sums, packed_size(values.dim)};
  if (values.type == StorageType::int8) {
    return integer_sums<StorageType::int8>(values, weights, count, added, upcoming);
  }
  if (values.type == StorageType::int4) {
    return integer_sums<StorageType::int4>(values, weights, count, added, upcoming);
  }
  const Values<StorageType::bf16> pairs(values);
  for (std::size_t q = 0; q < count; q += kMostQueries) {
    const Added part{added.steps, factors + q, sums + q * added.stride, added.stride};
    bf16_sums(pairs, weights + q * kEntryBlock, std::min(kMostQueries, count - q), part, upcoming);
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
