// Integer GEMM by tiles of int8 (AMX). Needs has_amx_int8(). The same bits as the other paths:
// gemm/int_gemm.h has the order of operations.
//
// An activation is two digits, x = 64·high + low. A weight is one int8, or two digits of six bits
// where codes times scales, or float weights, exceed a byte. Each digit of the activations is
// multiplied with each of the weights, or with those of 16 more rows: four tiles of sums.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "gemm/int_gemm.h"
#include "simd/amx_tiles.h"

namespace ballast {

/// The least m for which tiles serve where packed panels would: a tile that is full.
constexpr std::size_t kTileGemmMinM = 16;

/// Packed panel of up to kM activations, one super-block deep.
struct alignas(64) TileActivations {
  static constexpr std::size_t kM = 16, kSums = 24;
  /// 64 elements of each activation, four times: x = 64·high + low.
  std::int8_t high[4][kM][64], low[4][kM][64];
  /// Sums of 32 and, from the ninth on, of 16 elements as pairs: sum = 4·high + low.
  std::int16_t sums[kM][kSums][2];
  float scale[kM];
};

/// m activations spread evenly over the fewest tiles: a product takes as long as its tile has rows.
struct TileRows {
  std::size_t tiles, rows;  ///< all tiles but the last have `rows` activations
  explicit TileRows(std::size_t m)
      : tiles((m + TileActivations::kM - 1) / TileActivations::kM),
        rows((m + tiles - 1) / std::max<std::size_t>(1, tiles)) {}
};

/// Quantizes and packs up to kM rows of x into superblocks(x.cols) panels, `stride` panels apart.
/// Missing rows are zeros.
void pack_activations(ConstMatrix x, TileActivations* out, std::size_t stride);

/// Packed panel of kN weight rows, one super-block deep, in two halves of 16 rows. A quad holds
/// elements 4q to 4q + 3 of each row, as tiles multiply them.
struct alignas(64) TileWeights {
  static constexpr std::size_t kN = 32;
  std::int8_t quads[2][2][kSuperblock / 4][16][4];  ///< [half][digit: low or only, high][q]
  float scales[2][8][16];                           ///< [half][fold]
  std::int32_t mins[2][16][16];                     ///< [half][group]: pairs of int16, (4m, m)
  float min_scales[2][8][16];                       ///< [half][fold of minima]
  NextRows next;
};

/// As pack_weights() of WeightPanel, but prefetches nothing.
void pack_weights(TensorType type, const std::byte* w, std::size_t row_bytes, std::size_t n,
                  std::size_t k, std::size_t superblock, std::size_t ahead, TileWeights& out);

/// int8 products by tiles that a product of an activation and a weight takes: 2 or 4. 0 if the type
/// is not one of has_int_gemm().
int tile_products(TensorType type);

/// Tiles for products of `rows` activations with weights of a type.
TileConfig tile_config(TensorType type, std::size_t rows);

/// totals[t][j][i] += the super-block's part of <weight row i, activation j of panel t>, for all t
/// < tiles and j < rows; further totals up to kM are overwritten. Prefetches the next panel of
/// weights. The thread's tiles are those of tile_config().
void tile_microkernel(TensorType type, const TileWeights& w, const TileActivations* x,
                      std::size_t tiles, std::size_t rows,
                      float (*totals)[TileActivations::kM][TileWeights::kN]);

}  // namespace ballast
