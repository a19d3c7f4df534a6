// QK kernel by tiles: see amx.h.
#include <hwy/base.h>
#include <hwy/detect_targets.h>

#include "attention/kernels/amx.h"
#include "attention/kernels/attention_kernels.h"

#if HWY_ARCH_X86 && defined(__GNUC__)
#include "attention/kernels/qk_int16_avx512-inl.h"
#include "attention/kernels/rotated_avx512-inl.h"
#include "attention/kernels/tiles_amx-inl.h"

HWY_PUSH_ATTRIBUTES(BALLAST_AVX512_BF16_TARGET)
namespace ballast::kernels::avx512 {
namespace {

// An even number of groups of sixteen keys: two meet two tiles of queries.
constexpr std::size_t kKeyGroups = kEntryBlock / kWide;

struct QueryRows {
  const float* packed;
  std::size_t stride;  // floats
  std::size_t count;

  const float* row(std::size_t q) const { return packed + q * stride; }
  const std::byte* bytes(std::size_t q) const { return reinterpret_cast<const std::byte*>(row(q)); }
  std::size_t tiles() const { return up(count, kTileRows) / kTileRows; }
};

// ---- bf16

// Keys as tiles: [group][step].
class Bf16Tiles {
 public:
  Bf16Tiles(const RowsView& rows, const PrefetchRange* range)
      : steps_(up(rows.dim, kStep) / kStep) {
    using Natural = Keys<StorageType::bf16>;
    const Natural keys(rows);
    groups_ = up(keys.groups(), 2);
    Prefetcher prefetcher(rows, range, keys.groups() * keys.pieces() * kPieceLines);
    for (std::size_t g = 0; g < keys.groups(); ++g) {
      const RowSet rows_of_group = keys.rows(g);
      for (std::size_t s = 0; s < steps_; ++s) {
        const bool two = 2 * s + 1 < keys.pieces();
        const std::uintptr_t lines = prefetcher.lines((two ? 2 : 1) * kPieceLines);
        const __m512i zeros[4] = {};
        const PieceWords first = keys.piece(rows_of_group, 2 * s);
        const PieceWords second =
            two ? keys.piece(rows_of_group, 2 * s + 1) : PieceWords(zeros, zeros);
        std::byte* at = tiles_ + (g * steps_ + s) * kTileBytes;
        unroll<8>([&](auto i) BALLAST_INLINE_LAMBDA {
          __m512i even, odd;
          tile_rows(Natural::word(first, i), Natural::word(second, i), even, odd);
          _mm512_store_si512(at + 2 * i * kTileRowBytes, even);
          _mm512_store_si512(at + (2 * i + 1) * kTileRowBytes, odd);
          prefetcher.fetch(lines, i);
          if (two) prefetcher.fetch(lines, kPieceLines + i);
        });
      }
    }
    const std::size_t bytes = steps_ * kTileBytes;
    if (keys.groups() != groups_) std::fill_n(tiles_ + (groups_ - 1) * bytes, bytes, std::byte{0});
  }
  std::size_t groups() const { return groups_; }
  std::size_t steps() const { return steps_; }
  const std::byte* group(std::size_t g) const { return tiles_ + g * steps_ * kTileBytes; }

