// AV kernel by tiles: see amx.h.
#include <hwy/base.h>
#include <hwy/detect_targets.h>

#include "attention/kernels/amx.h"
#include "attention/kernels/attention_kernels.h"

#if HWY_ARCH_X86 && defined(__GNUC__)
#include "attention/kernels/av_int_avx512-inl.h"
#include "attention/kernels/av_pairs_avx512-inl.h"
#include "attention/kernels/av_rotated_avx512-inl.h"
#include "attention/kernels/tiles_amx-inl.h"

HWY_PUSH_ATTRIBUTES(BALLAST_AVX512_BF16_TARGET)
namespace ballast::kernels::avx512 {
namespace {

// Values as tiles, [column][step]: a column has 16 elements, a step as many entries as a tile. An
// even number of columns, which sums have room for: two meet two tiles of queries.
template <std::size_t kStepEntries>
class ValueTiles {
 public:
  static constexpr std::size_t kMaxSteps = kEntryBlock / kStepEntries;

  // Zeros where tiles will not be set.
  ValueTiles(std::size_t columns, std::size_t entries)
      : columns_(up(columns, 2)), steps_(up(entries, kStepEntries) / kStepEntries) {
    if (columns_ != columns || entries != kEntryBlock) {
      std::fill_n(tiles_, columns_ * kMaxSteps * kTileBytes, std::byte{0});
    }
  }
  std::size_t columns() const { return columns_; }
  std::size_t steps() const { return steps_; }
  const std::byte* at(std::size_t column, std::size_t step = 0) const {
    return tiles_ + (column * kMaxSteps + step) * kTileBytes;
  }
  BALLAST_INLINE void set(std::size_t column, std::size_t step, std::size_t row, __m512i elements) {
    _mm512_store_si512(tiles_ + (column * kMaxSteps + step) * kTileBytes + row * kTileRowBytes,
                       elements);
  }

