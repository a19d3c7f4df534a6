// The inner loops of matrix products: dots of weight rows with activations. Chosen at run time for
// the processor.
#pragma once

#include <cstddef>

#include "ballast/engine/tensor.h"

namespace ballast {

/// Rows and activations that one call of a tile function may work on.
inline constexpr std::size_t kTileRows = 4;
inline constexpr std::size_t kTileColumns = 6;

/// A block of dots: sums[r · kTileColumns + j] = <row r, xs[j]> of n numbers each.
struct Tile {
  const std::byte* rows[kTileRows] = {};
  const float* xs[kTileColumns] = {};
  std::size_t ahead = 0;  ///< bytes from a row to the one that will be read next in its place
  float sums[kTileRows * kTileColumns] = {};
};

/// Whether dot_tile and unpack_row know the type; others are decoded to float32 first.
bool has_row_reader(TensorType type);

/// Fills in the sums of `rows` rows and `columns` activations. Unpacking a row first and giving it
/// as f32 leads to the same sums, bit for bit.
void dot_tile(TensorType type, std::size_t n, std::size_t rows, std::size_t columns, Tile& tile);

/// Decodes n numbers, whole blocks.
void unpack_row(TensorType type, const std::byte* row, std::size_t n, float* out);

}  // namespace ballast