 private:
  static constexpr std::size_t kStep = 32;  // elements
  std::size_t groups_, steps_;
  alignas(64) std::byte tiles_[kKeyGroups * kMaxDim / kStep * kTileBytes];
};

void qk_bf16(const RowsView& rows, const QueryRows& queries, float* logits,
             const PrefetchRange* range) {
  const Bf16Tiles keys(rows, range);
  const TileScope<AmxTiles> scope(tile_config(tile_rows_of(queries.count), kTileRowBytes));
  // Behind the elements in their order stands a copy in the order of tiles.
  const std::size_t copy = queries.stride * sizeof(std::uint16_t);
  constexpr std::size_t kRow = kEntryBlock * sizeof(float);
  for (std::size_t t = 0; t < queries.tiles(); t += 2) {
    const std::size_t first = query_tile(t, queries.count).begin,
                      second = query_tile(t + 1, queries.count).begin;
    TileOperands operands{{queries.bytes(first) + copy, queries.bytes(second) + copy},
                          queries.stride * sizeof(float),
                          {}};
    for (std::size_t g = 0; g < keys.groups(); g += 2) {
      operands.columns[0] = keys.group(g);
      operands.columns[1] = keys.group(g + 1);
      multiply_tiles<TileProduct::bf16>(operands, keys.steps());
      float* at = logits + g * kWide;
      AmxTiles::store<0>(at + first * kEntryBlock, kRow);
      AmxTiles::store<1>(at + first * kEntryBlock + kWide, kRow);
      AmxTiles::store<2>(at + second * kEntryBlock, kRow);
      AmxTiles::store<3>(at + second * kEntryBlock + kWide, kRow);
    }
  }
}

// ---- int8

// Keys as half tiles, one of each group of elements: [group of keys][group of elements].
class Int8Tiles {
 public:
  explicit Int8Tiles(const RowsView& rows) {
    const Keys<StorageType::int8> keys(rows);
    elements_ = keys.pieces();
    groups_ = up(keys.groups(), 2);
    for (std::size_t g = 0; g < keys.groups(); ++g) {
      const RowSet rows_of_group = keys.rows(g);
      for (std::size_t p = 0; p < elements_; ++p) {
        const PieceWords piece = keys.piece(rows_of_group, p);
        std::byte* to = tiles_ + (g * elements_ + p) * kBytes;
        unroll<kGroupWords>([&](auto i) BALLAST_INLINE_LAMBDA {
          _mm512_store_si512(to + i * kTileRowBytes, piece.word(i / 4, i % 4));
        });
      }
    }
    const std::size_t bytes = elements_ * kBytes;
    if (keys.groups() != groups_) std::fill_n(tiles_ + (groups_ - 1) * bytes, bytes, std::byte{0});
  }
  std::size_t groups() const { return groups_; }  // of keys, even
  std::size_t element_groups() const { return elements_; }
  const std::byte* at(std::size_t group, std::size_t of_elements) const {
    return tiles_ + (group * elements_ + of_elements) * kBytes;
  }

