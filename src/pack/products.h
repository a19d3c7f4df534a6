// The matrix products of packed contexts. Integer sums are exact and float32 ones are made in one
// order without fused multiply-adds, so every processor gives the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ballast/matrix.h"

namespace ballast::kernels {

/// Columns of a strip, and the depth of the products that are summed as integers.
inline constexpr std::size_t kPackStrip = 32, kPackDepth = 64;

constexpr std::size_t pack_strips(std::size_t cols) { return (cols + kPackStrip - 1) / kPackStrip; }
constexpr std::size_t pack_depths(std::size_t depth) {
  return (depth + kPackDepth - 1) / kPackDepth;
}

/// A matrix of int8, as the products read it: strip by strip, in each pairs of rows, in each its
/// columns, of each both numbers. Missing rows and columns are 0.
struct PackMatrix {
  std::size_t depth = 0, cols = 0;
  std::vector<std::int8_t> data;

  /// `rows`: depth × cols; or, transposed, cols × depth.
  PackMatrix(std::span<const std::int8_t> rows, std::size_t depth, std::size_t cols,
             bool transposed);
  const std::int8_t* at(std::size_t strip, std::size_t depth_block) const {
    return data.data() + (strip * pack_depths(depth) + depth_block) * (kPackDepth * kPackStrip);
  }
};

/// Rows of float32 as int16, kPackDepth elements at a time with a scale of their own.
struct PackRows {
  std::size_t rows = 0, depth = 0;
  std::vector<std::int16_t> codes;  ///< [depth block][row][kPackDepth]
  std::vector<float> scales;        ///< [depth block][row]

  /// Rounds to the nearest multiple of the scale: the block's largest magnitude / 32767. Elements
  /// are finite.
  void set(ConstMatrix from);
};

/// out (rows × cols) = a · b; only the first `depth` columns of a and rows of b count: those below
/// the next multiple of kPackDepth. The strips [begin, end) of columns alone are written.
void pack_product(const PackRows& a, const PackMatrix& b, std::size_t depth, std::size_t begin,
                  std::size_t end, MutableMatrix out);

/// Symmetric matrices side by side along the diagonal of one large one, in float32.
class PackBlocks {
 public:
  /// `matrix`: size × size.
  void add(std::size_t size, std::span<const float> matrix);
  /// Every row becomes (row + before) · blocks + after; an empty span is 0.
  void apply(MutableMatrix rows, std::span<const float> before, std::span<const float> after) const;

 private:
  struct Block {
    std::size_t size = 0, stride = 0, at = 0;  ///< `at`: in data_
  };
  std::vector<Block> blocks_;
  std::vector<float> data_;
};

/// The inverse of a symmetric positive definite matrix, n × n, in float64. Throws Error if it is
/// not.
std::vector<float> inverse_of(std::size_t n, std::span<const float> matrix);

}  // namespace ballast::kernels
