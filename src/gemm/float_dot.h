// Float32 dot products of weight rows with activations: the path for F32 weights, and for every
// type on processors without integer GEMM. The instruction set is chosen at run time.
#pragma once

#include <cstddef>

#include "ballast/engine/tensor.h"

namespace ballast {

/// Largest tile of one dot_tile() call: weight rows (n) and activations (m).
inline constexpr std::size_t kTileN = 4;
inline constexpr std::size_t kTileM = 6;

/// sums[r · kTileM + j] = <row r, xs[j]>.
struct Tile {
  const std::byte* rows[kTileN] = {};
  const float* xs[kTileM] = {};
  std::size_t ahead = 0;  ///< bytes from a row to the one that is prefetched meanwhile
  float sums[kTileN * kTileM] = {};
};

/// Whether dequantize() takes the type, and dot_tile() where has_int_gemm() is false; other types
/// are decoded to float32 first.
bool has_float_kernel(TensorType type);

/// Computes the sums of n rows and m activations of k elements each. `type`: F32, or one without
/// integer products: where all types have them, no other kernels are built. A row that is
/// dequantized first and given as F32 yields the same bits.
void dot_tile(TensorType type, std::size_t k, std::size_t n, std::size_t m, Tile& tile);

/// Dequantizes k elements, whole blocks.
void dequantize(TensorType type, const std::byte* row, std::size_t k, float* out);

}  // namespace ballast