 private:
  static constexpr std::size_t kBytes = kTileBytes / 2;
  std::size_t elements_, groups_;
  alignas(64) std::byte tiles_[kKeyGroups * kMaxGroups * kBytes];
};

struct IntStage {
  using Sums = TileSums<std::int32_t>;
  QueryTile tiles[2];    // of int8, which has both digits of one tile, the first
  std::size_t group;     // of keys, the first of two
  std::size_t elements;  // the group of elements
};

BALLAST_INLINE float* logit_row(float* logits, std::size_t query, std::size_t group) {
  return logits + query * kEntryBlock + group * kWide;
}

void qk_int8(const RowsView& rows, const QueryRows& queries, float* logits) {
  constexpr auto kType = StorageType::int8;
  const Int8Tiles keys(rows);
  const Scales<> scales(rows);
  const TileScope<AmxTiles> scope(tile_config(kTileRows, kQuantGroup));
  const auto finish = [&](const IntStage& stage, const IntStage::Sums& sums) BALLAST_INLINE_LAMBDA {
    const bool is_first = stage.elements == 0,
               is_last = stage.elements + 1 == keys.element_groups();
    const float* of_group = scales.at(stage.elements) + stage.group * kWide;
    const __m512 scale[2] = {_mm512_load_ps(of_group), _mm512_load_ps(of_group + kWide)};
    for_new_queries(stage.tiles[0], [&](std::size_t q, std::size_t j) BALLAST_INLINE_LAMBDA {
      float* at = logit_row(logits, q, stage.group);
      unroll<2>([&](auto g) BALLAST_INLINE_LAMBDA {
        const auto high = _mm512_load_si512(sums.of[0][g][j]);
        const auto low = _mm512_load_si512(sums.of[1][g][j]);
        const auto all = _mm512_add_epi32(_mm512_slli_epi32(high, 7), low);
        auto sum = is_first ? _mm512_setzero_ps() : _mm512_loadu_ps(at + g * kWide);
        sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(all), scale[g], sum);
        if (is_last) {
          const auto unit = _mm512_set1_ps(*Codes<kType>::units(queries.row(q), queries.stride));
          sum = _mm512_mul_ps(sum, unit);
        }
        _mm512_storeu_ps(at + g * kWide, sum);
      });
    });
  };
  Pipeline<IntStage, decltype(finish)> pipeline(finish);
  for (std::size_t t = 0; t < queries.tiles(); ++t) {
    const QueryTile tile = query_tile(t, queries.count);
    for (std::size_t g = 0; g < keys.groups(); g += 2) {
      for (std::size_t e = 0; e < keys.element_groups(); ++e) {
        const auto* codes =
            reinterpret_cast<const std::byte*>(Codes<kType>::group(queries.row(tile.begin), e));
        const TileOperands operands{{codes, codes + kQuantGroup},
                                    queries.stride * sizeof(float),
                                    {keys.at(g, e), keys.at(g + 1, e)}};
        pipeline.run({{tile, {}}, g, e}, [&](IntStage::Sums& sums) BALLAST_INLINE_LAMBDA {
          multiply_tiles<TileProduct::bytes>(operands, 1);
          store_tiles(sums);
        });
      }
    }
  }
  pipeline.end();
}

// ---- q4, q3 and q2

// Keys as tiles: [group][step]. The order of a row is that of packed queries: fields of chunks.
template <StorageType type>
class RotatedTiles {
 public:
  explicit RotatedTiles(const RowsView& rows) {
    const CodeRows<type> keys(rows);
    const CodeTables<type, false> tables;
    const RowLayout<type> layout = keys.layout();
    const std::size_t quads = kFields<type> * layout.chunks * kChunkQuads;
    steps_ = up(quads, kTileRows) / kTileRows;
    groups_ = up(keys.groups(), 2);
    if (quads % kTileRows != 0 || keys.groups() != groups_) {
      std::fill_n(tiles_, groups_ * steps_ * kTileBytes, std::byte{0});
    }
    keys.for_each_group([&](std::size_t group, const RowSet& rows_of_group) BALLAST_INLINE_LAMBDA {
      scales_[group] = keys.scales(group);
      std::byte* at = tiles_ + group * steps_ * kTileBytes;
      for (std::size_t p = 0; p < layout.chunks; ++p) {
        __m512i chunk[4];
        [[maybe_unused]] __m512i high[4];
        [[maybe_unused]] __mmask64 upper = 0;
        unroll<4>([&](auto r) BALLAST_INLINE_LAMBDA {
          chunk[r] = four_rows(rows_of_group, p * kChunk, r);
          if constexpr (type == StorageType::q3) {
            const std::size_t bits = layout.bytes + p * kChunk;
            upper = 0x0001000100010001u * std::uint64_t{upper_bytes(layout, p)};
            high[r] = _mm512_mask_blend_epi8(upper, four_rows(rows_of_group, bits, r),
                                             four_rows(rows_of_group, bits - layout.half, r));
          }
        });
        unroll<kFields<type>>([&](auto f) BALLAST_INLINE_LAMBDA {
          __m512i words[4];
          unroll<4>([&](auto r) BALLAST_INLINE_LAMBDA {
            __mmask64 third = 0;
            if constexpr (type == StorageType::q3) third = third_bits<f>(high[r], upper);
            words[r] = tables.template words<f>(chunk[r], third);
          });
          const HalfWords half(words);
          std::byte* quad = at + (f * layout.chunks + p) * kChunkQuads * kTileRowBytes;
          unroll<kChunkQuads>([&](auto i) BALLAST_INLINE_LAMBDA {
            _mm512_store_si512(quad + i * kTileRowBytes, half.word(i));
          });
        });
      }
    });
    if (keys.groups() != groups_) scales_[keys.groups()] = _mm512_setzero_ps();
  }
  std::size_t groups() const { return groups_; }  // even
  std::size_t steps() const { return steps_; }
  const std::byte* group(std::size_t g) const { return tiles_ + g * steps_ * kTileBytes; }
  __m512 scales(std::size_t g) const { return scales_[g]; }

