// Products of tiles for attention (amx.h). Included within their target's attributes.
#pragma once

#include "attention/kernels/avx512-inl.h"
#include "simd/amx_tiles.h"

HWY_PUSH_ATTRIBUTES(BALLAST_AVX512_BF16_TARGET)
#include "simd/bf16_tiles-inl.h"
namespace ballast::kernels::avx512 {
namespace {

constexpr std::size_t kTileRows = 16, kTileRowBytes = 64, kTileBytes = kTileRows * kTileRowBytes;

// Sums of two tiles of rows × two of columns, as float32 or int32.
template <typename T>
struct alignas(64) TileSums {
  T of[2][2][kTileRows][kTileRows];
};

// Tiles 0 to 3 are sums of `rows` rows, 4 and 5 rows of `depth` bytes, 6 and 7 what they are
// multiplied with.
inline TileConfig tile_config(std::size_t rows, std::size_t depth) {
  TileConfig config;
  for (int tile = 0; tile < 8; ++tile) {
    const bool is_rows = tile == 4 || tile == 5, is_columns = tile > 5;
    config.row_bytes[tile] = static_cast<std::uint16_t>(is_rows ? depth : kTileRowBytes);
    config.rows[tile] = static_cast<std::uint8_t>(is_columns ? depth / 4 : rows);
  }
  return config;
}

enum class TileProduct { bytes, unsigned_rows, bf16 };

template <TileProduct product, int sum, int a, int b>
BALLAST_INLINE void add_product() {
  if constexpr (product == TileProduct::bytes) AmxTiles::dot_add<sum, a, b>();
  if constexpr (product == TileProduct::unsigned_rows) AmxTiles::dot_add_unsigned<sum, a, b>();
  if constexpr (product == TileProduct::bf16) AmxTiles::dot_add_bf16<sum, a, b>();
}

// The operands of a stage: two tiles of rows, `stride` bytes from row to row, and two of columns.
// The next step is 64 bytes on in the rows, and the next tile of the columns.
struct TileOperands {
  const void* rows[2];
  std::size_t stride;
  const void* columns[2];
};

// Leaves the sums of all steps in tiles 0 to 3. Four sums hide the latency of a product.
template <TileProduct product>
BALLAST_INLINE void multiply_tiles(const TileOperands& operands, std::size_t steps) {
  AmxTiles::zero<0>();
  AmxTiles::zero<1>();
  AmxTiles::zero<2>();
  AmxTiles::zero<3>();
  const auto* first_rows = static_cast<const std::byte*>(operands.rows[0]);
  const auto* second_rows = static_cast<const std::byte*>(operands.rows[1]);
  const auto* first_columns = static_cast<const std::byte*>(operands.columns[0]);
  const auto* second_columns = static_cast<const std::byte*>(operands.columns[1]);
  for (std::size_t s = 0; s < steps; ++s) {
    AmxTiles::load<4>(first_rows, operands.stride);
    AmxTiles::load<6>(first_columns, kTileRowBytes);
    add_product<product, 0, 4, 6>();
    AmxTiles::load<7>(second_columns, kTileRowBytes);
    add_product<product, 1, 4, 7>();
    AmxTiles::load<5>(second_rows, operands.stride);
    add_product<product, 2, 5, 6>();
    add_product<product, 3, 5, 7>();
    first_rows += kTileRowBytes, second_rows += kTileRowBytes;
    first_columns += kTileBytes, second_columns += kTileBytes;
  }
}

template <typename T>
BALLAST_INLINE void store_tiles(TileSums<T>& sums) {
  AmxTiles::store<0>(sums.of[0][0], kTileRowBytes);
  AmxTiles::store<1>(sums.of[0][1], kTileRowBytes);
  AmxTiles::store<2>(sums.of[1][0], kTileRowBytes);
  AmxTiles::store<3>(sums.of[1][1], kTileRowBytes);
}

// Rows of a tile of queries.
inline std::size_t tile_rows_of(std::size_t count) { return std::min(count, kTileRows); }

// A tile of queries. The last one begins where it ends with the last query, so it may have some of
// the one before it again.
struct QueryTile {
  std::size_t begin;  // query
  std::size_t seen;   // rows that an earlier tile has
  std::size_t rows;
};

// Tile number `tile`; behind the last one, nothing new.
inline QueryTile query_tile(std::size_t tile, std::size_t count) {
  const std::size_t rows = tile_rows_of(count);
  const std::size_t first = std::min(tile * kTileRows, count);
  const std::size_t begin = std::min(first, count - rows);
  return {begin, first - begin, rows};
}

// Calls use(query, row of the tile) for each query of a tile that no tile before it has.
template <typename Use>
BALLAST_INLINE void for_new_queries(const QueryTile& tile, const Use& use) {
  for (std::size_t j = tile.seen; j < tile.rows; ++j) use(tile.begin + j, j);
}

// What tiles have stored takes a while until vectors can load it. So the vector work of a stage
// follows the products of the next one.
template <typename Stage, typename Finish>
class Pipeline {
 public:
  explicit Pipeline(const Finish& finish) : finish_(finish) {}
  // multiply(sums) makes the sums of `stage`. Then the stage before it is finished.
  template <typename Multiply>
  BALLAST_INLINE void run(const Stage& stage, const Multiply& multiply) {
    multiply(stages_[at_].sums);
    stages_[at_].stage = stage;
    at_ ^= 1;
    if (waiting_) finish_(stages_[at_].stage, stages_[at_].sums);
    waiting_ = true;
  }
  BALLAST_INLINE void end() {
    if (waiting_) finish_(stages_[at_ ^ 1].stage, stages_[at_ ^ 1].sums);
    waiting_ = false;
  }

 private:
  struct Entry {
    Stage stage;
    typename Stage::Sums sums;
  };
  const Finish& finish_;
  Entry stages_[2];
  std::size_t at_ = 0;
  bool waiting_ = false;
};

}  // namespace
}  // namespace ballast::kernels::avx512
HWY_POP_ATTRIBUTES