 private:
  std::size_t columns_, steps_;
  alignas(64) std::byte tiles_[kMaxDim / kWide * kMaxSteps * kTileBytes];
};

// ---- bf16

constexpr std::size_t kPairStep = 2 * kTileRows;  // entries
using Bf16Tiles = ValueTiles<kPairStep>;

void keep(const Pairs& values, const PrefetchRange* range, Bf16Tiles& tiles) {
  // Pairs of entries i and 8 + i of a step become two rows.
  constexpr std::size_t kHalf = kTileRows / 2;
  Prefetcher prefetcher(values.view(), range, values.columns() * values.count());
  for (std::size_t s = 0; s < tiles.steps(); ++s) {
    for (std::size_t i = 0; i < kHalf; ++i) {
      const std::size_t first = s * kTileRows + i, second = first + kHalf;
      if (first >= values.count()) break;
      const bool two = second < values.count();
      const RowSet a = values.rows(first), b = two ? values.rows(second) : a;
      for (std::size_t c = 0; c < values.columns(); ++c) {
        const std::uintptr_t lines = prefetcher.lines(two ? 2 : 1);
        prefetcher.fetch(lines, 0);
        if (two) prefetcher.fetch(lines, 1);
        const auto word = Pairs::interleave(values.load<true>(a, c));
        const auto other =
            two ? Pairs::interleave(values.load<true>(b, c)) : _mm512_setzero_si512();
        __m512i even, odd;
        tile_rows(word, other, even, odd);
        tiles.set(c, s, 2 * i, even);
        tiles.set(c, s, 2 * i + 1, odd);
      }
    }
  }
}

struct Bf16Stage {
  using Sums = TileSums<float>;
  QueryTile tiles[2];
  std::size_t column;  // the first of two
};

constexpr std::size_t kMostQueries = 128;  // whose weights are rounded at a time

void av_bf16_queries(const Pairs& values, const Bf16Tiles& tiles, const float* weights,
                     std::size_t count, const Sums& sums) {
  alignas(64) std::uint16_t rounded[kMostQueries][kEntryBlock];
  for (std::size_t q = 0; q < count; ++q) {
    for (std::size_t e = 0; e < values.view().rows; e += kPairStep) {
      const float* at = weights + q * kEntryBlock + e;
      const auto low = (__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(at));
      const auto high = (__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(at + kWide));
      const auto step = _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
      _mm512_store_si512(rounded[q] + e, tile_order(step));
    }
  }
  const auto finish = [&](const Bf16Stage& stage,
                          const Bf16Stage::Sums& of_stage) BALLAST_INLINE_LAMBDA {
    for (std::size_t tile = 0; tile < 2; ++tile) {
      for_new_queries(stage.tiles[tile], [&](std::size_t q, std::size_t j) BALLAST_INLINE_LAMBDA {
        unroll<2>([&](auto c) BALLAST_INLINE_LAMBDA {
          sums.add(q, stage.column + c, _mm512_load_ps(of_stage.of[tile][c][j]));
        });
      });
    }
  };
  Pipeline<Bf16Stage, decltype(finish)> pipeline(finish);
  for (std::size_t t = 0; t * kTileRows < count; t += 2) {
    const QueryTile first = query_tile(t, count), second = query_tile(t + 1, count);
    for (std::size_t c = 0; c < tiles.columns(); c += 2) {
      const TileOperands operands{{rounded[first.begin], rounded[second.begin]},
                                  sizeof(rounded[0]),
                                  {tiles.at(c), tiles.at(c + 1)}};
      pipeline.run({{first, second}, c}, [&](Bf16Stage::Sums& of_stage) BALLAST_INLINE_LAMBDA {
        multiply_tiles<TileProduct::bf16>(operands, tiles.steps());
        store_tiles(of_stage);
      });
    }
  }
  pipeline.end();
}

void av_bf16(const RowsView& rows, const float* weights, std::size_t count, const Sums& sums,
             const PrefetchRange* range) {
  const Pairs values(rows);
  Bf16Tiles tiles(values.columns(), rows.rows);
  keep(values, range, tiles);
  const TileScope<AmxTiles> scope(tile_config(tile_rows_of(count), kTileRowBytes));
  const RoundingOfTiles rounding;
  for (std::size_t q = 0, now = 0; q < count; q += now) {
    const std::size_t left = count - q;
    now = left <= kMostQueries ? left : std::min(kMostQueries, left - kTileRows);
    av_bf16_queries(values, tiles, weights + q * kEntryBlock, now, sums.from(q));
  }
}

// ---- int8

constexpr std::size_t kQuadStep = 4 * kTileRows;  // entries
using ByteTiles = ValueTiles<kQuadStep>;

void keep(const Integers<StorageType::int8>& values, ByteTiles& tiles) {
  using Columns = Integers<StorageType::int8>;
  for (std::size_t s = 0; s < values.count(); ++s) {
    RowSet rows = values.rows(s);
    const auto set = [&](std::size_t column, __m512i elements) BALLAST_INLINE_LAMBDA {
      tiles.set(column, s / kTileRows, s % kTileRows, elements);
    };
    for (std::size_t c = 0; c < values.columns(); c += 2, rows.data += 2 * kWide) {
      if (c + 2 <= values.columns()) {
        __m512i columns[2];
        Columns::interleave(rows, columns);
        set(c, columns[0]);
        set(c + 1, columns[1]);
      } else {
        __m512i last[1];
        Columns::interleave(rows, last);
        set(c, last[0]);
      }
    }
  }
}

struct Int8Stage {
  using Sums = TileSums<std::int32_t>;  // [digit of the weights]
  QueryTile tile;
  std::size_t column;  // the first of two
  const WideCodes<kTileRows>* codes;
};

void av_int8(const RowsView& rows, const float* weights, std::size_t count, const Sums& sums) {
  const Integers<StorageType::int8> values(rows);
  const Scales<> scales(rows);
  ByteTiles tiles(values.columns(), rows.rows);
  keep(values, tiles);
  const TileScope<AmxTiles> scope(tile_config(kTileRows, kTileRowBytes));
  const auto finish = [&](const Int8Stage& stage,
                          const Int8Stage::Sums& of_stage) BALLAST_INLINE_LAMBDA {
    for_new_queries(stage.tile, [&](std::size_t q, std::size_t j) BALLAST_INLINE_LAMBDA {
      const auto unit = _mm512_set1_ps(stage.codes->unit[j]);
      unroll<2>([&](auto c) BALLAST_INLINE_LAMBDA {
        const auto high = _mm512_load_si512(of_stage.of[0][c][j]);
        const auto low = _mm512_load_si512(of_stage.of[1][c][j]);
        const auto all = _mm512_add_epi32(_mm512_slli_epi32(high, 8), low);
        sums.add(q, stage.column + c, _mm512_mul_ps(_mm512_cvtepi32_ps(all), unit));
      });
    });
  };
  Pipeline<Int8Stage, decltype(finish)> pipeline(finish);
  WideCodes<kTileRows> codes[2];
  std::size_t number = 0;
  for (std::size_t t = 0; t * kTileRows < count; ++t) {
    const QueryTile tile = query_tile(t, count);
    for (std::size_t c = 0; c < tiles.columns(); c += 2, ++number) {
      auto& now = codes[number % 2];
      for (std::size_t j = 0; j < kTileRows; ++j) {
        const Weights of_query(weights + (tile.begin + j) * kEntryBlock);
        now.set(j, of_query, scales.at(c / 2), nullptr);
      }
      const TileOperands operands{
          {now.high, now.low}, sizeof(now.high[0]), {tiles.at(c), tiles.at(c + 1)}};
      pipeline.run({tile, c, &now}, [&](Int8Stage::Sums& of_stage) BALLAST_INLINE_LAMBDA {
        multiply_tiles<TileProduct::unsigned_rows>(operands, tiles.steps());
        store_tiles(of_stage);
      });
    }
  }
  pipeline.end();
}

// ---- q4, q3 and q2

// A column is a chunk of a field, a step a part of the block.
template <StorageType type>
void keep(const CodeRows<type>& values, ByteTiles& tiles) {
  constexpr std::size_t kSteps = kWide / 4;  // of a group
  const CodeTables<type, false> tables;
  const RowLayout<type> layout = values.layout();
  values.for_each_group([&](std::size_t group, const RowSet& rows) BALLAST_INLINE_LAMBDA {
    for (std::size_t step = 0; step < kSteps; ++step) {
      const RowSet four(rows.data + step * 4 * rows.stride, rows.stride, rows.thrice);
      for (std::size_t chunk = 0; chunk < layout.chunks; ++chunk) {
        const auto codes = interleaved(first_rows(four, chunk * kChunk));
        [[maybe_unused]] __m512i high;
        [[maybe_unused]] __mmask64 upper = 0;
        if constexpr (type == StorageType::q3) {
          const std::size_t at = layout.bytes + chunk * kChunk;
          const __mmask16 words = upper_bytes(layout, chunk);
          high = _mm512_mask_blend_epi32(words, interleaved(first_rows(four, at)),
                                         interleaved(first_rows(four, at - layout.half)));
          upper = _mm512_movepi8_mask(_mm512_maskz_set1_epi32(words, -1));
        }
        unroll<kFields<type>>([&](auto f) BALLAST_INLINE_LAMBDA {
          __mmask64 third = 0;
          if constexpr (type == StorageType::q3) third = third_bits<f>(high, upper);
          tiles.set(f * layout.chunks + chunk, group / kPartGroups,
                    group % kPartGroups * kSteps + step, tables.template words<f>(codes, third));
        });
      }
    }
  });
}

struct RotatedStage {
  struct Sums {
    TileSums<std::int32_t> parts[kParts];
  };
  QueryTile tiles[2];
  std::size_t column;  // the first of two
};

template <StorageType type>
void av_rotated(const RowsView& rows, const float* weights, std::size_t count, const Sums& sums) {
  const CodeRows<type> values(rows);
  const RowLayout<type> layout = values.layout();
  __m512 scales[kEntryBlock / kWide];
  for (std::size_t g = 0; g < kEntryBlock / kWide; ++g) {
    scales[g] = g < values.groups() ? values.scales(g) : _mm512_setzero_ps();
  }
  ByteTiles tiles(kFields<type> * layout.chunks, rows.rows);
  keep(values, tiles);
  const TileScope<AmxTiles> scope(tile_config(kTileRows, kTileRowBytes));
  WeightCodes codes[2 * kTileRows];
  const auto finish = [&](const RotatedStage& stage,
                          const RotatedStage::Sums& of_stage) BALLAST_INLINE_LAMBDA {
    std::size_t place[2];
    __mmask16 lanes[2];  // behind the field's end the next field begins
    for (std::size_t c = 0; c < 2; ++c) {
      const std::size_t field = (stage.column + c) / layout.chunks;
      const std::size_t chunk = (stage.column + c) % layout.chunks;
      place[c] = field * layout.bytes + chunk * kChunk;
      lanes[c] = static_cast<__mmask16>((1u << layout.elements(chunk)) - 1);
    }
    for (std::size_t tile = 0; tile < 2; ++tile) {
      for_new_queries(stage.tiles[tile], [&](std::size_t q, std::size_t j) BALLAST_INLINE_LAMBDA {
        const WeightCodes& of_query = codes[tile * kTileRows + j];
        const auto factor = _mm512_set1_ps(sums.factors[q]);
        unroll<2>([&](auto c) BALLAST_INLINE_LAMBDA {
          float* at = sums.of(q) + place[c];
          auto sum = _mm512_mul_ps(_mm512_maskz_loadu_ps(lanes[c], at), factor);
          for (std::size_t p = 0; p < tiles.steps(); ++p) {
            const auto more = _mm512_load_si512(of_stage.parts[p].of[tile][c][j]);
            sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(more), _mm512_set1_ps(of_query.unit[p]), sum);
          }
          _mm512_mask_storeu_ps(at, lanes[c], sum);
        });
      });
    }
  };
  Pipeline<RotatedStage, decltype(finish)> pipeline(finish);
  for (std::size_t t = 0; t * kTileRows < count; t += 2) {
    const QueryTile both[2] = {query_tile(t, count), query_tile(t + 1, count)};
    for (std::size_t i = 0; i < 2 * kTileRows; ++i) {
      const std::size_t q = both[i / kTileRows].begin + i % kTileRows;
      codes[i].set(weights + q * kEntryBlock, scales);
    }
    for (std::size_t c = 0; c < tiles.columns(); c += 2) {
      pipeline.run(
          {{both[0], both[1]}, c}, [&](RotatedStage::Sums& of_stage) BALLAST_INLINE_LAMBDA {
            for (std::size_t p = 0; p < tiles.steps(); ++p) {
              const std::size_t first = p * kTileRowBytes;
              const TileOperands operands{{codes[0].codes + first, codes[kTileRows].codes + first},
                                          sizeof(WeightCodes),
                                          {tiles.at(c, p), tiles.at(c + 1, p)}};
              multiply_tiles<TileProduct::unsigned_rows>(operands, 1);
              store_tiles(of_stage.parts[p]);
            }
          });
    }
    pipeline.end();  // before other codes take the place of these
  }
}

}  // namespace
}  // namespace ballast::kernels::avx512

namespace ballast::kernels::amx {

void av_block(const RowsView& values, const float* weights, std::size_t count, const float* factors,
              float* sums, const PrefetchRange* range) {
  using namespace avx512;
  if (values.rows == 0) return;
  const Sums all{factors, sums, packed_size(values.dim)};
  if (values.type == StorageType::bf16) return av_bf16(values, weights, count, all, range);
  const auto run = values.type == StorageType::int8 ? av_int8
                   : values.type == StorageType::q4 ? av_rotated<StorageType::q4>
                   : values.type == StorageType::q3 ? av_rotated<StorageType::q3>
                                                    : av_rotated<StorageType::q2>;
  run(values, weights, count, all);
}

}  // namespace ballast::kernels::amx
HWY_POP_ATTRIBUTES

#else

namespace ballast::kernels::amx {

void av_block(const RowsView&, const float*, std::size_t, const float*, float*,
              const PrefetchRange*) {}

}  // namespace ballast::kernels::amx

#endif