 private:
  static constexpr std::size_t kChunkQuads = kChunk / 4;
  static constexpr std::size_t kMaxSteps = kMaxDim / kTileRowBytes;
  std::size_t groups_, steps_;
  __m512 scales_[kKeyGroups];
  alignas(64) std::byte tiles_[kKeyGroups * kMaxSteps * kTileBytes];
};

template <StorageType type>
void qk_rotated(const RowsView& rows, const QueryRows& queries, float* logits) {
  const RotatedTiles<type> keys(rows);
  const TileScope<AmxTiles> scope(tile_config(kTileRows, kTileRowBytes));
  const auto finish = [&](const IntStage& stage, const IntStage::Sums& sums) BALLAST_INLINE_LAMBDA {
    for (std::size_t tile = 0; tile < 2; ++tile) {
      for_new_queries(stage.tiles[tile], [&](std::size_t q, std::size_t j) BALLAST_INLINE_LAMBDA {
        const auto unit = _mm512_set1_ps(queries.row(q)[queries.stride - 1]);  // as packed
        unroll<2>([&](auto g) BALLAST_INLINE_LAMBDA {
          const auto sum = _mm512_cvtepi32_ps(_mm512_load_si512(sums.of[tile][g][j]));
          const auto product = _mm512_mul_ps(sum, unit);
          _mm512_storeu_ps(logit_row(logits, q, stage.group + g),
                           _mm512_mul_ps(product, keys.scales(stage.group + g)));
        });
      });
    }
  };
  Pipeline<IntStage, decltype(finish)> pipeline(finish);
  for (std::size_t t = 0; t < queries.tiles(); t += 2) {
    const QueryTile first = query_tile(t, queries.count), second = query_tile(t + 1, queries.count);
    for (std::size_t g = 0; g < keys.groups(); g += 2) {
      const TileOperands operands{{queries.row(first.begin), queries.row(second.begin)},
                                  queries.stride * sizeof(float),
                                  {keys.group(g), keys.group(g + 1)}};
      pipeline.run({{first, second}, g, 0}, [&](IntStage::Sums& sums) BALLAST_INLINE_LAMBDA {
        multiply_tiles<TileProduct::bytes>(operands, keys.steps());
        store_tiles(sums);
      });
    }
  }
  pipeline.end();
}

}  // namespace
}  // namespace ballast::kernels::avx512

namespace ballast::kernels::amx {

void qk_block(const RowsView& keys, const float* queries, std::size_t count, float* logits,
              const PrefetchRange* range) {
  using namespace avx512;
  if (keys.rows == 0) return;
  const QueryRows rows{queries, packed_size(keys.dim), count};
  if (keys.type == StorageType::bf16) return qk_bf16(keys, rows, logits, range);
  const auto run = keys.type == StorageType::int8 ? qk_int8
                   : keys.type == StorageType::q4 ? qk_rotated<StorageType::q4>
                   : keys.type == StorageType::q3 ? qk_rotated<StorageType::q3>
                                                  : qk_rotated<StorageType::q2>;
  run(keys, rows, logits);
}

}  // namespace ballast::kernels::amx
HWY_POP_ATTRIBUTES

#else

namespace ballast::kernels::amx {

void qk_block(const RowsView&, const float*, std::size_t, float*, const PrefetchRange*) {}

}  // namespace ballast::kernels::amx

#endif
